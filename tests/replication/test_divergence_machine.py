"""Where two logs part: scenes of KIP-101 and KIP-279, then any history of leaders."""

import dataclasses

import pytest
from fencepost.replication.divergence_machine import (
    Cut,
    GoOn,
    OutOfRange,
    Parted,
    answer,
    cut_out_of_range,
    cut_where_parted,
)
from fencepost.replication.log.epochs_machine import EpochsMachine
from hypothesis import given, settings
from hypothesis import strategies as st


@dataclasses.dataclass
class History:
    """A log as the epochs of its records, one a batch; and where it starts."""

    records: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (epoch, number)
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def epochs(self) -> EpochsMachine:
        machine = EpochsMachine()
        for index, (epoch, _) in enumerate(self.records):
            machine.assign(epoch, self.start + index)
        return machine

    def cut(self, cut: Cut) -> None:
        if cut.anew:
            self.records, self.start = [], cut.offset
        else:
            del self.records[max(0, cut.offset - self.start) :]
            self.start = min(self.start, cut.offset)


def follow(follower: History, leader: History, epoch: int, began: int) -> int:
    """Ask until the leader goes on from our end; how many rounds it took."""
    for rounds in range(100):
        found = answer(
            leader.epochs,
            (epoch, began),
            leader.start,
            leader.end,
            last_epoch=follower.epochs.latest,
            end_offset=follower.end,
        )
        if isinstance(found, GoOn):
            return rounds
        before = (follower.start, follower.end)
        if isinstance(found, Parted):
            follower.cut(cut_where_parted(follower.epochs, follower.end, found))
            assert follower.end < before[1], "a round that cuts nothing"
        else:
            follower.cut(cut_out_of_range(follower.end, found))
    raise AssertionError("they never agree")


def of(*epochs: int) -> History:
    """A record of each of these epochs; the number makes it another than that of another node."""
    return History([(epoch, index) for index, epoch in enumerate(epochs)])


def other(*epochs: int) -> History:
    return History([(epoch, -index) for index, epoch in enumerate(epochs, start=1)])


def test_what_the_old_leader_alone_has_goes() -> None:
    """KIP-101, scenario 1: a follower that was never told the high watermark truncates by epoch, not by it."""
    follower, leader = of(1, 1, 1, 1), of(1, 1)
    assert follow(follower, leader, 2, 2) == 1
    assert follower == of(1, 1)


def test_equal_offsets_of_different_epochs_are_found() -> None:
    """KIP-101, scenario 2: both logs have an offset 1, written by two leaders after a power cut of both."""
    follower = History([(1, 0), (1, 1)])
    leader = History([(1, 0), (2, 7)])
    assert follow(follower, leader, 2, 1) == 1
    assert follower.records == [(1, 0)]


def test_interleaved_epochs_take_several_rounds() -> None:
    """KIP-279: each led twice without the other hearing of it, so neither knows the other's last epoch."""
    follower = History([(0, 0), (1, 1), (3, 2), (5, 3)])
    leader = History([(0, 0), (2, 9), (4, 8), (6, 7)])
    assert follow(follower, leader, 6, 3) > 1
    assert follower.records == [(0, 0)]


def test_an_epoch_that_wrote_nothing_parts_nothing() -> None:
    """A leader's own epoch counts from where it began, before its first batch."""
    follower, leader = of(1, 1), of(1, 1)
    assert follow(follower, leader, 5, 2) == 0


def test_an_empty_follower_is_sent_everything_there_is() -> None:
    leader = History([(3, 1)] * 4, start=10)
    follower = History()
    assert follow(follower, leader, 3, 10) == 1
    assert (follower.start, follower.end) == (10, 10)


def test_one_that_ends_before_the_leader_begins_starts_anew() -> None:
    leader = History([(3, 1)] * 4, start=10)
    follower = of(1, 1, 2)
    follow(follower, leader, 3, 10)
    assert (follower.start, follower.end) == (10, 10)


def test_one_ahead_of_a_leader_that_lost_data_is_cut_to_it() -> None:
    """Only after a person gave data up: the leader is empty, and has no epochs to compare."""
    follower, leader = of(1, 1, 2), History()
    follow(follower, leader, 3, 0)
    assert follower.end == 0


@pytest.mark.parametrize(
    ("log_end", "leader", "cut"),
    [
        (5, OutOfRange(10, 20), Cut(10, anew=True)),
        (30, OutOfRange(10, 20), Cut(20)),
        (30, OutOfRange(0, 0), Cut(0, anew=True)),
        (15, OutOfRange(10, 20), Cut(10, anew=True)),
    ],
)
def test_out_of_range_is_answered_as_kafka_does(log_end: int, leader: OutOfRange, cut: Cut) -> None:
    assert cut_out_of_range(log_end, leader) == cut


@pytest.mark.parametrize(
    ("log_start", "has_all", "said"),
    [
        (4, False, OutOfRange(4, 20)),  # epoch 1 may have begun anywhere before 11
        (4, True, GoOn()),
        (0, False, GoOn()),  # epoch 0 had all below 11, and nothing of it is left
    ],
)
def test_where_the_epochs_begin_above_the_log_nothing_is_known_of_older_ones(
    log_start: int, has_all: bool, said: object
) -> None:
    """A copy of a log that begins in what compaction took out."""
    epochs = EpochsMachine()
    epochs.assign(1, 11)
    found = answer(epochs, (2, 20), log_start, 20, last_epoch=0, end_offset=10, has_all=has_all)
    assert found == said


def test_below_the_first_known_epoch_of_a_log_from_0_stands_what_epoch_0_wrote() -> None:
    """Whatever epoch is asked about: one that nobody else followed had no part in it."""
    epochs = EpochsMachine()
    epochs.assign(2, 7)
    assert answer(epochs, (3, 9), 0, 9, last_epoch=1, end_offset=5) == Parted(0, 7)


steps = st.lists(
    st.tuples(st.sampled_from(["append", "append", "elect", "follow"]), st.integers(0, 2)),
    max_size=60,
)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_rounds_of_asking_end_with_equal_prefixes(told: list[tuple[str, int]]) -> None:
    """Any node may lead (unclean elections too), write, and be followed by any other, each in any order."""
    logs = [History(), History(), History()]
    leader, epoch, began, number = 0, 0, 0, 0
    for kind, who in told:
        if kind == "append":
            number += 1
            logs[leader].records.append((epoch, number))
        elif kind == "elect":
            leader, epoch, began = who, epoch + 1, logs[who].end
        elif who != leader:
            follow(logs[who], logs[leader], epoch, began)
            # Not longer than the leader's, and equal as far as it goes.
            mine, its = logs[who].records, logs[leader].records
            assert mine == its[: len(mine)]
            mine += its[len(mine) :][: number % 3 + 1]
