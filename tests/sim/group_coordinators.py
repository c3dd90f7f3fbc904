"""A group whose coordinator moves in a cluster of three, and clients that speak to the node it names: members, producers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, ClusterNodes, node_name
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.transaction_watch import TransactionWatch
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

E = ErrorCode
GROUP = "g"
SESSION_MS = 60_000


class Groups:
    """Three nodes, watched, and a client that speaks to the one it names."""

    def __init__(self, world: World, nodes: int) -> None:
        self.world = world
        self.watch = TransactionWatch(world)
        config = ["group.initial.rebalance.delay.ms=0"]
        self.nodes = ClusterNodes(world, nodes, config=config, on_start=self.watch.hook)
        self.watch.nodes = self.nodes
        self._wires: dict[int, WireClient] = {}
        self.joined: Any = None

    @property
    def env(self) -> SimEnv:
        return self.world.node("client")

    async def ask(self, node_id: int, key: ApiKey, version: int, **fields: Any) -> Any:
        wire = self._wires.get(node_id)
        if wire is None:
            address = (node_name(node_id), CLIENT_PORT)
            wire = self._wires[node_id] = WireClient(self.env, *address, timeout_s=8.0)
        return await self.world.on(self.env, wire.request(key, version, **fields))

    def forget(self, node_id: int) -> None:
        """The connection to it: the node has ended."""
        self._wires.pop(node_id, None)

    async def coordinator(self, via: int) -> int | ErrorCode:
        reply = await self.ask(
            via, ApiKey.find_coordinator, 4, key_type=0, coordinator_keys=[GROUP]
        )
        (found,) = reply.coordinators
        return found.error_code if found.error_code is not E.none else int(found.node_id)

    async def commit(self, node_id: int, offset: int) -> ErrorCode:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        joined: dict[str, Any] = {"member_id": ""}
        if self.joined is not None:
            joined = self._me()
            joined["generation_id_or_member_epoch"] = joined.pop("generation_id")
        reply = await self.ask(
            node_id,
            ApiKey.offset_commit,
            8,
            group_id=GROUP,
            **joined,
            topics=[{"name": GROUP_OFFSETS_TOPIC, "partitions": [row]}],
        )
        code: ErrorCode = reply.topics[0].partitions[0].error_code
        return code

    async def fetch(self, node_id: int) -> int | ErrorCode:
        topics = [{"name": GROUP_OFFSETS_TOPIC, "partition_indexes": [0]}]
        reply = await self.ask(node_id, ApiKey.offset_fetch, 7, group_id=GROUP, topics=topics)
        if reply.error_code is not E.none:
            code: ErrorCode = reply.error_code
            return code
        return int(reply.topics[0].partitions[0].committed_offset)

    async def fetch_or_nothing(self, node_id: int) -> int | ErrorCode | None:
        """None: no answer in the time that its client waits."""
        try:
            return await self.fetch(node_id)
        except Trouble:
            wire = self._wires.pop(node_id)  # on which the question waits, and what comes behind it
            await self.world.on(self.env, wire.close())
            return None

    async def join(self, node_id: int, member_id: str = "") -> Any:
        return await self.ask(
            node_id,
            ApiKey.join_group,
            7,
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )

    async def become_stable(self, node_id: int) -> None:
        first = await self.join(node_id)
        assert first.error_code is E.member_id_required
        self.joined = await self.join(node_id, first.member_id)
        assert self.joined.error_code is E.none
        assignment = {"member_id": self.joined.member_id, "assignment": b"all"}
        synced = await self.ask(
            node_id,
            ApiKey.sync_group,
            5,
            group_id=GROUP,
            **self._me(),
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
        assert synced.assignment == b"all"

    async def beat(self, node_id: int) -> ErrorCode:
        reply = await self.ask(node_id, ApiKey.heartbeat, 4, group_id=GROUP, **self._me())
        code: ErrorCode = reply.error_code
        return code

    def _me(self) -> dict[str, Any]:
        return {"member_id": self.joined.member_id, "generation_id": self.joined.generation_id}

    # -- the cluster ---------------------------------------------------------------------------------

    def replicas_of_group(self) -> list[int]:
        image, partition = self.nodes.image, self.partition
        assert image is not None
        state = image.topics[GROUP_OFFSETS_TOPIC].partitions[partition]
        return [int(each) for each in state.replicas]

    @property
    def partition(self) -> int:
        found = self.nodes.broker(self.nodes.up()[0]).groups._coordinator.partition_of(GROUP)
        assert found is not None
        return found

    def others(self, node_id: int) -> list[int]:
        return [int(each) for each in self.nodes.ids if each != node_id]

    async def settle(self) -> int:
        """All nodes serve, the topic is there; who coordinates the group."""
        self.nodes.start_all()
        await self.nodes.until_ready()
        found: int | ErrorCode = E.coordinator_not_available
        while isinstance(found, ErrorCode):
            found = await self.coordinator(1)
            await asyncio.sleep(0.05)
        await self.nodes.until_whole()
        await self.until(found, E.none, self._committing(found, 1))
        return found

    def _committing(self, node_id: int, offset: int) -> Callable[[], Awaitable[ErrorCode]]:
        return lambda: self.commit(node_id, offset)

    async def until(
        self, node_id: int, wanted: Any, question: Callable[[], Awaitable[Any]], within_s: float = 5
    ) -> None:
        """Ask until the answer is this one; until then it may only be that nobody knows yet."""
        wait = (E.coordinator_load_in_progress, E.not_coordinator, E.coordinator_not_available)
        end = self.world.loop.time() + within_s
        while (answer := await question()) is not wanted and answer != wanted:
            assert answer in wait, answer
            assert self.world.loop.time() < end, f"node {node_id}: {answer} after {within_s} s"
            await asyncio.sleep(0.02)

    async def next_coordinator(self, old: int, within_s: float = 10) -> int:
        """Once the others agree on another."""
        end = self.world.loop.time() + within_s
        while True:
            found = {await self.coordinator(other) for other in self.others(old)}
            if len(found) == 1 and isinstance(one := found.pop(), int) and one != old:
                return one
            assert self.world.loop.time() < end, "nobody took over"
            await asyncio.sleep(0.02)


class Producer:
    """With the epochs that each end of a transaction gives it (KIP-890)."""

    def __init__(self, groups: Groups, transactional_id: str) -> None:
        self.groups = groups
        self.transactional_id = transactional_id
        self.identity = {"producer_id": -1, "producer_epoch": -1}

    async def coordinator(self, via: int) -> int | ErrorCode:
        keys = [self.transactional_id]
        ask = self.groups.ask(via, ApiKey.find_coordinator, 4, key_type=1, coordinator_keys=keys)
        (found,) = (await ask).coordinators
        return found.error_code if found.error_code is not E.none else int(found.node_id)

    async def found(self) -> int:
        """Its coordinator, once there is one."""
        while isinstance(one := await self.coordinator(1), ErrorCode):
            await asyncio.sleep(0.05)
        return one

    @property
    def me(self) -> dict[str, Any]:
        return {"transactional_id": self.transactional_id, **self.identity}

    async def _ask(self, node_id: int, key: ApiKey, version: int, **fields: Any) -> ErrorCode:
        reply = await self.groups.ask(node_id, key, version, **self.me, **fields)
        code: ErrorCode = reply.error_code
        if code is E.none and hasattr(reply, "producer_epoch"):
            epoch = reply.producer_epoch
            self.identity = {"producer_id": reply.producer_id, "producer_epoch": epoch}
        return code

    async def init(self, node_id: int) -> ErrorCode:
        return await self._ask(node_id, ApiKey.init_producer_id, 4, transaction_timeout_ms=60_000)

    async def add(self, node_id: int) -> ErrorCode:
        return await self._ask(node_id, ApiKey.add_offsets_to_txn, 3, group_id=GROUP)

    async def commit(self, node_id: int) -> ErrorCode:
        return await self._ask(node_id, ApiKey.end_txn, 5, committed=True)


def play(seed: int, scenario: Callable[[Groups, int], Awaitable[None]], *, nodes: int = 3) -> None:
    with World(seed, time_limit_s=600) as world:
        groups = Groups(world, nodes)

        async def all_of_it() -> None:
            await scenario(groups, await groups.settle())

        world.run(all_of_it())
