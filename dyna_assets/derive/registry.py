"""Derived signals by name: what goes into such a function, what comes out, and how one is registered.

Axis letters: T steps, D dimensions of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_train.config import Config

Values = NDArray[np.float64]
Options = TypeVar("Options", bound=Config)


@dataclass(frozen=True, slots=True)
class Signal:
    """A vector on the grid.

    values_TD: float64, finite. times_T: int64 ns, when each row was captured: a row that is held keeps its time.
    valid_T: bool, steps at which it is there. names, units: one for each dimension.
    """

    values_TD: Values
    times_T: NDArray[np.int64]
    valid_T: NDArray[np.bool_]
    names: tuple[str, ...]
    units: tuple[str, ...]

    def dims(self, names: Sequence[str]) -> list[int]:
        """The numbers of these dimensions. Raises RecordingError naming those there are."""
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise refused(f"no dimension is called {', '.join(unknown)}; there are {', '.join(self.names)}")
        return [self.names.index(name) for name in names]

    def with_values(self, values_TD: Values, names: Sequence[str], units: Sequence[str]) -> Signal:
        """Other values at the same steps and times."""
        return Signal(values_TD, self.times_T, self.valid_T, tuple(names), tuple(units))


Compute = Callable[[tuple[Signal, ...], Any], Signal]
Units = tuple[str, ...] | str
"""Of a vector: a unit for each dimension, or one for all of however many there are."""
UnitsOf = Callable[[tuple[Units, ...], Any], Units]


@dataclass(frozen=True, slots=True)
class Derivation:
    """A registered function. units: of its result, in words. num_inputs: how many signals it can be made of.

    units_of: the result's units from those of the inputs and the options, so that a source's TOML can be refused before
    there is a recording. Raises RecordingError for what the function cannot be made of; `compute` need not look again.
    """

    name: str
    version: int
    units: str
    units_of: UnitsOf
    options: type[Config]
    num_inputs: range
    compute: Compute

    @property
    def says(self) -> str:
        """What it is, in one line."""
        return (self.compute.__doc__ or "").strip().splitlines()[0]


DERIVED: dict[str, Derivation] = {}


def derived(
    name: str,
    options: type[Options],
    *,
    units: str,
    units_of: Callable[[tuple[Units, ...], Options], Units],
    version: int = 1,
    num_inputs: range = range(1, 2),
) -> Callable[
    [Callable[[tuple[Signal, ...], Options], Signal]], Callable[[tuple[Signal, ...], Options], Signal]
]:
    """Register the decorated function. It is given its inputs, and its options already checked."""

    def register(
        compute: Callable[[tuple[Signal, ...], Options], Signal],
    ) -> Callable[[tuple[Signal, ...], Options], Signal]:
        DERIVED[name] = Derivation(name, version, units, units_of, options, num_inputs, compute)
        return compute

    return register


def derive_versions() -> dict[str, int]:
    """'derive.<function>' -> its version, for the stamps."""
    return {f"derive.{name}": entry.version for name, entry in sorted(DERIVED.items())}


def units_in(units: Units) -> tuple[str, ...]:
    """The units that occur, each once."""
    return (units,) if isinstance(units, str) else tuple(dict.fromkeys(units))


def units_text(units: Units) -> str:
    """The units that occur, as an error names them."""
    return ", ".join(f"'{unit}'" if unit else "no unit" for unit in units_in(units)) or "no unit"


def refused(reason: str) -> RecordingError:
    """The error of a signal that cannot be made of this recording."""
    return RecordingError(reason, check="signals.derived")
