"""A position is forgotten once, whatever becomes of the snapshot's commit. The broker is real, the database is three rows."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.binlog import Settings, source
from fencepost.clients.binlog.columns import Column, Table
from fencepost.clients.binlog.gtids import MARIADB
from fencepost.clients.binlog.transactions import Transactions
from followed import Followed

pytestmark = pytest.mark.slow
ORDERS = Table("shop", "orders", (Column("id", "int"),), ("id",))


class QuietDatabase:
    """Nothing happens in it: each snapshot is at the same position."""

    flavor = MARIADB
    names_are_small = False

    def __init__(self, _: Settings) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self) -> None: ...

    def cascades(self) -> None: ...

    def refuse_versioned(self) -> None: ...

    def close(self) -> None: ...

    def now(self) -> str:
        return "0-1-7"

    def begin_snapshot(self) -> str:
        return self.now()

    def tables(self) -> list[Table]:
        return [ORDERS]

    def snapshot_rows(self, _: Table) -> Iterator[dict[str, Any]]:
        return iter([{"id": each} for each in range(3)])


def no_stream(*_: object, **__: object) -> AbstractContextManager[Any]:
    return nullcontext(SimpleNamespace())


@pytest.fixture
def orders(bootstrap: str, monkeypatch: pytest.MonkeyPatch, request: Any) -> Followed:
    monkeypatch.setattr(source, "Database", QuietDatabase)
    monkeypatch.setattr(source, "BinlogStream", no_stream)
    name = f"again-{request.node.callspec.id}"
    topic = "{source}.{table}"
    return Followed(
        Settings(source=name, bootstrap=bootstrap, topic=topic, stop_when_caught_up=True)
    )


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
def test_a_snapshot_whose_commit_had_no_answer_is_there_once(
    orders: Followed, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """1. A snapshot. 2. Another one, by --resnapshot: its commit takes longer than anybody waits. 3. The next incarnation
    has it decided, and must not forget what it finds then, if that is the new position."""
    orders.run()
    commits = []

    class Unanswered(Transactions):
        def commit(self, position: str) -> None:
            commits.append(position)
            if len(commits) > 1:
                super().commit(position)
                return
            if is_committed:
                super().commit(position)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(source, "Transactions", Unanswered)
    orders.run(resnapshot=True)
    told = [each["op"] for each in orders.told("orders")]
    assert told.count("r") == 6 and orders.held("orders") == [0, 1, 2]
    assert (
        told.count("t") == 2
    )  # in each partition: which of the first three are still there nobody knew
    assert len(commits) == (1 if is_committed else 2)
