"""Who is in sync with a partition's leader, and who is about to be: Committed | PendingExpand | PendingShrink.

INVARIANT  the maximal ISR holds everyone who may be in the ISR by the metadata log, whatever became of a change
           that was proposed: an addition counts from when it is asked for, a removal when it is confirmed.
PREVENTS   a high watermark past a replica that is elected leader without that data.
PROVED BY  tests/replication/test_isr_machine.py::test_whoever_may_be_in_the_isr_is_counted,
           tests/replication/test_isr_machine.py::test_every_error_to_a_proposal_has_its_outcome

The three states and what errors mean are Kafka's (Partition.scala, KIP-497). One change at a time is in flight; each
is a compare-and-set on the partition epoch.
"""

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode


class Committed(NamedTuple):
    """As the metadata log has it; nothing is in flight."""

    isr: frozenset[int]


class PendingExpand(NamedTuple):
    isr: frozenset[int]
    joining: int


class PendingShrink(NamedTuple):
    isr: frozenset[int]
    leaving: frozenset[int]


State = Committed | PendingExpand | PendingShrink


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What the controller is asked to log, if the partition is still at this epoch."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Outcome(enum.Enum):
    REJECTED = "it is not in the log and never will be"
    SUPERSEDED = "the log has moved on: the image will tell"
    UNKNOWN = "nobody knows: ask again"


E = ErrorCode
# What an error to a proposal tells; every other one is UNKNOWN (Partition.handleAlterPartitionError).
ON_ERROR: Final[dict[ErrorCode, Outcome]] = {
    E.operation_not_attempted: Outcome.REJECTED,
    E.ineligible_replica: Outcome.REJECTED,
    E.unknown_topic_or_partition: Outcome.SUPERSEDED,
    E.unknown_topic_id: Outcome.SUPERSEDED,
    E.fenced_leader_epoch: Outcome.SUPERSEDED,
    E.invalid_update_version: Outcome.SUPERSEDED,
    E.invalid_request: Outcome.SUPERSEDED,
    E.new_leader_elected: Outcome.SUPERSEDED,
}
# What each state may become. From a pending one there is no way to another pending one.
MAY_BECOME: Final[dict[type[State], frozenset[type[State]]]] = {
    Committed: frozenset({Committed, PendingExpand, PendingShrink}),
    PendingExpand: frozenset({Committed, PendingExpand}),
    PendingShrink: frozenset({Committed, PendingShrink}),
}


class IsrMachine:
    """The ISR of one partition, on its leader."""

    __slots__ = ("leader_epoch", "partition_epoch", "state")

    def __init__(self) -> None:
        self.state: State = Committed(frozenset())
        self.leader_epoch = -1
        self.partition_epoch = -1

    @property
    def isr(self) -> frozenset[int]:
        """As committed."""
        return self.state.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        state = self.state
        return state.isr | {state.joining} if isinstance(state, PendingExpand) else state.isr

    @property
    def is_in_flight(self) -> bool:
        return not isinstance(self.state, Committed)

    def on_image(self, isr: frozenset[int], leader_epoch: int, partition_epoch: int) -> bool:
        """The metadata log says so, or confirmed a proposal; whether it was news.

        Older news change nothing, and what is known says nothing of a proposal that is in flight.
        """
        if partition_epoch < self.partition_epoch or leader_epoch < self.leader_epoch:
            return False
        if (leader_epoch, partition_epoch) == (self.leader_epoch, self.partition_epoch):
            return False
        self._become(Committed(isr))
        self.leader_epoch, self.partition_epoch = leader_epoch, partition_epoch
        return True

    def expand(self, replica: int) -> Proposal:
        state = self.state
        assert isinstance(state, Committed) and replica not in state.isr
        self._become(PendingExpand(state.isr, replica))
        return self._proposal(state.isr | {replica})

    def shrink(self, leaving: frozenset[int]) -> Proposal:
        state = self.state
        assert isinstance(state, Committed) and leaving and leaving < state.isr
        self._become(PendingShrink(state.isr, leaving))
        return self._proposal(state.isr - leaving)

    def on_refused(self, proposal: Proposal, error: ErrorCode) -> bool:
        """Whether to send the proposal again."""
        if not self.awaits(proposal):
            return False  # a newer image has answered meanwhile
        outcome = ON_ERROR.get(error, Outcome.UNKNOWN)
        if outcome is Outcome.REJECTED:
            self._become(Committed(self.state.isr))
        return outcome is Outcome.UNKNOWN

    def awaits(self, proposal: Proposal) -> bool:
        """Whether nothing is known yet of what became of it."""
        return self.is_in_flight and not self._is_stale(proposal)

    def _is_stale(self, proposal: Proposal) -> bool:
        return (proposal.leader_epoch, proposal.partition_epoch) != (
            self.leader_epoch,
            self.partition_epoch,
        )

    def _proposal(self, isr: frozenset[int]) -> Proposal:
        return Proposal(
            isr=tuple(sorted(isr)),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )

    def _become(self, state: State) -> None:
        assert type(state) in MAY_BECOME[type(self.state)], f"{self.state} -> {state}"
        self.state = state
