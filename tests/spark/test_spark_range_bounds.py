"""A leader that was deposed, and has not heard of it, says that a partition ends where it ended: others are asked."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.transactional import asking_others
from test_spark_listings import Brokers, of
from test_spark_unreadable import Fetched
from test_spark_vanished import Client, Clients, offsets_of
from told_cluster import Told, available_now, plan

RESET = KafkaError._AUTO_OFFSET_RESET
STALE, NEW = (0, 12), (0, 20)
AGED = (14, 20)
AWAY = None
OUT_OF_RANGE = Fetched((), (RESET, -1))
AT_ITS_END = Fetched((), (KafkaError._PARTITION_EOF, 12))
NOTHING = Fetched(())  # librdkafka tells of an end once


class Leaders(Clients):
    """Of each client that is made also where its leader says that the partition begins and ends; the last is all others'."""

    def __init__(
        self, parts: Sequence[Sequence[Fetched]], bounds: Sequence[tuple[int, int] | None]
    ) -> None:
        super().__init__(*parts)
        self.bounds, self.made = bounds, 0

    def make(self, *_: Any) -> "Asked":
        told = self.bounds[min(self.made, len(self.bounds) - 1)]
        self.made += 1
        return Asked(self, list(self._parts[min(len(self.begun), len(self._parts) - 1)]), told)


class Asked(Client):
    def __init__(self, clients: Leaders, told: list[Fetched], bounds: tuple[int, int] | None):
        super().__init__(clients, told)
        self._bounds = bounds

    def watermarks(self, _timeout_s: float) -> tuple[int, int]:
        if self._bounds is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self._bounds


def read(leaders: Leaders, patch: pytest.MonkeyPatch, *, fails: bool = False) -> list[int]:
    found = offsets_of(leaders, patch, fails=fails)
    assert leaders.closed == leaders.made, "none is left behind"
    return found


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("told", [OUT_OF_RANGE, AT_ITS_END], ids=["out of range", "at its end"])
@pytest.mark.parametrize(
    "others", [[NEW], [STALE, AWAY, STALE, NEW]], ids=["the next one knows", "a later one knows"]
)
def test_an_end_that_one_broker_tells_is_asked_of_others(
    monkeypatch: pytest.MonkeyPatch, told: Fetched, others: Any, *, fails: bool
) -> None:
    """The task would leave out rows that are there, and its batch be noted as done."""
    stale = [Fetched(range(12)), told, NOTHING]
    leaders = Leaders([stale, [Fetched(range(12, 20))]], [STALE, *others])
    assert read(leaders, monkeypatch, fails=fails) == list(range(20))
    assert leaders.begun == [0, 12]


@pytest.mark.parametrize("told", [OUT_OF_RANGE, AT_ITS_END], ids=["out of range", "at its end"])
def test_what_all_say_for_long_enough_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, told: Fetched
) -> None:
    """Whoever says more has the last word of where it ends."""
    part = [Fetched(range(12)), told, NOTHING]
    leaders = Leaders([part], [STALE, AWAY, (0, 13), STALE])
    with pytest.raises(DataLoss, match=r"t-0\[0,20\): the partition ends at 13 now"):
        read(leaders, monkeypatch, fails=True)
    assert leaders.made > asking_others.ASKED_MIN
    assert leaders.now_s >= asking_others.GONE_S
    leaders = Leaders([part], [STALE])
    assert read(leaders, monkeypatch) == list(range(12))
    assert "the partition ends at 12 now" in caplog.text


def test_a_beginning_is_believed_at_once(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """What aged out is gone, whoever says so."""
    leaders = Leaders([[Fetched(range(12)), OUT_OF_RANGE, Fetched(range(14, 20))]], [AGED])
    assert read(leaders, monkeypatch) == [*range(12), *range(14, 20)]
    assert "begins at 14 now" in caplog.text
    assert leaders.made == 1


def test_who_goes_away_when_asked_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = [Fetched(range(12)), OUT_OF_RANGE]
    leaders = Leaders([stale, [Fetched(range(12, 20))]], [AWAY, NEW])
    assert read(leaders, monkeypatch, fails=True) == list(range(20))


def test_a_leader_that_is_asked_again_and_again_ends_the_task_some_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others know the end, and whoever reads meets the one that does not, each time."""
    with pytest.raises(TimeoutError, match="nothing came for 120 s"):
        read(Leaders([[OUT_OF_RANGE]], [STALE, NEW]), monkeypatch)


@pytest.mark.parametrize("told", [OUT_OF_RANGE, AT_ITS_END], ids=["out of range", "at its end"])
def test_who_can_ask_nobody_has_been_told_nothing(
    monkeypatch: pytest.MonkeyPatch, told: Fetched
) -> None:
    """One has said that it ends there, and no other answers: it is waited for."""
    stays = [told] if told is OUT_OF_RANGE else [told, NOTHING]
    with pytest.raises(TimeoutError, match="is an older transaction open"):
        read(Leaders([stays], [STALE, AWAY]), monkeypatch)


def test_an_end_before_what_was_read_is_asked_of_other_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan would tell that the topic's last records are gone, and begin there anew."""
    brokers = Brokers(a={"t": 1}, b={"t": 1})
    brokers.ends = lambda client: 7 if client <= 3 else 9
    asked = of(brokers, monkeypatch)
    assert asked.ends([("t", 0)], {("t", 0): 9}) == {("t", 0): 9}
    assert brokers.made == 4
    brokers.ends = lambda client: 7 + client % 2
    begun_s = brokers.now_s
    assert asked.ends([("t", 0)], {("t", 0): 9}) == {("t", 0): 8}, "the furthest"
    assert brokers.now_s - begun_s >= asking_others.GONE_S
    made = brokers.made
    assert asked.ends([("t", 0)], {("t", 0): 7}) == {("t", 0): 8}
    assert asked.ends([("t", 0)]) == {("t", 0): 8}
    assert brokers.made == made, "nothing is amiss"


def test_a_plan_says_what_was_read() -> None:
    told = Told({}, {("t", 0): 10})
    start = {"@cluster": "me", "t": {"0": 4}}
    plan(told).next_end(start, None)
    assert told.read_up_to == {("t", 0): 4}
    told = Told({}, {("t", 0): 4})
    stream = available_now(told)
    told.last["t", 0] = 10
    stream.next_end({"@cluster": "me", "t": {"0": 10}}, None)
    assert told.read_up_to == {("t", 0): 10}
