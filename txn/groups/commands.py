"""What clients ask of a group, in one form for all versions of each request (`requests.py` makes them).

`ticket` is what a parked reply is answered by; `fresh_id` is the random part of a member id, drawn by the
shell, because machines draw nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from ..runtime.moments import Began


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    group_id: str
    member_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, most wanted first
    client_id: str
    client_host: str
    requires_known_member_id: bool = True  # v4 (KIP-394): a member without an id is first given one
    can_skip_assignment: bool = (
        True  # v9 (KIP-814): a static leader that comes back need not assign
    )
    ticket: int
    fresh_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # member id and assignment, from the leader
    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class Leaving(NamedTuple):
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    group_id: str
    members: tuple[Leaving, ...]


class Commit(NamedTuple):
    """One position to store."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    group_id: str
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1  # v2 to v4 only
    api_version: int
    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit:
    """Offsets that count when the producer's transaction commits (KIP-98, KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    producer_id: int
    producer_epoch: int
    # Where the client's version can't say its generation: when the transaction began.
    began: Began | None = None
    commits: tuple[Commit, ...]


class Wanted(NamedTuple):
    """Partitions of one topic whose positions are asked for."""

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[Wanted, ...] | None  # None: all that the group has
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroups:
    group_ids: tuple[str, ...]
    api_version: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    topics: tuple[tuple[str, UUID], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """KIP-848: everything that a member of the new protocol says. `body` is the request as it came."""

    group_id: str
    body: Any
    api_version: int
    client_id: str
    client_host: str
    fresh_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribe:
    group_ids: Sequence[str]
