"""A coordinator of consumer groups without a broker: its log, its timers, its topics, and clients that misbehave."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups import registry
from fencepost.txn.groups.classic_group import ClassicGroup
from fencepost.txn.groups.commands import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    SyncGroup,
)
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.consumer_group import ConsumerGroup
from fencepost.txn.groups.consumer_machine import ConsumerMachine
from fencepost.txn.groups.consumer_migration import MigratingGroups
from fencepost.txn.groups.consumer_topics import TopicsChanged
from fencepost.txn.runtime.codec import Writer
from fencepost.txn.runtime.decision import CancelTimer, Decision, Parked, SetTimer
from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

GROUP = "pay"
Fields = dict[str, Any]


@dataclass(slots=True)
class FakeTopic:
    topic_id: UUID
    name: str
    partition_count: int
    rack: str | None = None

    def racks(self, partition: int) -> Sequence[str]:
        return [] if self.rack is None else [self.rack]

    def placement(self) -> object:
        return self.rack


@dataclass(slots=True)
class FakeTopics:
    version: int = 1
    found: dict[str, FakeTopic] = field(default_factory=dict)
    serial: int = 0

    def by_name(self, name: str) -> FakeTopic | None:
        return self.found.get(name)

    def by_id(self, topic_id: UUID) -> FakeTopic | None:
        return next((t for t in self.found.values() if t.topic_id == topic_id), None)

    def names(self) -> Sequence[str]:
        return sorted(self.found)

    def create(self, name: str, partition_count: int) -> TopicsChanged:
        self.serial += 1
        self.version += 1
        self.found[name] = FakeTopic(UUID(int=self.serial), name, partition_count)
        return TopicsChanged(names=frozenset({name}), any_created=True)

    def grow(self, name: str, by: int) -> TopicsChanged:
        self.version += 1
        self.found[name].partition_count += by
        return TopicsChanged(names=frozenset({name}), any_created=False)

    def delete(self, name: str) -> TopicsChanged:
        self.version += 1
        del self.found[name]
        return TopicsChanged(names=frozenset({name}), any_created=False)

    def all_of(self, names: Iterable[str]) -> set[tuple[UUID, int]]:
        topics = [self.found[name] for name in names if name in self.found]
        return {(topic.topic_id, p) for topic in topics for p in range(topic.partition_count)}


def request(member_id: str = "m", member_epoch: int = 0, **fields: Any) -> Any:
    """A ConsumerGroupHeartbeat of version 1; whatever is not given was not said."""
    holding = fields.pop("holding", [] if member_epoch == 0 else None)
    names = fields.pop("names", None)
    timeout_ms = fields.pop("rebalance_timeout_ms", 60_000 if member_epoch == 0 else -1)
    if isinstance(holding, dict):
        holding = [
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in sorted(holding.items())
        ]
    return ConsumerGroupHeartbeatRequest(
        group_id=fields.pop("group_id", GROUP),
        member_id=member_id,
        member_epoch=member_epoch,
        rebalance_timeout=dt.timedelta(milliseconds=timeout_ms),
        subscribed_topic_names=None if names is None else tuple(names),
        topic_partitions=None if holding is None else tuple(holding),
        **fields,
    )


def command(body: Any, *, api_version: int = 1, fresh_id: str = "fresh") -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(
        group_id=body.group_id,
        body=body,
        api_version=api_version,
        client_id="client",
        client_host="/127.0.0.1",
        fresh_id=fresh_id,
    )


class Coordinator:
    """What `shard.py` is on a node: decides, applies, writes, keeps time. Its log is bytes, as on a disk."""

    def __init__(self, config: ConsumerConfig | None = None) -> None:
        self.config = config or ConsumerConfig(group_consumer_assignment_interval_ms=0)
        self.topics = FakeTopics()
        self.overrides: dict[str, dict[str, str]] = {}
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[tuple[str | int, ...], int] = {}
        self.answers: dict[int, Fields] = {}  # to parked requests, by ticket
        self.machine = self._machine()

    def _machine(self) -> ConsumerMachine:
        return ConsumerMachine(self.config, self.topics, lambda id_: self.overrides.get(id_, {}))

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self.machine.groups

    @property
    def group(self) -> ConsumerGroup:
        return self.groups[GROUP]

    def hear(self, body: Any, **how: Any) -> Fields:
        decision = self.machine.decide(command(body, **how), self.now_ms)
        self.run(decision)
        self.tick()
        reply = decision.reply
        assert isinstance(reply, dict)
        return reply

    def run(self, decision: Decision) -> None:
        for record in decision.records:
            key, value = record.encode()
            self.log.append((key, value))
            read = decode(key, value)
            assert read == record, "what is written is what is read"
            self.machine.apply(read)
        for step in decision.steps:
            self.machine.apply(step)
        for effect in decision.effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = self.now_ms + effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            else:
                self.answers[effect.ticket] = effect.fields

    def tick(self) -> None:
        for _ in range(10_000):
            due = [(at, key) for key, at in self.timers.items() if at <= self.now_ms]
            if not due:
                return
            _, key = min(due)
            del self.timers[key]
            self.run(self.machine.tick(key, self.now_ms))
        raise AssertionError("timers that never end")

    def sleep(self, ms: int) -> None:
        until = self.now_ms + ms
        while True:
            self.tick()
            soonest = min((at for at in self.timers.values() if at <= until), default=None)
            if soonest is None:
                break
            self.now_ms = max(self.now_ms, soonest)
        self.now_ms = until

    def topics_are(self, **counts: int) -> None:
        for name, count in counts.items():
            self.change(self.topics.create(name, count))

    def change(self, change: TopicsChanged) -> None:
        self.machine.apply(change)

    def replayed(self, *, compacted: bool = False) -> ConsumerMachine:
        """A machine that knows nothing but the log, or what compaction leaves of it."""
        machine = self._machine()
        log = self.log
        if compacted:
            last = {key: index for index, (key, _) in enumerate(log)}
            log = [entry for index, entry in enumerate(log) if last[entry[0]] == index]
        for key, value in log:
            machine.apply(decode(key, value))
        return machine

    def fail_over(self) -> None:
        self.machine = self.replayed()
        self.timers.clear()
        self.run(self.machine.loaded(self.now_ms))


def decode(key: bytes, value: bytes | None) -> Any:
    return registry.decode(key, value)


class MixedCoordinator(Coordinator):
    """One that has groups of both kinds, as on a node."""

    ticket = 0

    def __init__(
        self, config: ConsumerConfig | None = None, classic: GroupConfig | None = None
    ) -> None:
        self.classic_config = classic or GroupConfig(group_initial_rebalance_delay_ms=0)
        super().__init__(config)

    def _machine(self) -> Any:
        return MigratingGroups(self.classic_config, super()._machine(), lambda: self.now_ms / 1000)

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self.machine.consumer.groups

    @property
    def classic(self) -> dict[str, ClassicGroup]:
        return self.machine.classic.groups

    def ask(self, command: Any) -> Fields | int:
        """The reply, or the ticket of one that is parked."""
        decision = self.machine.decide(command, self.now_ms)
        self.run(decision)
        self.tick()
        if isinstance(decision.reply, Parked):
            answered = self.answers.pop(decision.reply.ticket, None)
            return decision.reply.ticket if answered is None else answered
        reply = decision.reply
        assert isinstance(reply, dict)
        return reply

    def join(
        self,
        member_id: str,
        topics: Sequence[str],
        owned: dict[str, Sequence[int]] | None = None,
        *,
        instance_id: str | None = None,
        protocols: Sequence[str] = ("range",),
        **fields: Any,
    ) -> Fields | int:
        self.ticket += 1
        metadata = fields.pop("metadata", subscription_bytes(topics, owned or {}))
        return self.ask(
            JoinGroup(
                group_id=GROUP,
                member_id=member_id,
                group_instance_id=instance_id,
                session_timeout_ms=fields.pop("session_timeout_ms", 45_000),
                rebalance_timeout_ms=60_000,
                protocol_type=fields.pop("protocol_type", "consumer"),
                protocols=tuple(
                    (name, fields.get("metadata_of", {}).get(name, metadata)) for name in protocols
                ),
                client_id="client",
                client_host="/127.0.0.1",
                ticket=self.ticket,
                fresh_id=f"fresh-{self.ticket}",
            )
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> Fields | int:
        self.ticket += 1
        return self.ask(
            SyncGroup(
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
                protocol_type=fields.pop("protocol_type", "consumer"),
                protocol_name=fields.pop("protocol_name", "range"),
                assignments=tuple((assignments or {}).items()),
                ticket=self.ticket,
                **fields,
            )
        )

    def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        reply = self.ask(
            Heartbeat(
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            )
        )
        assert isinstance(reply, dict)
        return reply["error_code"]

    def leave(self, *members: Leaving | str) -> Fields:
        rows = tuple(Leaving(who) if isinstance(who, str) else who for who in members)
        reply = self.ask(LeaveGroup(group_id=GROUP, members=rows))
        assert isinstance(reply, dict)
        return reply


def subscription_bytes(
    topics: Sequence[str], owned: dict[str, Sequence[int]], version: int = 3
) -> bytes:
    out = Writer()
    out.int16(version)
    out.int32(len(topics))
    for topic in topics:
        out.string(topic)
    out.int32(-1)
    out.int32(len(owned))
    for topic, partitions in owned.items():
        out.string(topic)
        out.int32(len(partitions))
        for partition in partitions:
            out.int32(partition)
    out.int32(-1)
    out.string(None)
    return bytes(out.data)
