"""What the command-line programs share: how they end."""

from __future__ import annotations

import enum
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from dyna_train.errors import DynaError, MissingExtra


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
    A DynaError is printed to stderr as one message without a traceback and exits 2, Ctrl-C exits 130, an
    error that nobody foresaw prints its traceback and exits 3. Commands exit with other codes through
    `typer.Exit`.
    """
    try:
        app()
    except ModuleNotFoundError as error:
        if not error.name or not extra or error.name.startswith("dyna_"):
            _end_unforeseen()
        _print_error(str(MissingExtra.of(error.name, extra, "this command")))
        sys.exit(Exit.FAILURE)
    except DynaError as error:
        _print_error(str(error))
        sys.exit(Exit.FAILURE)
    except KeyboardInterrupt:
        _print_error("interrupted")
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:  # the edge of the process: Python's own exit code 1 would read as a warning
        if _is_interrupt(error):
            _print_error("interrupted")
            sys.exit(Exit.INTERRUPTED)
        _end_unforeseen()
    sys.exit(Exit.OK)


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


def _end_unforeseen() -> NoReturn:
    traceback.print_exc()
    _print_error("this is a bug in dyna or its surroundings; please report the lines above")
    sys.exit(Exit.UNKNOWN)


def _print_error(message: str) -> None:
    # Text, not markup: messages quote what users wrote, and rich would read [x] as a style.
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
