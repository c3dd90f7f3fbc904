"""How a conversation about transactions is held with any node, and its answers written down in plain words.

What is drawn by chance gets a name in the order in which it was first seen: producer ids, moments. Rows whose order
means nothing are sorted.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch
from sim_node import Asker

E = ErrorCode
TOPIC, MISSING = "t", "no such topic"
TIMEOUT_MS: Final = 60_000
# What nobody can be asked to agree on, or what is the same in every answer.
UNSAID: Final = frozenset(
    {"throttle_time", "log_append_time", "log_start_offset", "base_offset", "error_message"}
)
UNSETTLED: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
PATIENCE: Final = 400  # times a tenth of a second
INT_MAX, INT_MIN = 2**31 - 1, -(2**31)


class Producer:
    """A transactional producer as a client sees itself: its id, epoch and next sequence."""

    def __init__(self, transactional_id: str, producer_id: int = 4711, producer_epoch: int = 0):
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = 0

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def but(self, **changes: Any) -> "Producer":
        """The same with something wrong about it."""
        other = Producer(**{**self.fields, **changes})
        other.sequence = self.sequence
        return other

    def became(self, answer: Any) -> None:
        assert answer.error_code is E.none, answer
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self.sequence = 0


class Talk:
    """`said` has a row for each question: its label, API, version and answer."""

    def __init__(self, node: Asker) -> None:
        self.node = node
        self.said: list[list[Any]] = []
        self._names: dict[int, str] = {}

    def ask(self, label: str, key: ApiKey, version: int, **fields: Any) -> Any:
        """The answer, written down. None where the connection was closed instead."""
        assert label not in {row[0] for row in self.said}, label
        try:
            body = self.node.ask(key, version, **fields)
        except Trouble:
            body = None
        answer = "closed" if body is None else self._plain(body)
        self.said.append([label, key.name, version, answer])
        return body

    def in_time(self, ask: Callable[[], bool]) -> None:
        """Again until what was asked came in time; of those that came too late nothing is kept."""
        for _ in range(PATIENCE):
            said, names = len(self.said), dict(self._names)
            if ask():
                return
            del self.said[said:]
            self._names = names
        raise AssertionError("it always comes too late")

    def settle(self, transactional_id: str) -> None:
        """Until all markers of what was ended last are written."""
        self.until(lambda: self.state(transactional_id) not in UNSETTLED)

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if done():
                return
            self.node.sleep(0.1)
        raise AssertionError("it does not happen")

    def state(self, transactional_id: str) -> str:
        key = ApiKey.describe_transactions
        (row,) = self.node.ask(key, 0, transactional_ids=[transactional_id]).transaction_states
        return str(row.transaction_state)

    # -- what producers ask ------------------------------------------------------------------------

    def init(self, label: str, who: Producer, version: int = 5, **more: Any) -> Any:
        fields = {"transaction_timeout": TIMEOUT_MS, **more}
        asked = {"transactional_id": who.transactional_id, **fields}
        return self.ask(label, ApiKey.init_producer_id, version, **asked)

    def begun(self, label: str, transactional_id: str, version: int = 5, **more: Any) -> Producer:
        who = Producer(transactional_id)
        who.became(self.init(label, who, version, **more))
        return who

    def add(self, label: str, who: Producer, version: int = 3, **topics: Sequence[int]) -> Any:
        """Partitions of topics, of TOPIC's first one if none are named; `no_such_topic` is MISSING."""
        wanted = topics or {TOPIC: [0]}
        rows = [
            {"name": MISSING if name == "no_such_topic" else name, "partitions": wanted[name]}
            for name in wanted
        ]
        old = {f"v3_and_below_{name}": value for name, value in who.fields.items()}
        fields = {**old, "v3_and_below_topics": rows}
        return self.ask(label, ApiKey.add_partitions_to_txn, version, **fields)

    def verify(
        self, label: str, who: Producer, version: int = 4, *, only: bool = True, partition: int = 0
    ) -> Any:
        rows = [{"name": TOPIC, "partitions": [partition]}]
        fields = {**who.fields, "verify_only": only, "topics": rows}
        return self.ask(label, ApiKey.add_partitions_to_txn, version, transactions=[fields])

    def add_offsets(self, label: str, who: Producer, version: int = 3, group: str = "g") -> Any:
        key = ApiKey.add_offsets_to_txn
        return self.ask(label, key, version, **who.fields, group_id=group)

    def commit_offset(
        self, label: str, who: Producer, version: int = 3, *, group: str = "g", **more: Any
    ) -> Any:
        topics = more.pop("topics", {TOPIC: [0]})
        rows = [
            {"name": name, "partitions": [position(index) for index in topics[name]]}
            for name in topics
        ]
        fields = {**who.fields, "group_id": group, "topics": rows, **more}
        return self.ask(label, ApiKey.txn_offset_commit, version, **fields)

    def produce(
        self, label: str, who: Producer, version: int = 11, *, partition: int = 0, **more: Any
    ) -> Any:
        """One record at the producer's next sequence; sequences go on where it was taken."""
        topic = more.pop("topic", TOPIC)
        data = records(b"x", who, **more)
        named = {"name": topic}
        if version >= 13:
            named = {"topic_id": self.node.topic_ids[topic]}
        body = self.ask(
            label,
            ApiKey.produce,
            version,
            transactional_id=more.get("said", who.transactional_id),
            acks=-1,
            timeout=5_000,
            topic_data=[{**named, "partition_data": [{"index": partition, "records": data}]}],
        )
        if body is not None and body.responses[0].partition_responses[0].error_code is E.none:
            who.sequence += 1
        return body

    def end(self, label: str, who: Producer, version: int = 3, *, commit: bool = True) -> Any:
        return self.ask(label, ApiKey.end_txn, version, **who.fields, committed=commit)

    def describe(self, label: str, *transactional_ids: str) -> Any:
        key = ApiKey.describe_transactions
        return self.ask(label, key, 0, transactional_ids=transactional_ids)

    def list(self, label: str, version: int = 2, **filters: Any) -> Any:
        asked = {"state_filters": [], "producer_id_filters": [], **filters}
        return self.ask(label, ApiKey.list_transactions, version, **asked)

    # -- in plain words ----------------------------------------------------------------------------

    def _plain(self, value: Any, name: str = "") -> Any:
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._plain(getattr(value, field.name), field.name)
                for field in dataclasses.fields(value)
                if field.name not in UNSAID
            }
        if isinstance(value, tuple | list):
            rows = [self._plain(row, name) for row in value]
            return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
        if name.endswith("producer_id") and value >= 0:
            return self._names.setdefault(value, f"<producer {len(self._names)}>")
        if name == "transaction_start_time" and value != -1:
            return "<a moment>"
        if name == "topic_id":
            return "<an id>"
        if isinstance(value, dt.timedelta):
            return str(value)
        return getattr(value, "name", value)


def position(partition: int, offset: int = 7, metadata: str = "") -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }


def records(value: bytes, who: Producer, **more: Any) -> bytearray:
    fields = {
        "producer_id": who.producer_id,
        "producer_epoch": who.producer_epoch,
        "base_sequence": who.sequence,
        "transactional": True,
        **{name: more[name] for name in more if name != "said"},
    }
    return build_batch([Record(0, 1_000, None, value, ())], **fields)


def could_begin(talk: Talk, who: Producer, version: int) -> bool:
    """The first answers are CONCURRENT_TRANSACTIONS from a Kafka, which aborts what is open meanwhile."""
    asked = {"transactional_id": who.transactional_id, "transaction_timeout": TIMEOUT_MS}
    answer = talk.node.ask(ApiKey.init_producer_id, version, **asked)
    if answer.error_code is E.concurrent_transactions:
        return False
    who.became(answer)
    return True
