"""What `groups_machine.py` asks of the groups of the new protocol (KIP-848), which have a machine of their own."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Decision, Fields, LogRecord, TimerKey
from .commands import (
    ConsumerGroupHeartbeat,
    OffsetCommit,
    OffsetFetch,
    TxnOffsetCommit,
)


class ConsumerGroups(Protocol):
    """Groups are named by their id everywhere; methods about one are only called when `has` is true."""

    def decide(self, command: ConsumerGroupHeartbeat, now_ms: int) -> Decision: ...

    def apply(self, change: Any) -> None:
        """A record of `consumer_records.py`, which says its `group_id`, or a step of its own."""

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        """Its timer keys begin with "consumer"."""

    def loaded(self, now_ms: int) -> Decision: ...

    def woken(self, group_id: str, now_ms: int) -> Decision:
        """`loaded`, of one group that was read from the log later; of none if it is of another kind."""

    def group_ids(self) -> Iterable[str]: ...

    def has(self, group_id: str) -> bool: ...

    def is_empty(self, group_id: str) -> bool: ...

    def state(self, group_id: str) -> str:
        """As ListGroups spells it: Empty, Assigning, Reconciling, Stable."""

    def is_subscribed_to(self, group_id: str, topic: str) -> bool: ...

    def refuse_commit(self, command: OffsetCommit | TxnOffsetCommit) -> ErrorCode: ...

    def refuse_fetch(self, command: OffsetFetch) -> ErrorCode: ...

    def tombstones(self, group_id: str) -> Sequence[LogRecord]:
        """What makes the log forget an empty group."""

    def describe(self, group_id: str) -> Fields:
        """One group of ConsumerGroupDescribe's answer."""
