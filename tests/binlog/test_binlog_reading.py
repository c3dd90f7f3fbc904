"""Why the end of a topic was not reached: a transaction is open, or its leader is away. The consumer is made up."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.binlog import reading
from fencepost.clients.binlog.reading import NotReadable, read_to_end
from fencepost.clients.binlog.source import FINAL

END = 5


class Consumers:
    """`told` are what the reader of committed records gets, a list for each call."""

    def __init__(self, *told: list[Any]) -> None:
        self.settings: list[dict[str, Any]] = []
        self._told = list(told)

    def __call__(self, settings: dict[str, Any]) -> Any:
        self.settings.append(settings)
        return self

    def list_topics(self, topic: str, _: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        return 0, END

    def assign(self, _: Any) -> None: ...

    def consume(self, *_: Any) -> list[Any]:
        found = self._told.pop(0) if self._told else []
        for each in found:
            if isinstance(each, KafkaError):  # of no partition: told to a callback
                self.settings[1]["error_cb"](each)
        return [each for each in found if not isinstance(each, KafkaError)]

    def close(self) -> None: ...


def message(offset: int, code: int | None = None) -> Any:
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(error=lambda: error, partition=lambda: 0, offset=lambda: offset)


EOF = message(3, KafkaError._PARTITION_EOF)
AWAY = KafkaError(KafkaError._ALL_BROKERS_DOWN)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    def read_these(*told: list[Any], read_s: float = 0.0) -> tuple[Consumers, list[int]]:
        monkeypatch.setattr(reading, "READ_S", read_s)
        consumers = Consumers(*told)
        monkeypatch.setattr(reading, "Consumer", consumers)
        return consumers, [each.offset() for each in read_to_end({}, "t", 0)]

    return read_these


def test_an_open_transaction_is_one_whose_beginning_was_reached(read) -> None:
    with pytest.raises(NotReadable, match=r"^t-0: a transaction before offset 5 has been open"):
        read([EOF])


@pytest.mark.parametrize(
    "told",
    [[], [AWAY], [EOF, AWAY], [message(-1, KafkaError._TRANSPORT)], [EOF, message(3)]],
)
def test_a_leader_that_is_away_is_no_open_transaction(read, told: list[Any]) -> None:
    with pytest.raises(
        TimeoutError, match=r"^t-0 can't be read up to 5: nothing has come"
    ) as raised:
        read(told)
    assert not isinstance(raised.value, FINAL)  # another try may help
    if any(each is AWAY for each in told):  # two errors of librdkafka can not be compared
        assert AWAY.str() in str(raised.value)


@pytest.mark.parametrize(
    "code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.TOPIC_AUTHORIZATION_FAILED]
)
def test_what_does_not_pass_is_said_at_once(read, code: int) -> None:
    with pytest.raises(KafkaException):
        read([message(0, code)], [message(0), message(END - 1)])


def test_a_reader_whose_beginning_is_gone_does_not_go_to_the_end(read) -> None:
    """There a topic of positions looks as if it had none."""
    consumers, offsets = read(
        [message(0), message(2)], [message(END, KafkaError._PARTITION_EOF)], read_s=30
    )
    assert offsets == [0, 2]
    assert consumers.settings[1]["auto.offset.reset"] == "error"


# -- a leader that was deposed, and has not heard of it -------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        self.now_s += 0.1
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Leaders(Consumers):
    """Where the partition ends, for each client that asks; and where readers of committed records are told that it does."""

    def __init__(self, ends: list[int], read: list[int]) -> None:
        super().__init__()
        self.ends, self.read, self.made, self.closed = ends, read, 0, 0
        self._next = 0
        self._end = 0

    def __call__(self, settings: dict[str, Any]) -> Any:
        self.made += 1
        return super().__call__(settings)

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        return 0, self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def assign(self, places: Any) -> None:
        self._next, self._end = places[0].offset, self.read.pop(0) if self.read else END

    def consume(self, *_: Any) -> list[Any]:
        found = [message(offset) for offset in range(self._next, self._end)]
        self._next = max(self._next, self._end)
        return [*found, message(self._next, KafkaError._PARTITION_EOF)]

    def close(self) -> None:
        self.closed += 1


def offsets_of(leaders: Leaders, patch: pytest.MonkeyPatch) -> list[int]:
    patch.setattr(reading, "Consumer", leaders)
    patch.setattr(reading, "time", Clock())
    try:
        return [each.offset() for each in read_to_end({}, "t", 0, END)]
    finally:
        assert leaders.closed == leaders.made


def test_an_end_before_what_was_acknowledged_is_asked_of_others(monkeypatch) -> None:
    """A position before the last would be taken for it, and all behind that written twice."""
    assert offsets_of(Leaders([3, 3, END], [END]), monkeypatch) == list(range(END))
    with pytest.raises(TimeoutError, match=r"^t-0 ends at 3, say those .* before 5 was acknowl"):
        offsets_of(Leaders([3], []), monkeypatch)


def test_who_reads_from_a_deposed_leader_and_gets_no_further_is_followed_by_another(
    monkeypatch,
) -> None:
    """It looks like an open transaction, which ends a source for good."""
    assert offsets_of(Leaders([END], [3, 3, END]), monkeypatch) == list(range(END))
    with pytest.raises(NotReadable, match=r"^t-0: a transaction before offset 5 has been open"):
        offsets_of(Leaders([END], [3] * 100), monkeypatch)
