"""What the command-line programs share: how they end."""

from __future__ import annotations

import enum
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from dyna_train.errors import DynaError, MissingExtra
from dyna_train.files import describe


class Exit(enum.IntEnum):
    """Exit codes of every program."""

    OK = 0
    WARNING = 1
    FAILURE = 2
    UNKNOWN = 3
    INTERRUPTED = 130


def run_program(app: Callable[[], object], *, extra: str = "") -> NoReturn:
    """Run `app`, a typer program, and end the process.

    extra: the extra that brings the modules this program's commands load; an absent one is named with it.
    A DynaError, or an OSError, is printed to stderr as one message without a traceback and exits 2, Ctrl-C
    exits 130, an error that nobody foresaw prints its traceback and exits 3. A reader that closes the pipe
    before the end gets no message; that exits 1. Commands exit with other codes through `typer.Exit`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names in files need not fit the terminal
    code = _run(app, extra)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _without_output(Exit.WARNING)
    except OSError as error:
        _print_error(f"standard output: {describe(error)}")
        code = _without_output(Exit.FAILURE)
    sys.exit(code)


def _run(app: Callable[[], object], extra: str) -> int | str | None:
    """Run the program, say what went wrong, and return the exit code."""
    try:
        app()
    except SystemExit as end:  # typer ends so, whatever comes of it
        return end.code
    except ModuleNotFoundError as error:
        if not error.name or not extra or error.name.startswith("dyna_"):
            return _unforeseen()
        return _failed(str(MissingExtra.of(error.name, extra, "this command")))
    except DynaError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:  # the edge of the process: Python's own exit code 1 would read as a warning
        if _is_interrupt(error):
            return _interrupted()
        if isinstance(error, OSError):
            return _failed(describe(error))
        return _unforeseen()
    return Exit.OK


def _failed(message: str) -> Exit:
    _print_error(message)
    return Exit.FAILURE


def _interrupted() -> Exit:
    _print_error("interrupted")
    return Exit.INTERRUPTED


def _without_output(code: Exit) -> Exit:
    """Drop what could not be printed: Python would try once more when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return code


def _is_interrupt(error: BaseException | None) -> bool:
    """True if Ctrl-C is behind `error`: libraries that run queries and steps raise something of their own."""
    while error is not None:
        if (
            isinstance(error, KeyboardInterrupt)
            or "Interrupt" in type(error).__name__
            or "interrupted" in str(error)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _unforeseen() -> Exit:
    traceback.print_exc()
    _print_error("this is a bug in dyna or its surroundings; please report the lines above")
    return Exit.UNKNOWN


def _print_error(message: str) -> None:
    # Text, not markup: messages quote what users wrote, and rich would read [x] as a style.
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
