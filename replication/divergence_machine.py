"""Where the logs of a leader and of its follower part, by the leader epochs that wrote them (KIP-101, 279, 595).

INVARIANT  a follower that has been told to go on at its end has, below it, byte for byte what its leader has; and each
           round of asking cuts at least one batch, so the rounds end.
PREVENTS   two histories in one log: records that a consumer sees on one replica and not on the next leader.
PROVED BY  tests/replication/test_divergence_machine.py::test_rounds_of_asking_end_with_equal_prefixes

One round compares one epoch: the last of the follower. When epochs are interleaved (each of two nodes led twice, unseen by
the other) the follower cuts, and asks again with what is then its last.
"""

from typing import NamedTuple

from .log.epochs_machine import NO_EPOCH, NO_OFFSET, EpochsMachine


class GoOn(NamedTuple):
    """All that the follower has is the leader's: it is sent what follows."""


class Parted(NamedTuple):
    """The largest epoch of the leader up to the follower's last, and where it ended there."""

    epoch: int
    end_offset: int


class OutOfRange(NamedTuple):
    """The follower ends before the leader's log begins, or nothing is known of its epochs."""

    log_start_offset: int
    log_end_offset: int


Answer = GoOn | Parted | OutOfRange


class Cut(NamedTuple):
    """End the log at `offset`; with `anew`, empty it and begin there."""

    offset: int
    anew: bool = False


def answer(
    epochs: EpochsMachine,
    leading: tuple[int, int],
    log_start: int,
    log_end: int,
    *,
    last_epoch: int,
    end_offset: int,
    has_all: bool = False,
) -> Answer:
    """The leader's, to a follower with this end and this last epoch (ReplicaManager.readFromLog's check)."""
    if end_offset < log_start:
        return OutOfRange(log_start, log_end)
    if last_epoch == NO_EPOCH:  # it is empty: nothing can contradict us
        return GoOn() if end_offset <= log_end else OutOfRange(log_start, log_end)
    # One that was copied anew when all had been deleted knows no epoch before its own.
    first_epoch, first_start = (epochs.epochs[0], epochs.starts[0]) if epochs.epochs else leading
    epoch, end = epochs.end_offset_for(last_epoch, log_end, leading)
    if last_epoch < first_epoch:
        if log_start == 0 and first_start > 0:
            # Only epoch 0 can be missing, as each later one keeps its first batch: it wrote all below, whichever is asked about.
            epoch = 0
        elif not has_all:
            # Deletion has taken what tells where the two part: of what it has, and of who wrote that, nothing is sure. Where the
            # list begins above the log, compaction had taken what lay between before this copy was made. Who is in sync, or
            # eligible, has all that is committed, and log starts are.
            return OutOfRange(log_start, log_end)
    if epoch == NO_EPOCH or end == NO_OFFSET:
        return OutOfRange(log_start, log_end)
    if epoch < last_epoch or end < end_offset:
        return Parted(epoch, end)
    return GoOn()


def cut_where_parted(epochs: EpochsMachine, log_end: int, parted: Parted) -> Cut:
    """The follower's next end (AbstractFetcherThread.getOffsetTruncationState)."""
    epoch, end = epochs.end_offset_for(parted.epoch, log_end)
    if epoch == parted.epoch:
        end = min(end, parted.end_offset)
    # Of an epoch that only the leader has, nothing is here: what is, ends where the one before it does.
    return Cut(max(min(end, log_end), 0))


def cut_out_of_range(log_end: int, leader: OutOfRange) -> Cut:
    """AbstractFetcherThread.fetchOffsetAndApplyTruncateAndBuild."""
    if leader.log_end_offset < log_end:
        # Only an election that lost data makes a leader shorter than what it does not know the epochs of.
        if leader.log_end_offset <= leader.log_start_offset:
            return Cut(leader.log_start_offset, anew=True)
        return Cut(leader.log_end_offset)
    return Cut(leader.log_start_offset, anew=True)
