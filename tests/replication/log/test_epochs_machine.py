"""Leader epochs: Kafka's answers, and what must hold whatever is assigned and truncated."""

import pytest
from fencepost.replication.log.epochs_machine import (
    NO_EPOCH,
    NO_OFFSET,
    CheckpointDamaged,
    EpochsMachine,
)
from hypothesis import given
from hypothesis import strategies as st


def having(*entries: tuple[int, int]) -> EpochsMachine:
    machine = EpochsMachine()
    for epoch, start in entries:
        machine.assign(epoch, start)
    return machine


def entries(machine: EpochsMachine) -> list[tuple[int, int]]:
    return list(zip(machine.epochs, machine.starts, strict=True))


# Epoch 2 wrote 10-19, epoch 4 wrote 20-29, epoch 7 writes from 30 on; the log ends at 35.
ASKED = [
    (NO_EPOCH, (NO_EPOCH, NO_OFFSET)),
    (1, (1, 10)),  # older than all: where the oldest begins
    (2, (2, 20)),
    (3, (2, 20)),  # unknown, between: the one before, where the one after begins
    (4, (4, 30)),
    (6, (4, 30)),
    (7, (7, 35)),  # the newest still grows
    (8, (NO_EPOCH, NO_OFFSET)),
]


@pytest.mark.parametrize(("epoch", "answer"), ASKED)
def test_the_end_of_an_epoch_is_where_the_next_begins(epoch: int, answer: tuple[int, int]) -> None:
    assert having((2, 10), (4, 20), (7, 30)).end_offset_for(epoch, 35) == answer


def test_an_empty_history_knows_no_end() -> None:
    assert EpochsMachine().end_offset_for(0, 5) == (NO_EPOCH, NO_OFFSET)
    assert EpochsMachine().latest == NO_EPOCH


def test_the_same_epoch_again_is_no_news() -> None:
    machine = having((2, 10))
    assert not machine.assign(2, 10)
    assert not machine.assign(2, 15)
    assert machine.assign(3, 15)


def test_a_newcomer_ends_what_contradicts_it() -> None:
    machine = having((2, 10), (4, 20), (7, 30))
    assert machine.assign(5, 20)
    assert entries(machine) == [(2, 10), (5, 20)]


def test_the_epoch_of_an_offset() -> None:
    machine = having((2, 10), (4, 20))
    assert [machine.epoch_for(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_truncation_from_the_end_drops_epochs_that_wrote_nothing() -> None:
    machine = having((2, 10), (4, 20), (7, 30))
    assert machine.truncate_from_end(30)
    assert entries(machine) == [(2, 10), (4, 20)]
    assert not machine.truncate_from_end(25)


def test_truncation_from_the_start_moves_the_epoch_that_goes_on() -> None:
    machine = having((2, 10), (4, 20), (7, 30))
    assert not machine.truncate_from_start(5)
    assert machine.truncate_from_start(25)
    assert entries(machine) == [(4, 25), (7, 30)]
    assert machine.truncate_from_start(30)
    assert entries(machine) == [(7, 30)]


def test_the_file_is_kafkas_and_a_checksum() -> None:
    machine = having((0, 1), (1, 2))
    kafkas = "0\n2\n0 1\n1 2\n"
    assert machine.to_text() == f"{kafkas}crc32 c6e2b277\n"
    for text in (kafkas, machine.to_text()):
        again = EpochsMachine()
        again.load_text(text)
        assert entries(again) == entries(machine)


def test_no_bit_of_the_file_flips_unseen() -> None:
    """Of "0 0" one bit makes "1 0": a follower that believed it took nothing of any leader any more."""
    text = having((0, 0), (1, 2), (4, 30)).to_text().encode()
    for at in range(8 * len(text)):
        rotten = bytearray(text)
        rotten[at // 8] ^= 1 << at % 8
        with pytest.raises(CheckpointDamaged):
            EpochsMachine().load_text(rotten.decode("ascii", errors="replace"))


@pytest.mark.parametrize(
    "text", ["", "0", "1\n0\n", "0\n2\n0 1\n", "0\n1\n0 x\n", "0\n1\n-1 4\n", "0\n1\n4\n"]
)
def test_a_damaged_file_is_refused_and_changes_nothing(text: str) -> None:
    machine = having((3, 3))
    with pytest.raises(CheckpointDamaged):
        machine.load_text(text)
    assert entries(machine) == [(3, 3)]


@given(st.text(alphabet="0123456789 \n-x", max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    machine = EpochsMachine()
    try:
        machine.load_text(text)
    except CheckpointDamaged:
        assert not machine.epochs


small = st.integers(0, 12)


@given(st.lists(st.tuples(st.sampled_from(["assign", "end", "start"]), small, small)))
def test_epochs_and_offsets_rise_whatever_is_assigned(ops: list[tuple[str, int, int]]) -> None:
    machine = EpochsMachine()
    for kind, epoch, offset in ops:
        if kind == "assign":
            machine.assign(epoch, offset)
            assert machine.latest == epoch
            assert machine.epoch_for(max(offset, machine.starts[-1])) == epoch
        elif kind == "end":
            machine.truncate_from_end(offset)
            assert all(start < offset for start in machine.starts)
        else:
            before = machine.epoch_for(offset)
            machine.truncate_from_start(offset)
            assert machine.epoch_for(offset) == before
        for values in (machine.epochs, machine.starts):
            assert values == sorted(set(values))


@given(st.lists(st.integers(0, 4), max_size=20), st.integers(0, 5))
def test_the_end_of_an_epoch_is_what_the_log_itself_shows(steps: list[int], asked: int) -> None:
    """The slow twin: a list with the epoch of every record."""
    log: list[int] = []
    machine = EpochsMachine()
    for offset, step in enumerate(steps):
        log.append(max(log[-1] if log else 0, step))
        machine.assign(log[-1], offset)
    known = [epoch for epoch in log if epoch <= asked]
    if not log or asked > log[-1]:
        expected = (NO_EPOCH, NO_OFFSET)
    else:
        end = next((i for i, epoch in enumerate(log) if epoch > asked), len(log))
        expected = (known[-1] if known else asked, end)
    assert machine.end_offset_for(asked, len(log)) == expected
