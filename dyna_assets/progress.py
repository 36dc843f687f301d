"""How far a long piece of work is, for whoever wants to show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]
"""(what is being done, how many are done, of how many)"""

_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report(what: str, num_done: int, num_all: int) -> None:
    """Tell the listener of this context, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(what, num_done, num_all)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the reports of everything called inside to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
