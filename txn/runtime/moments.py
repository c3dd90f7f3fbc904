"""When something began, by how much time has gone by: what two nodes can compare whose wall clocks differ, and one whose own is set.

INVARIANT  a Moment holds the true one: what this process saw is known to it, what it read of a log came before that.
PREVENTS   a clock that is set back fencing everybody until it has caught up, or taking what is old for new.
PROVED BY  tests/txn/test_moments.py::test_a_moment_that_another_node_tells_of_holds_the_true_one

Clocks of two processes that nobody sets have nothing in common but their pace. So a node tells another how long ago something was,
and by when it asked and was answered that one knows between which of its own moments it lies. They go on while a machine
is suspended (`Clock.elapsed`): by a steady clock that stood still meanwhile all that is older would be younger than it is.
"""

from math import inf
from typing import NamedTuple


class Moment(NamedTuple):
    """Somewhere between two seconds of `Clock.elapsed`, both included."""

    from_s: float
    to_s: float

    @classmethod
    def of(cls, at_s: float) -> "Moment":
        return cls(at_s, at_s)

    @classmethod
    def before(cls, at_s: float) -> "Moment":
        return cls(-inf, at_s)

    @property
    def has_beginning(self) -> bool:
        return self.from_s > -inf


class Age(NamedTuple):
    """How long something has been open. `by_wall_ms` is by the clocks of whoever wrote it down, and of who reads it."""

    by_wall_ms: int
    least_s: float = 0.0
    most_s: float = inf

    @classmethod
    def since(cls, moment: Moment, now_s: float, by_wall_ms: int) -> "Age":
        return cls(by_wall_ms, now_s - moment.to_s, now_s - moment.from_s)

    def began(self, *, asked_s: float, answered_s: float, now_ms: int) -> "Began":
        """It was this old at some time between the question and the answer."""
        at = Moment(asked_s - self.most_s, answered_s - self.least_s)
        return Began(at, now_ms - self.by_wall_ms)


class Began(NamedTuple):
    at: Moment
    by_wall_ms: int
