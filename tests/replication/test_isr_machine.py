"""The ISR as its leader sees it, row by row and under any order of news."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.isr_machine import (
    MAY_BECOME,
    ON_ERROR,
    Committed,
    IsrMachine,
    Outcome,
    PendingExpand,
    PendingShrink,
    Proposal,
)
from hypothesis import given
from hypothesis import strategies as st


def isr(*members: int) -> frozenset[int]:
    return frozenset(members)


def having(*members: int, leader_epoch: int = 4, partition_epoch: int = 7) -> IsrMachine:
    machine = IsrMachine()
    assert machine.on_image(isr(*members), leader_epoch, partition_epoch)
    return machine


def test_one_who_joins_counts_before_it_is_confirmed() -> None:
    """KIP-497: were the confirmation late, the watermark would have run past it."""
    machine = having(1, 2)
    assert machine.expand(3) == Proposal(isr=(1, 2, 3), leader_epoch=4, partition_epoch=7)
    assert (machine.isr, machine.maximal_isr) == (isr(1, 2), isr(1, 2, 3))


def test_one_who_leaves_counts_until_it_is_confirmed() -> None:
    machine = having(1, 2, 3)
    assert machine.shrink(isr(3)) == Proposal(isr=(1, 2), leader_epoch=4, partition_epoch=7)
    assert machine.maximal_isr == isr(1, 2, 3)


def test_the_image_ends_what_is_in_flight() -> None:
    machine = having(1, 2)
    machine.expand(3)
    assert machine.on_image(isr(1, 2, 3), 4, 8)
    assert machine.state == Committed(isr(1, 2, 3))
    machine.shrink(isr(2, 3))
    assert machine.on_image(isr(1, 2, 3), 5, 9)  # another leader epoch, and no word of ours
    assert machine.state == Committed(isr(1, 2, 3))


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(4, 6), (3, 8), (4, 7)])
def test_old_news_change_nothing(leader_epoch: int, partition_epoch: int) -> None:
    machine = having(1, 2)
    assert not machine.on_image(isr(1), leader_epoch, partition_epoch)
    assert machine.isr == isr(1, 2)


def test_what_is_known_says_nothing_of_what_is_in_flight() -> None:
    """An image that is looked at again as a whole: who was asked for may be let in yet."""
    machine = having(1, 2)
    machine.expand(3)
    assert not machine.on_image(isr(1, 2), 4, 7)
    assert machine.state == PendingExpand(isr(1, 2), 3)


@pytest.mark.parametrize("error", list(ErrorCode))
def test_every_error_to_a_proposal_has_its_outcome(error: ErrorCode) -> None:
    if error is ErrorCode.none:
        return
    machine = having(1, 2)
    proposal = machine.expand(3)
    again = machine.on_refused(proposal, error)
    outcome = ON_ERROR.get(error, Outcome.UNKNOWN)
    assert again == (outcome is Outcome.UNKNOWN)
    expected = Committed(isr(1, 2)) if outcome is Outcome.REJECTED else PendingExpand(isr(1, 2), 3)
    assert machine.state == expected


def test_a_late_refusal_does_not_undo_what_the_image_said() -> None:
    machine = having(1, 2)
    proposal = machine.expand(3)
    machine.on_image(isr(1, 2, 3), 4, 8)
    machine.shrink(isr(3))
    assert not machine.on_refused(proposal, ErrorCode.ineligible_replica)
    assert machine.state == PendingShrink(isr(1, 2, 3), isr(3))


def test_the_table_is_total() -> None:
    kinds = {Committed, PendingExpand, PendingShrink}
    assert set(MAY_BECOME) == kinds
    assert all(targets <= kinds and Committed in targets for targets in MAY_BECOME.values())


def test_two_changes_are_never_in_flight() -> None:
    machine = having(1, 2)
    machine.expand(3)
    with pytest.raises(AssertionError):
        machine.expand(4)
    with pytest.raises(AssertionError):
        machine.shrink(isr(2))


replicas = st.integers(1, 4)


@given(
    st.lists(
        st.tuples(st.sampled_from(["expand", "shrink", "log", "answer"]), replicas, st.booleans())
    )
)
def test_whoever_may_be_in_the_isr_is_counted(steps: list[tuple[str, int, bool]]) -> None:
    """The metadata log may take a proposal or not, and tell of it late: all that it may hold is counted."""
    machine = having(1)
    log = (isr(1), 7)  # what the metadata log has, with its partition epoch
    sent: Proposal | None = None
    for kind, replica, flag in steps:
        if kind == "expand" and not machine.is_in_flight and replica not in machine.isr:
            sent = machine.expand(replica)
        elif kind == "shrink" and not machine.is_in_flight and replica in machine.isr - {1}:
            sent = machine.shrink(isr(replica))
        elif kind == "log" and sent is not None and sent.partition_epoch == log[1]:
            log = (frozenset(sent.isr), log[1] + 1)
        elif kind == "answer":
            if sent is not None and log[1] == sent.partition_epoch and flag:
                machine.on_refused(sent, ErrorCode.ineligible_replica)
                sent = None
            else:
                machine.on_image(log[0], 4, log[1])
                sent = sent if machine.is_in_flight else None
        assert log[0] <= machine.maximal_isr
