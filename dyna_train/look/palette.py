"""The colours of sheets and plots."""

from __future__ import annotations

PAPER = "#ffffff"
PANEL = "#f7f8fa"
INK = "#1b1f24"
GREY = "#5f6873"
RULE = "#dfe3e8"
GOOD = "#009e73"
WARN = "#e69f00"
BAD = "#d55e00"

# Okabe and Ito: eight colours that people with any kind of colour vision tell apart. Black stands on our white
# paper, yellow would be too faint on it; viewers are dark by default, so there it is the other way round. Seven
# lines are also the most that one plot shows readably.
_ON_ANY = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
LINES = (*_ON_ANY, "#000000")
VIEWER_LINES = (*_ON_ANY, "#f0e442")


def viewer_colour(colour: str) -> str:
    """The colour of `LINES` as a dark viewer shows it."""
    return VIEWER_LINES[LINES.index(colour)]
