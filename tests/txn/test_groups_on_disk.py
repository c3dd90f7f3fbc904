"""Groups on real partitions of a simulated machine that is stopped, killed, and loses its power."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fencepost.chaos.sim.disk_faults import DiskFaults
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from fencepost.cluster.metadata.image import ClusterImage, ConfigType, PartitionState, TopicState
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.render import render_request
from fencepost.replication.manager import ReplicaManager
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.service import GroupService
from fencepost.txn.runtime.decision import Producer
from fencepost.txn.runtime.partition_log import LocalPartitions

E = ErrorCode
ME = BrokerId(1)
# There is no coordinator here that could be asked about a transaction.
NOBODY_VERIFIES = {"transaction.partition.verification.enable": "false"}
PARTITIONS = 3


def image() -> ClusterImage:
    made = ClusterImage()
    for number, (name, count) in enumerate(((GROUP_OFFSETS_TOPIC, PARTITIONS), ("t", 2)), 1):
        states = [
            PartitionState(i, ME, LeaderEpoch(0), PartitionEpoch(0), (ME,), (ME,))
            for i in range(count)
        ]
        topic = TopicState(name, UUID(int=number), states)
        made.topics[name] = topic
        made.topics_by_id[topic.topic_id] = topic
    made.configs[ConfigType.TOPIC, GROUP_OFFSETS_TOPIC] = {"cleanup.policy": "compact"}
    return made


class Node:
    def __init__(self, world: World) -> None:
        self.env = world.node("n")
        cluster = image()
        self.replicas = ReplicaManager(self.env, "/data", ME, cluster, NOBODY_VERIFIES)
        self.service = GroupService(
            env=self.env,
            node_id=ME,
            image=cluster,
            partitions=LocalPartitions(self.replicas),
            config=GroupConfig(group_initial_rebalance_delay_ms=0),
            consumer_config=ConsumerConfig(),
            create_topic=self._create,
            confirm_image=self._alone,
        )

    async def _alone(self) -> bool:
        return True

    async def _create(self, name: str) -> None:
        raise AssertionError("it is there")

    async def start(self) -> None:
        await self.replicas.start()
        await self.service.start()
        await asyncio.sleep(1)

    async def stop(self) -> None:
        await self.service.stop()
        await self.replicas.stop()

    async def ask(self, api: str, version: int, **fields: Any) -> Any:
        body = render_request(ApiKey[api], version, fields)
        ctx = SimpleNamespace(api_version=version, client_id="c", client_host="127.0.0.1")
        more = {"verify": self.verify} if api == "txn_offset_commit" else {}
        return await getattr(self.service, api)(ctx, body, **more)

    async def verify(self, _place: TopicPartition) -> ErrorCode:
        return ErrorCode.none

    async def commit(self, offset: int, group_id: str = "g") -> ErrorCode:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": "t", "partitions": [row]}]
        reply = await self.ask("offset_commit", 9, group_id=group_id, member_id="", topics=topics)
        code: ErrorCode = reply["topics"][0]["partitions"][0]["error_code"]
        return code

    async def fetch(self, group_id: str = "g") -> int:
        topics = [{"name": "t", "partition_indexes": [0]}]
        reply = await self.ask("offset_fetch", 7, group_id=group_id, topics=topics)
        assert reply["error_code"] is E.none
        offset: int = reply["topics"][0]["partitions"][0]["committed_offset"]
        return offset

    async def become_stable(self) -> str:
        join = {
            "group_id": "live",
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        member_id = (await self.ask("join_group", 9, member_id="", **join))["member_id"]
        joined = await self.ask("join_group", 9, member_id=member_id, **join)
        synced = await self.ask(
            "sync_group",
            5,
            group_id="live",
            generation_id=joined["generation_id"],
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": member_id, "assignment": b"all"}],
        )
        assert synced["assignment"] == b"all"
        return str(member_id)

    async def heartbeat(self, member_id: str) -> ErrorCode:
        fields = {"group_id": "live", "generation_id": 1, "member_id": member_id}
        code: ErrorCode = (await self.ask("heartbeat", 4, **fields))["error_code"]
        return code


def on(world: World, work: Callable[[Node], Coroutine[Any, Any, Any]]) -> Any:
    """One life of the node. It ends as the test says."""

    async def go() -> Any:
        node = Node(world)
        await node.start()
        return await work(node)

    return world.run(world.on(world.node("n"), go()))


@pytest.mark.parametrize("end", ["stop", "kill", "power"])
def test_what_was_answered_is_there_after_the_node_comes_back(end: str) -> None:
    with World(seed=5) as world:

        async def first(node: Node) -> str:
            for offset in range(20):
                for group in ("g", "h", "i"):
                    assert await node.commit(offset, group) is E.none
            member_id = await node.become_stable()
            if end == "stop":
                await node.stop()
            return member_id

        member_id = on(world, first)
        world.crash("n") if end == "power" else world.kill("n")
        world.restart("n")

        async def second(node: Node) -> None:
            assert [await node.fetch(group) for group in ("g", "h", "i")] == [19, 19, 19]
            assert await node.heartbeat(member_id) is E.none
            assert await node.commit(20) is E.none
            await node.stop()

        on(world, second)


@pytest.mark.parametrize("seed", range(10))
def test_a_commit_that_was_acknowledged_survives_a_power_cut_at_any_moment(seed: int) -> None:
    with World(seed=seed) as world:
        acknowledged = {"g": -1, "h": -1}
        asked = {"g": -1, "h": -1}

        async def busy(node: Node) -> None:
            async def commits(group: str) -> None:
                for offset in range(1_000):
                    asked[group] = offset
                    if await node.commit(offset, group) is E.none:
                        acknowledged[group] = offset

            work = asyncio.gather(commits("g"), commits("h"))
            await asyncio.sleep(world.stream("when").uniform(0.0, 0.5))
            work.cancel()

        on(world, busy)
        world.crash("n")
        world.restart("n")

        async def after(node: Node) -> None:
            for group in ("g", "h"):
                assert acknowledged[group] <= await node.fetch(group) <= asked[group]
            await node.stop()

        on(world, after)


@pytest.mark.parametrize("which", range(1, 10))
def test_a_read_that_fails_while_groups_are_loaded_is_tried_again(which: int, monkeypatch) -> None:
    """Whichever it is: of an index, of a header, or of the batches themselves. A bad spot is no end of a node."""
    with World(seed=7) as world:

        async def first(node: Node) -> None:
            for offset in range(3):
                assert await node.commit(offset) is E.none
            await node.stop()

        on(world, first)
        world.restart("n")

        async def second() -> None:
            node = Node(world)
            await node.replicas.start()
            reads = 0

            def planned_error(_: DiskFaults, kind: str, path: str) -> OSError | None:
                nonlocal reads
                reads += kind == "read" and GROUP_OFFSETS_TOPIC in path
                failed = kind == "read" and reads == which
                return OSError(errno.EIO, "bad", path) if failed else None

            monkeypatch.setattr(DiskFaults, "planned_error", planned_error)
            await node.service.start()
            await asyncio.sleep(10)
            assert reads >= which
            assert await node.fetch() == 2
            await node.stop()

        world.run(world.on(world.node("n"), second()))


def test_a_transaction_that_was_open_at_the_crash_is_ended_after_it() -> None:
    with World(seed=2) as world:
        partition = 0

        async def first(node: Node) -> int:
            await node.commit(1)
            row = {"partition_index": 0, "committed_offset": 9, "committed_metadata": ""}
            stored = await node.ask(
                "txn_offset_commit",
                3,
                transactional_id="x",
                group_id="g",
                producer_id=7,
                producer_epoch=0,
                topics=[{"name": "t", "partitions": [row]}],
            )
            assert stored["topics"][0]["partitions"][0]["error_code"] is E.none
            found = node.service._coordinator.partition_of("g")
            assert found is not None
            return found

        partition = on(world, first)
        world.crash("n")
        world.restart("n")

        async def second(node: Node) -> None:
            assert await node.fetch() == 1
            code = await node.service.end_transaction(
                partition, Producer(7, 0), coordinator_epoch=0, commit=True
            )
            assert code is E.none
            assert await node.fetch() == 9
            await node.stop()

        on(world, second)


@pytest.mark.parametrize("producer_id", [-1, -2])
def test_positions_of_a_transaction_without_a_producer_are_refused(producer_id: int) -> None:
    """Where no coordinator is asked about it. No marker would end it: 1. they count at once, as if there were none
    2. later ones are stored   3. the next coordinator reads those of a transaction last, and they count again."""
    stored = []

    async def first(node: Node) -> None:
        row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        answer = await node.ask(
            "txn_offset_commit",
            3,
            transactional_id="x",
            group_id="g",
            producer_id=producer_id,
            producer_epoch=0,
            topics=[{"name": "t", "partitions": [row]}],
        )
        stored.append(answer["topics"][0]["partitions"][0]["error_code"])
        assert await node.commit(9) is E.none
        await node.stop()

    async def second(node: Node) -> None:
        assert await node.fetch() == 9
        await node.stop()

    with World(seed=2) as world:
        on(world, first)
        world.restart("n")
        on(world, second)
    assert stored == [E.invalid_producer_id_mapping]


def test_a_disk_that_has_room_again_is_waited_for_no_longer_than_that() -> None:
    """Its coordinator is loaded after pauses that grow to five seconds; who commits, and transactions that hold up readers,
    would wait for the rest of one."""

    async def scene(node: Node) -> None:
        files = node.env.machine.disk.files
        assert await node.commit(1) is E.none
        files.capacity = files.used
        for _ in range(60):
            assert await node.commit(2) is not E.none
            await asyncio.sleep(0.5)
        files.capacity = None
        while node.replicas.is_disk_full:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.1)
        assert await node.commit(3) is E.none
        await node.stop()

    with World(seed=6) as world:
        on(world, scene)
