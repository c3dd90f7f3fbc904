"""KIP-392, end to end: a consumer that names its rack reads from the replica there, as far as that is committed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, ClusterNodes, node_name
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch, read_records
from fencepost.node.broker import Broker
from fencepost.node.read_replica_policy import RACK_AWARE
from fencepost.node.sent_away import BACK_WITHIN_S, REMEMBERED_MAX, SentAway

TOPIC = "orders"


class RackedNodes(ClusterNodes):
    """Node i stands in rack `rack-i`."""

    def start(self, node_id: int) -> Broker:
        self._config = [f"replica.selector.class={RACK_AWARE}", f"broker.rack=rack-{node_id}"]
        return super().start(node_id)


class Scene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes = RackedNodes(world, 3)
        self.env = world.node("client")
        self.wires: dict[int, WireClient] = {}

    async def start(self) -> None:
        self.nodes.start_all()
        await self.nodes.until_ready()
        self.wires = {
            id_: WireClient(self.env, node_name(id_), CLIENT_PORT) for id_ in self.nodes.ids
        }
        reply = await self.wires[1].request(
            ApiKey.create_topics,
            timeout=10_000,
            topics=[{"name": TOPIC, "num_partitions": 1, "replication_factor": 3, "configs": []}],
        )
        assert reply.topics[0].error_code is ErrorCode.none
        self.topic_id = reply.topics[0].topic_id
        await self.nodes.until_whole()

    @property
    def leader(self) -> int:
        leader = self.nodes.leader(TOPIC, 0)
        assert leader is not None
        return leader

    @property
    def epoch(self) -> int:
        state = self.nodes.partition(TOPIC, 0)
        assert state is not None
        return int(state.leader_epoch)

    @property
    def follower(self) -> int:
        return next(id_ for id_ in self.nodes.ids if id_ != self.leader)

    async def produce(self, *values: bytes) -> int:
        records = [Record(index, index, None, value, ()) for index, value in enumerate(values)]
        reply = await self.wires[self.leader].request(
            ApiKey.produce,
            acks=-1,
            timeout=10_000,
            topic_data=[
                {
                    "topic_id": self.topic_id,
                    "partition_data": [{"index": 0, "records": build_batch(records)}],
                }
            ],
        )
        answer = reply.responses[0].partition_responses[0]
        assert answer.error_code is ErrorCode.none
        return int(answer.base_offset)

    async def fetch(
        self,
        node: int,
        offset: int,
        *,
        rack: str = "",
        version: int | None = None,
        wait: int = 0,
        wire: WireClient | None = None,
        leader_epoch: int = -1,
    ) -> Any:
        reply = await (wire or self.wires[node]).request(
            ApiKey.fetch,
            version,
            max_wait=wait,
            min_bytes=1,
            max_bytes=1 << 20,
            rack_id=rack,
            topics=[
                {
                    "topic_id": self.topic_id,
                    "topic": TOPIC,
                    "partitions": [
                        {
                            "partition": 0,
                            "fetch_offset": offset,
                            "partition_max_bytes": 1 << 20,
                            "current_leader_epoch": leader_epoch,
                        }
                    ],
                }
            ],
        )
        return reply.responses[0].partitions[0]

    def high_watermark(self, node: int) -> int:
        partition = self.nodes.broker(node).replicas.partition(TopicPartition(TOPIC, 0))
        assert not isinstance(partition, ErrorCode)
        return partition.high_watermark


def played(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole(scene: Scene) -> None:
        await scene.start()
        await scenario(scene)

    with World(1) as world:
        scene = Scene(world)
        world.run(whole(scene))


def values_of(answer: Any) -> list[bytes | None]:
    return [record.value for record in read_records(bytes(answer.records))]


async def settled(scene: Scene, node: int, end: int) -> None:
    async with asyncio.timeout(10):
        while scene.high_watermark(node) < end:
            await asyncio.sleep(0.01)


def test_a_leader_names_the_replica_in_the_consumers_rack_and_that_one_serves_it() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.produce(b"a", b"b")
        leader, follower = scene.leader, scene.follower
        sent_away = await scene.fetch(leader, 0, rack=f"rack-{follower}")
        assert sent_away.error_code is ErrorCode.none
        assert sent_away.preferred_read_replica == follower
        assert not sent_away.records
        assert sent_away.high_watermark == 2
        await settled(scene, follower, 2)
        served = await scene.fetch(follower, 0, rack=f"rack-{follower}")
        assert served.error_code is ErrorCode.none
        assert served.preferred_read_replica == -1
        assert values_of(served) == [b"a", b"b"]
        for rack in ("", f"rack-{leader}", "rack-elsewhere"):
            at_home = await scene.fetch(leader, 0, rack=rack)
            assert at_home.preferred_read_replica == -1
            assert values_of(at_home) == [b"a", b"b"]

    played(scenario)


def test_a_follower_serves_who_knows_racks_and_nobody_else() -> None:
    """Kafka's FetchParams.fetchOnlyLeader: clients from version 11 on, whether or not they name a rack."""

    async def scenario(scene: Scene) -> None:
        await scene.produce(b"a")
        follower = scene.follower
        await settled(scene, follower, 1)
        for version in (11, 12, 13, 17):
            answer = await scene.fetch(follower, 0, version=version)
            assert (answer.error_code, values_of(answer)) == (ErrorCode.none, [b"a"]), version
        for version in (4, 10):
            answer = await scene.fetch(follower, 0, version=version)
            assert answer.error_code is ErrorCode.not_leader_or_follower, version

    played(scenario)


def test_a_consumer_that_waits_at_a_follower_is_woken_by_what_is_committed() -> None:
    async def scenario(scene: Scene) -> None:
        follower = scene.follower
        waiting = asyncio.ensure_future(scene.fetch(follower, 0, wait=20_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        started = scene.world.loop.time()
        await scene.produce(b"new")
        assert values_of(await waiting) == [b"new"]
        assert scene.world.loop.time() - started < 2.0

    played(scenario)


def test_a_follower_shows_nothing_that_is_not_committed_as_far_as_it_knows() -> None:
    """It has the records, but the leader that would tell it of the commit is cut off from it."""

    async def scenario(scene: Scene) -> None:
        await scene.produce(b"a")
        leader, follower = scene.leader, scene.follower
        await settled(scene, follower, 1)
        others = [node_name(id_) for id_ in scene.nodes.ids if id_ != leader]
        for (
            other
        ) in others:  # the followers' acknowledgements reach nobody, so nothing more commits
            scene.world.net.cut(other, node_name(leader), one_way=True)
        producing = asyncio.ensure_future(scene.produce(b"uncommitted"))
        log = scene.nodes.broker(follower).replicas.partitions[TopicPartition(TOPIC, 0)].log
        async with asyncio.timeout(1.0):
            while log.log_end_offset < 2:
                await asyncio.sleep(0.01)
        answer = await scene.fetch(follower, 0)
        assert values_of(answer) == [b"a"]
        assert answer.high_watermark == 1
        ahead = await scene.fetch(follower, 2)
        assert (ahead.error_code, bytes(ahead.records)) == (ErrorCode.none, b"")
        beyond = await scene.fetch(follower, 3, rack=f"rack-{follower}", leader_epoch=scene.epoch)
        assert beyond.error_code is ErrorCode.offset_out_of_range
        producing.cancel()

    played(scenario)


def test_a_consumer_stays_with_the_leader_while_the_replica_in_its_rack_is_not_in_sync() -> None:
    async def scenario(scene: Scene) -> None:
        leader, follower = scene.leader, scene.follower
        scene.world.kill(node_name(follower))
        await scene.nodes.until(
            "the dead replica leaves the ISR",
            lambda: "" if follower not in scene.nodes.partition(TOPIC, 0).isr else "it is in it",  # type: ignore[union-attr]
            within_s=20,
        )
        assert scene.leader == leader
        await scene.produce(b"a")
        answer = await scene.fetch(leader, 0, rack=f"rack-{follower}")
        assert answer.preferred_read_replica == -1
        assert values_of(answer) == [b"a"]

    played(scenario)


def test_a_consumer_that_its_replica_can_not_serve_is_served_by_the_leader() -> None:
    """Retention is each replica's own: the follower has deleted what the leader still has."""

    async def scenario(scene: Scene) -> None:
        for number in range(4):
            await scene.produce(b"%d" % number)
        leader, follower = scene.leader, scene.follower
        rack = f"rack-{follower}"
        await settled(scene, follower, 4)
        log = scene.nodes.broker(follower).replicas.partitions[TopicPartition(TOPIC, 0)].log
        log.delete_records_before(Offset(2))
        assert (await scene.fetch(leader, 0, rack=rack)).preferred_read_replica == follower
        refused = await scene.fetch(follower, 0, rack=rack)
        assert refused.error_code is ErrorCode.offset_out_of_range
        back = await scene.fetch(leader, 0, rack=rack)
        assert back.preferred_read_replica == -1
        assert values_of(back)[0] == b"0"
        assert values_of(await scene.fetch(leader, 1, rack=rack))[0] == b"1"
        # Half a minute later it is sent again, and served there.
        await asyncio.sleep(31)
        assert (await scene.fetch(leader, 2, rack=rack)).preferred_read_replica == follower
        assert values_of(await scene.fetch(follower, 2, rack=rack))[0] == b"2"

    played(scenario)


def test_a_follower_calls_nothing_out_of_range_for_who_takes_it_for_the_leader() -> None:
    """1. node 1 leads, sleeps and is deposed   2. it wakes, hears of it, and has still to copy what came since   3. a client that has
    metadata of before, and names neither a leader epoch nor a rack, asks it for what came since: it must look for the leader, and not
    go where auto.offset.reset says, or give the partition up (sarama). Nor for what is deleted here alone. Who names a rack may hold
    it for the leader too, unless it knows the leader's epoch."""

    async def scenario(scene: Scene) -> None:
        for number in range(4):
            await scene.produce(b"%d" % number)
        leader, follower = scene.leader, scene.follower
        await settled(scene, follower, 4)
        log = scene.nodes.broker(follower).replicas.partitions[TopicPartition(TOPIC, 0)].log
        log.delete_records_before(Offset(2))
        for offset in (0, 5):
            answer = await scene.fetch(follower, offset)
            assert answer.error_code is ErrorCode.not_leader_or_follower, offset
            assert answer.current_leader.leader_id == leader
            rack = f"rack-{follower}"
            sent = await scene.fetch(follower, offset, rack=rack, leader_epoch=scene.epoch)
            assert sent.error_code is ErrorCode.offset_out_of_range, offset
        behind = await scene.fetch(follower, 5, rack=f"rack-{follower}")
        assert behind.error_code is ErrorCode.not_leader_or_follower
        assert behind.current_leader.leader_id == leader
        deleted = await scene.fetch(follower, 0, rack=f"rack-{follower}")
        assert deleted.error_code is ErrorCode.offset_out_of_range, "it asks the leader next"
        assert values_of(await scene.fetch(follower, 2)) == [b"2"]
        gone = await scene.fetch(leader, 5)
        assert gone.error_code is ErrorCode.offset_out_of_range

    played(scenario)


def test_who_was_sent_away_is_remembered_by_its_connection_and_not_for_ever() -> None:
    sent = SentAway()
    a, b = ("host", 1, TOPIC, 0), ("host", 2, TOPIC, 0)
    assert sent.may_send(a, 5, now=0.0)
    assert sent.may_send(b, 5, now=1.0), "another consumer with the same offset"
    assert sent.may_send(a, 6, now=1.0), "it was served, and its lease is over"
    assert not sent.may_send(a, 6, now=2.0)
    assert not sent.may_send(a, 9, now=31.0)
    assert sent.may_send(a, 9, now=32.0)
    assert sent.may_send(a, 9, now=32.0 + BACK_WITHIN_S), "an idle partition, not a refusal"
    for port in range(REMEMBERED_MAX):
        sent.may_send(("host", port, "other", 0), 0, now=50.0)
    assert sent.may_send(a, 9, now=51.0), "forgotten"


def test_a_new_leader_that_does_not_know_yet_what_was_committed_says_so() -> None:
    """KIP-207: its end is not the end, and clients before version 5 know another error for that."""

    async def scenario(scene: Scene) -> None:
        await scene.produce(b"a", b"b")
        leader = scene.leader
        partition = scene.nodes.broker(leader).replicas.partition(TopicPartition(TOPIC, 0))
        assert not isinstance(partition, ErrorCode)
        partition.machine.high_watermark = 1
        partition.machine.epoch_start_offset = 2
        for version, error in (
            (4, ErrorCode.leader_not_available),
            (5, ErrorCode.offset_not_available),
        ):
            reply = await scene.wires[leader].request(
                ApiKey.list_offsets,
                version,
                topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
            )
            assert reply.topics[0].partitions[0].error_code is error

    played(scenario)


def test_offsets_are_asked_of_the_leader_alone() -> None:
    async def scenario(scene: Scene) -> None:
        reply = await scene.wires[scene.follower].request(
            ApiKey.list_offsets,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )
        answer = reply.topics[0].partitions[0]
        assert answer.error_code is ErrorCode.not_leader_or_follower

    played(scenario)
