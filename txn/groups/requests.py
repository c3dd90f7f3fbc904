"""Requests as clients send them, in any version, turned into the commands of the machines.

A field that a version does not have yet, or has no more, gets what Kafka puts in its place.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Protocol
from uuid import UUID

from ..runtime.codec import STRING_BYTES_MAX
from .commands import (
    Commit,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    SyncGroup,
)
from .records import NO_TOPIC_ID

_MS: Final = timedelta(milliseconds=1)
KNOWN_MEMBER_ID_SINCE: Final = 4  # KIP-394
SKIP_ASSIGNMENT_SINCE: Final = 9  # KIP-814
BATCHED_LEAVE_SINCE: Final = 3  # KIP-345
TEXT_BYTES_MAX: Final = (
    STRING_BYTES_MAX - 64
)  # a member id is a name of the client's and a number of ours


class Caller(Protocol):
    """Who asks: as much of a handler's context as the coordinators need."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...


def join_group(ctx: Caller, body: Any, *, ticket: int, fresh_id: str) -> JoinGroup:
    session_timeout_ms = milliseconds(body.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if hasattr(body, "rebalance_timeout"):  # v1 (KIP-62)
        rebalance_timeout_ms = milliseconds(body.rebalance_timeout)
    protocols: dict[str, bytes] = {}
    for protocol in body.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return JoinGroup(
        group_id=body.group_id,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple(protocols.items()),
        client_id=ctx.client_id or "",
        client_host=java_host(ctx.client_host),
        requires_known_member_id=ctx.api_version >= KNOWN_MEMBER_ID_SINCE,
        can_skip_assignment=ctx.api_version >= SKIP_ASSIGNMENT_SINCE,
        ticket=ticket,
        fresh_id=fresh_id,
    )


def fits_a_record(command: JoinGroup) -> bool:
    """Newer versions of JoinGroup can carry longer strings than the group's record has room for."""
    texts = (
        command.group_id,
        command.member_id,
        command.group_instance_id or "",
        command.client_id,
        command.protocol_type,
        *(name for name, _ in command.protocols),
    )
    return all(len(text.encode()) <= TEXT_BYTES_MAX for text in texts)


def sync_group(body: Any, *, ticket: int) -> SyncGroup:
    return SyncGroup(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol_name=getattr(body, "protocol_name", None),
        assignments=tuple((row.member_id, bytes(row.assignment)) for row in body.assignments),
        ticket=ticket,
    )


def heartbeat(body: Any) -> Heartbeat:
    return Heartbeat(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
    )


def leave_group(ctx: Caller, body: Any) -> LeaveGroup:
    if ctx.api_version < BATCHED_LEAVE_SINCE:
        return LeaveGroup(group_id=body.group_id, members=(Leaving(body.member_id),))
    members = tuple(Leaving(row.member_id, row.group_instance_id) for row in body.members)
    return LeaveGroup(group_id=body.group_id, members=members)


def consumer_group_heartbeat(ctx: Caller, body: Any, *, fresh_id: str) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(
        group_id=body.group_id,
        body=body,
        api_version=ctx.api_version,
        client_id=ctx.client_id or "",
        client_host=java_host(ctx.client_host),
        fresh_id=fresh_id,
    )


def commits_of(topic: str, topic_id: UUID, partitions: Sequence[Any]) -> list[Commit]:
    return [
        Commit(
            topic,
            topic_id,
            row.partition_index,
            row.committed_offset,
            getattr(row, "committed_leader_epoch", -1),
            row.committed_metadata or "",
        )
        for row in partitions
    ]


def topic_id_of(topic: Any) -> UUID:
    """All zero where the request names its topics."""
    return getattr(topic, "topic_id", None) or NO_TOPIC_ID


def milliseconds(value: timedelta | int) -> int:
    return value // _MS if isinstance(value, timedelta) else value


def java_host(host: str) -> str:
    """As InetAddress prints it and Kafka's tools show it: `/127.0.0.1`."""
    return host if host.startswith("/") else f"/{host}"
