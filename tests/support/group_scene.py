"""A group coordinator without shells: one machine, its log as a list, its timers on a clock that a test moves.

Does with a Decision what `txn/runtime/shard.py` does, except that everything is committed at once.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import (
    Commit,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
    Wanted,
)
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.groups_machine import GroupsMachine
from fencepost.txn.groups.records import NO_TOPIC_ID
from fencepost.txn.groups.registry import decode
from fencepost.txn.runtime.decision import Answer, CancelTimer, Decision, Parked, SetTimer
from fencepost.txn.runtime.timers import Timers


class NoConsumerGroups:
    """Stands where the machine of the new protocol stands, and knows no group."""

    def decide(self, command: Any, now_ms: int) -> Decision:
        return Decision(reply={"error_code": ErrorCode.unsupported_version})

    def apply(self, change: Any) -> None:
        raise AssertionError(f"not a classic record: {change}")

    def tick(self, key: Any, now_ms: int) -> Decision:
        raise AssertionError(f"a timer that nobody set: {key}")

    def loaded(self, now_ms: int) -> Decision:
        return Decision()

    def woken(self, group_id: str, now_ms: int) -> Decision:
        return Decision()

    def group_ids(self) -> Iterable[str]:
        return ()

    def has(self, group_id: str) -> bool:
        return False


class Scene:
    def __init__(
        self, config: GroupConfig | None = None, consumer: Any = None, now_ms: int = 1_000_000
    ) -> None:
        self.config = config or GroupConfig()
        self.consumer = consumer or NoConsumerGroups()
        self.now_ms = now_ms
        self.machine = GroupsMachine(self.config, self.consumer, self.elapsed)
        self.timers = Timers()
        self.log: list[tuple[bytes, bytes | None, int]] = []  # key, value, producer id
        self.markers: list[tuple[int, int, bool]] = []  # before which record, producer id, commit
        self.answers: dict[int, dict[str, Any]] = {}
        self.parked: set[int] = set()
        self.ticket = 0
        self.fresh = 0
        self._take(self.machine.loaded(now_ms))

    def elapsed(self) -> float:
        return self.now_ms / 1000

    # -- what a shard does -----------------------------------------------------------------------

    def do(self, command: Any) -> Any:
        """The reply, or Parked: then it will be in `answers`, by its ticket."""
        decision = self.machine.decide(command, self.now_ms)
        self._take(decision)
        return decision.reply

    def pass_ms(self, passed_ms: int) -> None:
        """Let time go by, timer by timer."""
        until_ms = self.now_ms + passed_ms
        while True:
            next_ms = self.timers.next_ms()
            if next_ms is None or next_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            for _, key in self.timers.due(self.now_ms, 1):
                self._take(self.machine.tick(key, self.now_ms))
        self.now_ms = until_ms

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.markers.append((len(self.log), producer_id, commit))
        self.machine.end_transaction(producer_id, commit=commit)

    def reload(self) -> None:
        """Another coordinator takes over and has nothing but the log."""
        self.machine = GroupsMachine(self.config, type(self.consumer)(), self.elapsed)
        self.timers = Timers()
        self.parked.clear()
        replay(self.machine, self.log, self.markers)
        self._take(self.machine.loaded(self.now_ms))

    def _take(self, decision: Decision) -> None:
        producer_id = -1 if decision.producer is None else decision.producer.producer_id
        for record in decision.records:
            self.machine.apply(record, len(self.log), producer_id)
            self.log.append((*record.encode(), producer_id))
        for step in decision.steps:
            self.machine.apply(step)
        if isinstance(decision.reply, Parked):
            assert decision.reply.ticket not in self.parked
            self.parked.add(decision.reply.ticket)
        for effect in decision.effects:
            match effect:
                case Answer(ticket, fields):
                    self.parked.remove(ticket)
                    self.answers[ticket] = fields
                case SetTimer(key, delay_ms):
                    self.timers.set("scene", key, self.now_ms + delay_ms)
                case CancelTimer(key):
                    self.timers.cancel("scene", key)

    # -- what clients say ------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        client: str = "c",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
    ) -> Any:
        self.ticket += 1
        self.fresh += 1
        command = JoinGroup(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            client_id=client,
            client_host="/127.0.0.1",
            requires_known_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            ticket=self.ticket,
            fresh_id=f"{self.fresh}",
        )
        return self.do(command)

    def sync(
        self,
        member_id: str,
        generation: int,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        assign: Sequence[tuple[str, bytes]] = (),
    ) -> Any:
        self.ticket += 1
        command = SyncGroup(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(assign),
            ticket=self.ticket,
        )
        return self.do(command)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        command = Heartbeat(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.do(command)["error_code"]

    def leave(self, *members: str | tuple[str, str], group: str = "g") -> list[ErrorCode]:
        who = tuple(Leaving(m) if isinstance(m, str) else Leaving(*m) for m in members)
        reply = self.do(LeaveGroup(group_id=group, members=who))
        assert reply["error_code"] is ErrorCode.none
        return [row["error_code"] for row in reply["members"]]

    def commit(
        self,
        *positions: tuple[str, int, int],
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        version: int = 9,
        retention_ms: int = -1,
    ) -> list[ErrorCode]:
        command = OffsetCommit(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            api_version=version,
            commits=tuple(
                Commit(topic, NO_TOPIC_ID, partition, offset, -1, metadata)
                for topic, partition, offset in positions
            ),
        )
        reply: list[ErrorCode] = self.do(command)
        return reply

    def commit_in_transaction(
        self,
        producer_id: int,
        *positions: tuple[str, int, int],
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
    ) -> list[ErrorCode]:
        command = TxnOffsetCommit(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            producer_id=producer_id,
            producer_epoch=0,
            commits=tuple(
                Commit(topic, NO_TOPIC_ID, partition, offset, -1, "")
                for topic, partition, offset in positions
            ),
        )
        reply: list[ErrorCode] = self.do(command)
        return reply

    def fetch(
        self,
        topic: str | None = None,
        *partitions: int,
        group: str = "g",
        stable: bool = False,
    ) -> dict[tuple[str, int], int | ErrorCode]:
        """Offsets by partition, or the error in place of the offset."""
        wanted = None if topic is None else (Wanted(topic, NO_TOPIC_ID, partitions),)
        reply = self.do(OffsetFetch(group_id=group, topics=wanted, require_stable=stable))
        assert reply["error_code"] is ErrorCode.none
        return {
            (row["name"], part["partition_index"]): part["committed_offset"]
            if part["error_code"] is ErrorCode.none
            else part["error_code"]
            for row in reply["topics"]
            for part in row["partitions"]
        }

    # -- shortcuts -------------------------------------------------------------------------------

    def answer(self, parked: Any) -> dict[str, Any]:
        """What a parked request was answered."""
        assert isinstance(parked, Parked), parked
        return self.answers[parked.ticket]

    def is_waiting(self, parked: Any) -> bool:
        return isinstance(parked, Parked) and parked.ticket in self.parked

    def enter(self, *, client: str = "c", **join: Any) -> tuple[str, Any]:
        """A dynamic member's two JoinGroups: its id, and what the second is answered by."""
        reply = self.join(client=client, **join)
        assert reply["error_code"] is ErrorCode.member_id_required
        member_id = reply["member_id"]
        return member_id, self.join(member_id, client=client, **join)

    def stable(self, count: int = 2, **join: Any) -> list[str]:
        """A group in which `count` dynamic members have their first assignment; the first one leads."""
        entered = [self.enter(client=f"c{i}", **join) for i in range(count)]
        while any(self.is_waiting(parked) for _, parked in entered):
            self.pass_ms(1_000)
        ids = [member_id for member_id, _ in entered]
        answered = self.answer(entered[0][1])
        generation, name = answered["generation_id"], answered["protocol_name"]
        group = join.get("group", "g")
        kind = join.get("protocol_type", "consumer")
        common = {"group": group, "protocol_name": name, "protocol_type": kind}
        for follower in ids[1:]:
            self.sync(follower, generation, **common)
        assign = [(member_id, f"to {member_id}".encode()) for member_id in ids]
        self.sync(ids[0], generation, assign=assign, **common)
        return ids

    def phase(self, group: str = "g") -> str:
        found = self.machine.classic.groups.get(group)
        return "none" if found is None else found.phase.value

    def generation(self, group: str = "g") -> int:
        return self.machine.classic.groups[group].generation_id


def replay(
    machine: GroupsMachine,
    log: Sequence[tuple[bytes, bytes | None, int]],
    markers: Sequence[tuple[int, int, bool]] = (),
) -> None:
    """The plain way to load: every record, one by one, in order."""
    ends = list(markers)
    for offset, (key, value, producer_id) in enumerate(log):
        while ends and ends[0][0] <= offset:
            _, ended, commit = ends.pop(0)
            machine.end_transaction(ended, commit=commit)
        record = decode(key, value)
        if record is not None:
            machine.apply(record, offset, producer_id)
    for _, ended, commit in ends:
        machine.end_transaction(ended, commit=commit)
