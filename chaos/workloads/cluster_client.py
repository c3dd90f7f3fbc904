"""A good client's view of a cluster, on the small wire client: it finds leaders by Metadata and looks again when told.

As Java's and librdkafka's it keeps the newest leader epoch that it has heard of: a node that lags behind in the metadata
log must not send it back to an old leader for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.batch import BatchRefused, compute_crc, headers_of
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record

from .txn_dressed import PLAIN, Plain
from .txn_keys import Written

REQUEST_TIMEOUT_S: Final = 4.0
METADATA_TIMEOUT_S: Final = 2.0
LATEST: Final = -1  # ListOffsets' special timestamps
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
Address = tuple[str, int]

# The client's picture of who leads may be old: look again, then go on.
LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        # Its leader may be cut off from the others, and not know of the one that was elected meanwhile.
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
    }
)


class Damaged(Trouble):
    """A node has served bytes that are not what was written, and the client has seen it."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, as far as the client has heard; or one that follows, which is asked as a consumer of its rack does."""

    node_id: int
    leader_epoch: int
    topic_id: UUID
    wire: WireClient
    follows: bool = False


class ClusterClient:
    """`await refresh(topic)`, then `leader(topic, partition)`; `wire(node)` and `any()` for what any node answers."""

    def __init__(
        self,
        env: Env,
        bootstrap: Sequence[Address],
        *,
        name: str,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.env = env
        self.name = name
        self.timeout_s = timeout_s
        # Answers with bytes that were not what was written, and refusals for that reason.
        self.damaged = 0
        self.dressed: Plain = PLAIN  # how its records look
        # So often it reads from a replica that follows (KIP-392), and so often it has asked one and was served by one.
        self.follower_odds = 0.0
        self.followers_asked = 0
        self.followers_read = 0
        self._bootstrap = list(bootstrap)
        self._wires: dict[Address, WireClient] = {}
        self._nodes: dict[int, Address] = {}
        self._known: list[Address] = []  # all of these, in order; made again when it is empty
        self._topic_ids: dict[str, UUID] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}  # node id, leader epoch
        self._replicas: dict[tuple[str, int], list[int]] = {}

    @property
    def bootstrap(self) -> Sequence[Address]:
        return tuple(self._bootstrap)

    def wire_to(self, address: Address) -> WireClient:
        wire = self._wires.get(address)
        if wire is None:
            wire = WireClient(self.env, *address, client_id=self.name, timeout_s=self.timeout_s)
            self._wires[address] = wire
        return wire

    def any(self) -> WireClient:
        """Some node, another one each time: bootstrap addresses and those that Metadata named."""
        if not self._known:
            self._known = sorted({*self._bootstrap, *self._nodes.values()})
        return self.wire_to(self.env.rng.choice(self._known))

    async def refresh(self, topic: str) -> bool:
        """Ask any node about a topic; whether it has a leader for each of its partitions. Trouble: nobody there."""
        reply = await self.any().request(
            ApiKey.metadata,
            topics=[{"name": topic}],
            allow_auto_topic_creation=False,
            timeout_s=METADATA_TIMEOUT_S,
        )
        for broker in reply.brokers:
            self._nodes[broker.node_id] = (broker.host, broker.port)
        self._known = []
        found = reply.topics[0]
        if found.error_code is not ErrorCode.none:
            return False
        if self._topic_ids.get(topic) != found.topic_id:
            self._topic_ids[topic] = found.topic_id
            self._leaders = {at: who for at, who in self._leaders.items() if at[0] != topic}
        for each in found.partitions:
            self._learn(topic, each.partition_index, each.leader_id, each.leader_epoch)
            self._replicas[topic, each.partition_index] = list(each.replica_nodes)
        return all(each.leader_id >= 0 for each in found.partitions)

    def _learn(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        known = self._leaders.get((topic, partition), (-1, -1))
        if leader_epoch >= known[1]:
            self._leaders[topic, partition] = (leader, leader_epoch)

    def topic_id(self, topic: str) -> UUID | None:
        """As far as the client has heard."""
        return self._topic_ids.get(topic)

    def partitions(self, topic: str) -> int:
        """How many the client knows of."""
        return sum(1 for name, _ in self._leaders if name == topic)

    def leader(self, topic: str, partition: int) -> Leader | None:
        node_id, leader_epoch = self._leaders.get((topic, partition), (-1, -1))
        address = self._nodes.get(node_id)
        if address is None:
            return None
        return Leader(node_id, leader_epoch, self._topic_ids[topic], self.wire_to(address))

    async def leader_now(self, topic: str, partition: int) -> Leader:
        """The leader, asked for when none is known. Trouble (REFUSED) when there is none now."""
        found = self.leader(topic, partition)
        if found is None:
            await self.refresh(topic)
            found = self.leader(topic, partition)
        if found is None:
            raise Trouble(f"{topic}-{partition} has no leader", Outcome.REFUSED)
        return found

    async def whom_to_read(self, topic: str, partition: int) -> Leader:
        """The leader, or now and then another replica."""
        leader = await self.leader_now(topic, partition)
        if not self.follower_odds or self.env.rng.random() >= self.follower_odds:
            return leader
        replicas = self._replicas.get((topic, partition), ())
        others = [each for each in replicas if each != leader.node_id and each in self._nodes]
        if not others:
            return leader
        self.followers_asked += 1
        node_id = self.env.rng.choice(others)
        wire = self.wire_to(self._nodes[node_id])
        return replace(leader, node_id=node_id, wire=wire, follows=True)

    def was_served(self, leader: Leader) -> None:
        """By an answer without an error."""
        self.followers_read += leader.follows

    def forget(self, topic: str, partition: int, leader: Leader) -> None:
        """This leader did not answer, or not as one: ask before the next request. Its epoch is remembered."""
        if leader.follows:
            known = self.leader(topic, partition)
            if known is not None:
                self.forget(topic, partition, known)
        elif self._leaders.get((topic, partition)) == (leader.node_id, leader.leader_epoch):
            self._leaders[topic, partition] = (-1, leader.leader_epoch)

    async def drop(self, wire: WireClient) -> None:
        """This connection is given up, as clients do that waited too long: the next request opens another one."""
        if self._wires.get(wire.address) is wire:
            del self._wires[wire.address]
        await wire.close()

    def served_damage(self, _key: str, _offset: int, _damage: Damaged) -> None:
        """A fetch from there brought bytes that nobody wrote."""
        self.damaged += 1

    def refused_as_damaged(self) -> None:
        """CORRUPT_MESSAGE: what was asked for has rotted on the only replica in sync, whose node says so instead of serving it.
        Java's consumer tells its application, which asks again: another replica that comes back has all of it."""
        self.damaged += 1

    def dress(
        self, place: tuple[str, int], payloads: Sequence[bytes | Written]
    ) -> tuple[list[Record], int]:
        """A batch's records, and its codec."""
        return self.dressed.records(place, self.env.clock.now_ms(), payloads)

    async def close(self) -> None:
        for wire in self._wires.values():
            await wire.close()


async def fetch(
    leader: Leader,
    partition: int,
    offset: int,
    *,
    max_wait_ms: int = 200,
    epoch: int = -1,
    isolation_level: int = READ_UNCOMMITTED,
) -> Any:
    """One partition's answer."""
    wanted = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": epoch,
    }
    reply = await leader.wire.request(
        ApiKey.fetch,
        max_wait=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation_level,
        topics=[{"topic_id": leader.topic_id, "partitions": [wanted]}],
        forgotten_topics_data=[],
    )
    if reply.error_code is not ErrorCode.none or not reply.responses:
        raise Trouble(f"fetch: {reply.error_code.name}", Outcome.REFUSED)
    answer = reply.responses[0].partitions[0]
    checked(leader, partition, answer.records)
    return answer


def checked(leader: Leader, partition: int, records: bytes | memoryview | None) -> None:
    """As Java's consumer does (`check.crcs`)."""
    if not records:
        return
    whole = memoryview(records)
    try:
        rotten = [
            header.base_offset
            for at, header in headers_of(whole)
            if compute_crc(whole, at, header.size) != header.crc
        ]
    except BatchRefused as refused:
        raise Damaged(f"node {leader.node_id} served what is no batch: {refused}") from refused
    if rotten:
        where = f"partition {partition} at offset {rotten[0]}"
        raise Damaged(f"node {leader.node_id} served a damaged batch of {where}")


async def end_offset(
    leader: Leader,
    topic: str,
    partition: int,
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timestamp: int = LATEST,
) -> int | None:
    """What ListOffsets calls the latest (or the earliest); None when the leader does not say."""
    wanted = {
        "partition_index": partition,
        "current_leader_epoch": leader.leader_epoch,
        "timestamp": timestamp,
    }
    reply = await leader.wire.request(
        ApiKey.list_offsets,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": [wanted]}],
    )
    answer = reply.topics[0].partitions[0]
    return answer.offset if answer.error_code is ErrorCode.none else None
