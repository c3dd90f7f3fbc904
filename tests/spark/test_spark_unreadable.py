"""Records that are there and that no reader gets: damage, a checksum that does not fit. Whoever asks again gets the same answer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from fencepost.clients.spark import range_reader, task_decisions
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.range_reader import Unreadable, read_range
from fencepost.clients.spark.task_decisions import DecisionRecords, Last, UnreadableDecision
from spark_topics import Served
from support.fencepost_process import fencepost
from support.module_clock import set_clock
from test_spark_task_decisions import Attempt, place_of

UNREADABLE = [
    KafkaError.INVALID_MSG,
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.MSG_SIZE_TOO_LARGE,
]
BATCH = 10
LOOKS_MAX = 1_000


class Fetched:
    """Records with these offsets, and errors: what one fetch brought."""

    def __init__(self, records: Sequence[int], *errors: tuple[int, int]) -> None:
        self._records, self.errors = records, list(errors)
        self.count = len(records) + len(errors)

    def columns(self, end: int) -> Any:
        return Columns(self._records, end) if self._records else None


class Columns:
    def __init__(self, records: Sequence[int], end: int) -> None:
        kept = [each for each in records if each < end]
        self.count, self.is_past_the_end = len(kept), len(kept) < len(records)
        self.offsets = pa.array(kept, pa.int64())

    def values(self) -> pa.Array:
        return pa.array([b"v"] * self.count, pa.binary())

    keys = values

    def timestamps(self) -> tuple[pa.Array, pa.Array]:
        return pa.array([1] * self.count, pa.int64()), pa.array([1] * self.count, pa.int64())


class Told:
    """A consumer that is told this, and the last of it for as long as somebody asks. A second passes with each look."""

    def __init__(self, *told: Fetched) -> None:
        self._told = list(told)
        self.now_s, self.asked_up_to = 0.0, 0

    @contextmanager
    def fetch(self, _most: int, _wait_s: float) -> Iterator[Fetched]:
        self.now_s += 1.0
        assert self.now_s < LOOKS_MAX, "it asks for ever"
        yield self._told.pop(0) if len(self._told) > 1 else self._told[0]

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def start(self, _offset: int) -> None: ...

    def close(self) -> None: ...


def offsets_of(told: Told, monkeypatch: pytest.MonkeyPatch, end: int = 20) -> list[int]:
    monkeypatch.setattr(range_reader, "PartitionConsumer", lambda *_: told)
    set_clock(monkeypatch, range_reader, now_s=lambda: told.now_s, sleep=told.sleep)
    found = read_range(Range("t", 0, 0, end), {}, headers=False, fail_on_data_loss=False)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("code", UNREADABLE)
def test_what_can_not_be_read_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Told at each look: a broker says again that it is damaged, librdkafka meets the same bytes again."""
    told = Told(Fetched(range(10)), Fetched(range(0), (code, 10)))
    with pytest.raises(Unreadable, match=r"t-0\[0,20\): what is there from offset 10 on can't be"):
        offsets_of(told, monkeypatch)


def test_a_batch_that_librdkafka_leaves_out_is_not_left_out_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With check.crcs it tells of a batch whose checksum does not fit, and goes on behind it."""
    told = Told(Fetched([*range(5), *range(9, 30)], (KafkaError._BAD_MSG, 5)))
    with pytest.raises(Unreadable, match="from offset 5 on"):
        offsets_of(told, monkeypatch)


@pytest.mark.parametrize("code", [KafkaError.INVALID_MSG, KafkaError._BAD_MSG])
def test_damage_behind_the_end_is_not_this_task_s(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """librdkafka asks ahead. Offsets before the end may be a marker's: no record ever says that it has come."""
    told = Told(
        Fetched(range(18)), Fetched(range(0), (code, 20), (KafkaError._AUTO_OFFSET_RESET, 0))
    )
    assert offsets_of(told, monkeypatch) == list(range(18))


def test_errors_that_might_pass_and_never_do_are_no_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(Fetched(range(3)), Fetched(range(0), (KafkaError.UNKNOWN, 3)))
    with pytest.raises(
        TimeoutError, match=r"nothing came for 120 s.* The last that was heard: .*UNKNOWN"
    ):
        offsets_of(told, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_task_that_meets_damage_says_so_and_does_not_ask_for_ever(tmp_path: Path) -> None:
    """A bit of the second batch flips while the node is down. The node knows, and answers CORRUPT_MESSAGE each time."""
    with fencepost(tmp_path / "data") as node:
        served = Served(node.bootstrap, "")
        served.create("t")
        for first in range(0, 3 * BATCH, BATCH):
            served.write("t", [f"value {first + n}" for n in range(BATCH)])
    (log,) = (tmp_path / "data" / "t-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)
    with fencepost(tmp_path / "data") as node:
        client = {"bootstrap.servers": node.bootstrap}

        def read(first: int, end: int) -> list[int]:
            found = read_range(
                Range("t", 0, first, end), client, headers=False, fail_on_data_loss=True
            )
            return [offset for batch in found for offset in batch.column("offset").to_pylist()]

        with pytest.raises(Unreadable, match=r"t-0\[0,30\): what is there from offset 10 on can't"):
            read(0, 3 * BATCH)
        assert read(0, BATCH) == list(range(BATCH))
        assert read(2 * BATCH, 3 * BATCH) == list(range(2 * BATCH, 3 * BATCH))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_bit_that_flips_under_a_node_is_in_nobody_s_rows(tmp_path: Path) -> None:
    """The node hands on what its file has: it looks again when it starts, and every seven days. The bit is in the middle of a value."""
    with fencepost(tmp_path / "data") as node:
        served = Served(node.bootstrap, "")
        served.create("t")
        for first in range(0, 3 * BATCH, BATCH):
            served.write("t", [f"{first + n:03}" * 100 for n in range(BATCH)])
        (log,) = (tmp_path / "data" / "t-0").glob("*.log")
        with log.open("r+b") as file:
            at = log.stat().st_size // 2
            file.seek(at)
            was = file.read(1)
            file.seek(at)
            file.write(bytes([was[0] ^ 4]))
        client = {"bootstrap.servers": node.bootstrap}
        wanted = Range("t", 0, 0, 3 * BATCH)
        with pytest.raises(
            Unreadable, match=r"t-0\[0,30\): .* offset 10 on can't be read: _BAD_MSG"
        ):
            list(read_range(wanted, client, headers=False, fail_on_data_loss=True))


class Record:
    """Of the topic of `decisionTopic`; with an error it is a word about the offset."""

    def __init__(self, offset: int, batch: int | None = None, code: int | None = None) -> None:
        self._offset, self._batch, self._code = offset, batch, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"task"

    def value(self) -> bytes:
        return f'{{"batch": {self._batch}}}'.encode()

    def timestamp(self) -> tuple[int, int]:
        return 1, 1


class ToldDecisions:
    """A consumer of one partition that is told these, one at a look, and the last for as long as somebody asks."""

    def __init__(self, *told: Record) -> None:
        self._told = list(told)
        self.now_s = 0.0

    def consume(self, _most: int, _wait_s: float) -> list[Record]:
        self.now_s += 1.0
        return [self._told.pop(0) if len(self._told) > 1 else self._told[0]]


def decisions_of(told: ToldDecisions, monkeypatch: pytest.MonkeyPatch, end: int) -> list[Last]:
    set_clock(monkeypatch, task_decisions, now_s=lambda: told.now_s)
    consumer: Any = told
    return list(DecisionRecords("here", {}, "done", "task")._found(consumer, {3: end}))


@pytest.mark.parametrize("code", UNREADABLE)
def test_a_decision_s_damage_is_told_with_its_place_and_at_once(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Its leader was said not to answer, 120 s later."""
    told = ToldDecisions(Record(0, batch=7), Record(1, code=code))
    said = r"^done-3: what is there from offset 1 on can't be read: .* nothing of it was written\. "
    with pytest.raises(UnreadableDecision, match=said) as found:
        decisions_of(told, monkeypatch, end=3)
    raise_it = "Raise kafka.receive.message.max.bytes" in str(found.value)
    assert (raise_it, told.now_s) == (code == KafkaError.MSG_SIZE_TOO_LARGE, 2.0)


def test_damage_behind_all_decisions_that_are_looked_for_is_nobody_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last offset before the end is a marker's: no record says that it has come."""
    told = ToldDecisions(Record(0, batch=7), Record(2, code=KafkaError._BAD_MSG))
    assert decisions_of(told, monkeypatch, end=2) == [Last(7)]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_task_whose_decision_is_damaged_says_so_and_does_not_ask_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_decisions, "READ_S", 20.0)
    with fencepost(tmp_path / "data") as node:
        served = Served(node.bootstrap, "")
        Attempt(served, "task", "done").commit(7)
        (log,) = (tmp_path / "data" / f"done-{place_of('task')}").glob("*.log")
        with log.open("r+b") as file:
            at = end_of_first_rows(file.read()) - 1
            file.seek(at)
            was = file.read(1)
            file.seek(at)
            file.write(bytes([was[0] ^ 4]))
        with pytest.raises(UnreadableDecision, match=r"^done-\d: .* can't be read: _BAD_MSG"):
            Attempt(served, "task", "done")


def end_of_first_rows(log: bytes) -> int:
    """Of the first batch of a transaction that is no marker."""
    at = 0
    while True:
        size = 12 + int.from_bytes(log[at + 8 : at + 12])
        attributes = int.from_bytes(log[at + 21 : at + 23])
        at += size
        if attributes & 0x30 == 0x10:
            return at
