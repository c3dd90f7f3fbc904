"""A source whose database, log and brokers are made up: what it does when they fail is seen at once, and each time."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.binlog import BinlogSource, Settings, kept_positions, source, transactions
from fencepost.clients.binlog.changes import Change, Event, TransactionEnd
from fencepost.clients.binlog.columns import Table
from fencepost.clients.binlog.gtids import MARIADB

PARTITIONS = 2


def refusal(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


class Brokers:
    """They keep what was committed, and know who began last."""

    def __init__(self) -> None:
        self.kept: list[Any] = []  # records as `read_to_end` gives them
        self.last: Any = None  # the producer that may write
        self.before_commit: Callable[[], None] = lambda: None
        self._offsets = count()

    def keep(self, record: dict[str, Any]) -> None:
        told = {**record, "offset": next(self._offsets)}
        self.kept.append(SimpleNamespace(**{name: lambda n=name: told[n] for name in told}))

    def read_to_end(self, _: Any, topic: str, __: Any = None, at_least: int = 0) -> Iterator[Any]:
        assert at_least > 0, "a leader that was deposed may be asked"
        return iter([each for each in self.kept if each.topic() == topic])

    def told(self, topic: str) -> list[tuple[Any, Any]]:
        found = ((each.key(), each.value()) for each in self.kept if each.topic() == topic)
        return [(json.loads(key or b"null"), json.loads(value or b"null")) for key, value in found]


class Producer:
    """What `transactions.py` needs of librdkafka's."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._open: list[dict[str, Any]] = []

    def init_transactions(self, _: float) -> None:
        self._brokers.last = self

    def begin_transaction(self) -> None:
        self._open = []

    def produce(self, topic: str, **record: Any) -> None:
        self._open.append({"topic": topic, **record})

    def poll(self, _: float) -> None: ...

    def flush(self, _: float) -> None:
        for each in self._open:
            each["on_delivery"](None, SimpleNamespace(offset=lambda: len(self._brokers.kept)))

    def list_topics(self, topic: str, _: float) -> Any:
        partitions = dict.fromkeys(range(PARTITIONS))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def commit_transaction(self, _: float) -> None:
        self._refuse_if_fenced()
        self._brokers.before_commit()
        for each in self._open:
            self._brokers.keep(each)

    def abort_transaction(self, _: float) -> None:
        self._refuse_if_fenced()
        self._open = []

    def purge(self) -> None:
        self._open = []

    def _refuse_if_fenced(self) -> None:
        if self._brokers.last is not self:
            raise refusal(KafkaError._FENCED)


class MadeUp:
    """A database and its log; `brokers` is what is written. `source(…).run()` follows it."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.rows: list[tuple[Table, dict[str, Any]]] = []  # what a snapshot finds
        self.log: list[tuple[str, list[Event]]] = []
        # What follows when all of the log was told: the stream ends if it gives nothing more.
        self.at_end: Callable[[], Iterator[Event]] = lambda: iter(())

    def commit(self, table: Table, op: str, *, before: Any = None, after: Any = None) -> None:
        gtid = f"0-1-{len(self.log) + 1}"
        self.log.append((gtid, [Change(gtid, 0, 5_000, table, op, before, after)]))

    def source(self, **settings: Any) -> BinlogSource:
        base = {"source": "s", "topic": "{table}", "stop_when_caught_up": True, "linger_ms": 0}
        return BinlogSource(Settings(**{**base, **settings}))

    def now(self) -> str:
        return self.log[-1][0] if self.log else ""


class MadeUpDatabase:
    flavor = MARIADB
    names_are_small = False

    def __init__(self, made_up: MadeUp) -> None:
        self._made_up = made_up
        self.now = self.begin_snapshot = made_up.now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self) -> str:
        return ""

    def cascades(self) -> str:
        return ""

    def refuse_versioned(self) -> None: ...

    def refuse_unreadable(self, table: Table) -> None: ...

    def close(self) -> None: ...

    def tables(self) -> list[Table]:
        return list(dict.fromkeys(table for table, _ in self._made_up.rows))

    def snapshot_rows(self, wanted: Table) -> Iterator[dict[str, Any]]:
        return iter([row for table, row in self._made_up.rows if table is wanted])


class MadeUpStream:
    def __init__(self, made_up: MadeUp, position: str) -> None:
        self._made_up = made_up
        self._from = [each[0] for each in made_up.log].index(position) + 1 if position else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def events(self) -> Iterator[Event]:
        for gtid, told in self._made_up.log[self._from :]:
            yield from told
            yield TransactionEnd(gtid)
        yield from self._made_up.at_end()


def made_up_for(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    made = MadeUp()
    brokers = made.brokers
    monkeypatch.setattr(source, "Database", lambda _: MadeUpDatabase(made))
    monkeypatch.setattr(source, "BinlogStream", lambda *told, **_: MadeUpStream(made, told[2]))
    monkeypatch.setattr(transactions, "TellingProducer", lambda _: Producer(brokers))
    monkeypatch.setattr(kept_positions, "read_to_end", brokers.read_to_end)
    monkeypatch.setattr(kept_positions.KeptPositions, "prepare", lambda *_: None)
    monkeypatch.setattr(kept_positions, "losing_policy", lambda *_: None)
    for each in (source, transactions):
        monkeypatch.setattr(each, "ensure_topic", lambda *_, **__: PARTITIONS)
    return made
