"""What a replica is told of batches that were deleted: as much as is true of them, and what can be is checked."""

import struct
from dataclasses import replace

import pytest
from fencepost.replication.log import handed_on
from fencepost.replication.log.handed_on import below
from fencepost.replication.log.producer_snapshot import (
    BATCH,
    ENTRY,
    SnapshotDamaged,
    read_snapshot,
    write_snapshot,
)
from fencepost.replication.log.producer_verdicts import ACCEPT, Marker
from fencepost.replication.log.producers_machine import ProducersMachine
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_helpers import NOW, Produced

# (producer, what it does, how many records)
STEPS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["write", "write", "write", "begin", "end", "next epoch"]),
        st.integers(1, 3),
    ),
    max_size=40,
)
Written = tuple[Produced, int, int, Marker | None]


def history(steps: list[tuple[int, str, int]]) -> list[Written]:
    """What is in a log of producers who did this, by the rules."""
    log: list[Written] = []
    end, epochs, sequences, opened = 0, {}, {}, set()
    for producer_id, what, count in steps:
        epoch = epochs.setdefault(producer_id, 0)
        if what == "next epoch":
            if producer_id in opened:
                continue
            epochs[producer_id], sequences[producer_id] = epoch + 1, 0
            continue
        if what == "end":
            if producer_id not in opened:
                continue
            opened.discard(producer_id)
            batch = Produced(
                producer_id=producer_id,
                producer_epoch=epoch,
                is_control=True,
                is_transactional=True,
            )
            log.append((batch, end, end, Marker(len(log), commit=count > 1, timestamp=9)))
            end += 1
            continue
        if what == "begin":
            opened.add(producer_id)
        batch = Produced(
            base_sequence=sequences.get(producer_id, 0),
            count=count,
            producer_epoch=epoch,
            producer_id=producer_id,
            is_transactional=producer_id in opened,
        )
        sequences[producer_id] = batch.base_sequence + count
        log.append((batch, end, end + count - 1, None))
        end += count
    return log


def replayed(log: list[Written], machine: ProducersMachine | None = None) -> ProducersMachine:
    machine = ProducersMachine() if machine is None else machine
    for batch, first, last, marker in log:
        machine.apply(batch, first, last, now_ms=NOW, marker=marker)
    return machine


@settings(deadline=None)
@given(steps=STEPS, at=st.integers(0, 40))
def test_with_the_rest_of_the_log_it_makes_what_the_leader_knows(
    steps: list[tuple[int, str, int]], at: int
) -> None:
    log = history(steps)
    start = log[at % len(log)][1] if log else 0
    leader = replayed(log)
    handed = below(leader.copied(), start)
    follower = ProducersMachine()
    if handed:
        follower.restore(handed, now_ms=0)
    replayed([each for each in log if each[1] >= start], follower)
    assert sorted(follower.states()) == sorted(leader.states())
    assert follower.open_count() == leader.open_count()


@settings(deadline=None)
@given(steps=STEPS, at=st.integers(0, 40))
def test_nothing_is_told_of_a_batch_behind_it(steps: list[tuple[int, str, int]], at: int) -> None:
    """It may never be committed; its sender would then be told that it is written."""
    log = history(steps)
    start = log[at % len(log)][1] if log else 0
    handed = below(replayed(log).copied(), start)
    follower = ProducersMachine()
    if handed:
        follower.restore(handed, now_ms=0)
    for state in follower.states():
        assert state.txn_first_offset < start
        assert all(batch.last_offset < start for batch in state.batches)


def test_who_goes_on_behind_it_need_not_begin_anew() -> None:
    """A transactional producer of one epoch, whose last five batches a copy that is elected may lack."""
    log = history([(1, "begin", 1), (1, "end", 2)] + [(1, "begin", 1)] * 6)
    start = log[-5][1]
    follower = ProducersMachine()
    follower.restore(below(replayed(log).copied(), start), now_ms=0)
    batch = log[-5][0]
    assert batch.base_sequence == 2
    assert follower.decide(batch, origin_client=True) is ACCEPT
    assert follower.state_of(1).coordinator_epoch == replayed(log).state_of(1).coordinator_epoch


def test_of_too_many_the_last_to_write_are_told_and_whoever_has_a_transaction_open(
    monkeypatch,
) -> None:
    monkeypatch.setattr(handed_on, "HANDED_MAX", 3)
    log = [(Produced(producer_id=n, base_sequence=0), n, n, None) for n in range(8)]
    log[2] = (replace(log[2][0], is_transactional=True), 2, 2, None)
    told = read_snapshot(below(replayed(log).copied(), 8))
    assert [producer_id for producer_id, _ in told.entries] == [2, 5, 6, 7]


def entry(*ends: int, opened: int = -1) -> bytes:
    head = ENTRY.pack(0, -1, 5, NOW, opened)
    return head + b"".join(BATCH.pack(at, 0, end, 5) for at, end in enumerate(ends))


ODD = {
    "of another offset": write_snapshot(9, {7: entry(1)}, []),
    "ended above": write_snapshot(10, {7: entry(1)}, [(1, 2)]),
    "a batch behind it": write_snapshot(10, {7: entry(1, 10)}, []),
    "a batch before all": write_snapshot(10, {7: entry(-1)}, []),
    "in no order": write_snapshot(10, {7: entry(3, 1)}, []),
    "six batches": write_snapshot(10, {7: entry(*range(6))}, []),
    "open behind it": write_snapshot(10, {7: entry(1, opened=10)}, []),
    "open before all": write_snapshot(10, {7: entry(1, opened=-2)}, []),
    "two open at once": write_snapshot(10, {7: entry(1, opened=1), 8: entry(2, opened=1)}, []),
    "no id": write_snapshot(10, {-1: entry(1)}, []),
    "damaged": write_snapshot(10, {7: entry(1)}, [])[:-1] + struct.pack(">B", 9),
    "nothing": b"",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_can_not_be_is_refused(odd: bytes) -> None:
    with pytest.raises(SnapshotDamaged):
        handed_on.check(read_snapshot(odd), 10)
