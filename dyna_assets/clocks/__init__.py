"""What a topic's times say of its clock (pure).

Times are int64 ns in file order. A clock is described by its *lattice*: the evenly spaced instants that the messages
come closest to. Messages that were lost leave slots of the lattice empty, and change neither its rate nor its phase.
A clock that keeps to none, such as a queue that is read in batches, has residuals all over the period: a jitter of
about 0.37 of it.
"""

from dyna_assets.clocks.arrival import drift_against
from dyna_assets.clocks.facts import MOST_LISTED, clock_facts
from dyna_assets.clocks.lattice import Lattice, fit_lattice
from dyna_assets.clocks.times import WALL_CLOCK_NS, difference_s

__all__ = [
    "MOST_LISTED",
    "WALL_CLOCK_NS",
    "Lattice",
    "clock_facts",
    "difference_s",
    "drift_against",
    "fit_lattice",
]
