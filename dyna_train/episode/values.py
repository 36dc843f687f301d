"""What a value is, for those who check what they were handed."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np


def is_whole(value: object) -> bool:
    """Whether it is an integer, of Python or numpy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a real number, of Python or numpy, and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_truth(value: object) -> bool:
    """Whether it is True or False, of Python or numpy."""
    return isinstance(value, bool | np.bool_)


def is_text(value: object) -> bool:
    """Whether it is a str that UTF-8 can say; half of a surrogate pair it cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_texts(value: object) -> bool:
    """Whether it maps texts to texts."""
    return isinstance(value, Mapping) and all(is_text(part) for pair in value.items() for part in pair)
