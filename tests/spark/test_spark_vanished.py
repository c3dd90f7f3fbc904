"""A broker that is cut off from its cluster still answers, and does not know what was made since: a task asks others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark import range_reader
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.range_reader import read_range
from fencepost.clients.transactional import asking_others
from support.module_clock import set_clock
from test_spark_unreadable import Fetched

LOOKS_MAX = 1_000
GONE = KafkaError._UNKNOWN_PARTITION
NOT_THERE = Fetched((), (GONE, -1), (GONE, -1))  # of the partition, and of no message


class Clients:
    """Made one after another; each is told its part, and the last of it for as long as somebody asks. The last part is all others'.
    A second passes with each look."""

    def __init__(self, *parts: Sequence[Fetched]) -> None:
        self._parts = parts
        self.now_s, self.looks = 0.0, 0
        self.begun: list[int] = []  # the offset of each client's start
        self.closed = 0
        self.refused_at: int | None = None

    def make(self, *_: Any) -> "Client":
        if len(self.begun) == self.refused_at:
            raise KafkaException(KafkaError(KafkaError._FAIL))
        return Client(self, list(self._parts[min(len(self.begun), len(self._parts) - 1)]))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Client:
    asked_up_to = 0

    def __init__(self, clients: Clients, told: list[Fetched]) -> None:
        self._clients, self._told, self._is_closed = clients, told, False

    @contextmanager
    def fetch(self, _most: int, _wait_s: float) -> Iterator[Fetched]:
        self._clients.now_s += 1.0
        self._clients.looks += 1
        assert self._clients.looks < LOOKS_MAX, "it asks for ever"
        yield self._told.pop(0) if len(self._told) > 1 else self._told[0]

    def start(self, offset: int) -> None:
        self._clients.begun.append(offset)

    def close(self) -> None:
        assert not self._is_closed, "its memory is freed"
        self._is_closed = True
        self._clients.closed += 1


def offsets_of(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False
) -> list[int]:
    monkeypatch.setattr(range_reader, "PartitionConsumer", clients.make)
    set_clock(
        monkeypatch, range_reader, asking_others, now_s=lambda: clients.now_s, sleep=clients.sleep
    )
    found = read_range(Range("t", 0, 0, 20), {}, headers=False, fail_on_data_loss=fails)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(
    "code", [GONE, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART]
)
def test_a_partition_that_one_broker_does_not_know_is_asked_of_others(
    monkeypatch: pytest.MonkeyPatch, code: int, *, fails: bool
) -> None:
    """The task would succeed with nothing, and its batch be noted: rows that are there, lost for good."""
    stale = [Fetched((), (code, -1))]
    clients = Clients(stale, stale, [Fetched(range(20))])
    assert offsets_of(clients, monkeypatch, fails=fails) == list(range(20))
    assert (clients.begun, clients.closed) == ([0, 0, 0], 3)


def test_what_was_read_before_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that looks at its metadata again may ask another broker."""
    clients = Clients([Fetched(range(12)), NOT_THERE], [Fetched(range(12, 20))])
    assert offsets_of(clients, monkeypatch) == list(range(20))
    assert clients.begun == [0, 12]


@pytest.mark.parametrize("each_takes", [1, 30], ids=["at once", "after 30 s"])
def test_what_stays_away_for_whoever_is_asked_is_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, each_takes: int
) -> None:
    """Librdkafka waits for a topic that it does not find, for 30 s as it comes; that is no silence."""
    part = [*[Fetched(())] * (each_takes - 1), NOT_THERE]
    said = r"t-0\[0,20\): its topic or partition is not there any more \(_UNKNOWN_PARTITION\)"
    clients = Clients(part)
    with pytest.raises(DataLoss, match=said):
        offsets_of(clients, monkeypatch, fails=True)
    assert len(clients.begun) == clients.closed >= asking_others.ASKED_MIN
    assert clients.now_s >= asking_others.GONE_S
    assert offsets_of(Clients(part), monkeypatch) == []
    assert "is not there any more" in caplog.text


def test_who_has_heard_of_it_in_between_begins_to_count_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster whose nodes are cut off one after another, or a client whose metadata comes from any of them."""
    parts = [[Fetched([n]), NOT_THERE] for n in range(19)]
    assert offsets_of(Clients(*parts, [Fetched([19])]), monkeypatch) == list(range(20))


def test_a_client_that_can_not_be_made_leaves_the_one_before_to_be_closed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients([NOT_THERE])
    clients.refused_at = 2
    with pytest.raises(KafkaException):
        offsets_of(clients, monkeypatch)
    assert clients.closed == 2


def test_what_is_told_beside_the_end_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Fetched(range(18), (KafkaError._PARTITION_EOF, 20), (GONE, -1))
    clients = Clients([both])
    assert offsets_of(clients, monkeypatch, fails=True) == list(range(18))
    assert clients.begun == [0]
