"""Members of a classic group, as clients play them, while the nodes that coordinate them die, stop and sleep.

What must hold: in one generation nobody shares a partition; a position that was acknowledged is never fetched lower
by who owns the partition next; and when all is well again the group is stable and every partition has an owner.
"""

import asyncio
from typing import Any, Final

import pytest
from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, ClusterNodes, node_name
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

pytestmark = pytest.mark.slow
E = ErrorCode
GROUP: Final = "g"
TOPIC: Final = GROUP_OFFSETS_TOPIC  # any topic that is there; it has two partitions
PARTITIONS: Final = 2
MEMBERS: Final = 3
LOOK_AGAIN: Final = (E.not_coordinator, E.coordinator_not_available, E.coordinator_load_in_progress)


class Ledger:
    """What the members were told, all of them together; `moves` is how often one looked for its coordinator."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], str] = {}  # (generation, partition) -> member
        self.acknowledged: dict[int, int] = dict.fromkeys(range(PARTITIONS), -1)
        self.generations: set[int] = set()
        self.commits = self.moves = 0

    def owns(self, member_id: str, generation: int, partitions: tuple[int, ...]) -> None:
        self.generations.add(generation)
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            assert owner == member_id, f"{owner} and {member_id} own {partition} in {generation}"


class Member:
    def __init__(self, env: SimEnv, nodes: ClusterNodes, ledger: Ledger, name: str) -> None:
        self.env, self.nodes, self.ledger, self.name = env, nodes, ledger, name
        self.member_id, self.generation = "", -1
        self.partitions: tuple[int, ...] = ()
        self.is_stable = self.stopping = False
        self._positions: dict[int, int] = {}
        self._coordinator: int | None = None
        self.coordinator: int | None = None  # the last that was known
        self._wires: dict[int, WireClient] = {}

    async def run(self) -> None:
        while not self.stopping:
            try:
                if not self.is_stable:
                    await self._join()
                else:
                    await self._go_on()
            except Trouble:
                self._coordinator = None
            await self.env.clock.sleep(0.05 + 0.1 * self.env.rng.random())

    # -- speaking ------------------------------------------------------------------------------------

    async def _ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        if self._coordinator is None:
            await self._find()
        assert self._coordinator is not None
        return await self._wire(self._coordinator).request(key, version, **fields)

    def _wire(self, node_id: int) -> WireClient:
        if node_id not in self._wires:
            address = (node_name(node_id), CLIENT_PORT)
            self._wires[node_id] = WireClient(
                self.env, *address, client_id=self.name, timeout_s=6.0
            )
        return self._wires[node_id]

    async def _find(self) -> None:
        node_id = int(self.env.rng.choice(self.nodes.ids))
        reply = await self._wire(node_id).request(
            ApiKey.find_coordinator, 4, key_type=0, coordinator_keys=[GROUP]
        )
        (found,) = reply.coordinators
        if found.error_code is not E.none:
            raise Trouble(found.error_code.name)
        self._coordinator = self.coordinator = int(found.node_id)
        self.ledger.moves += 1

    def _is_bad(self, code: ErrorCode) -> bool:
        """Take note of an error; whether it was one."""
        if code in LOOK_AGAIN:
            self._coordinator = None
        elif code is E.unknown_member_id:
            self.member_id, self.is_stable = "", False
        elif code in (E.illegal_generation, E.rebalance_in_progress):
            self.is_stable = False
        else:
            assert code is E.none, code
        return code is not E.none

    # -- the protocol --------------------------------------------------------------------------------

    async def _join(self) -> None:
        joined = await self._ask(
            ApiKey.join_group,
            7,
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=4_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        if joined.error_code is E.member_id_required:
            self.member_id = joined.member_id
            return
        if self._is_bad(joined.error_code):
            return
        self.member_id, self.generation = joined.member_id, joined.generation_id
        given: dict[str, list[int]] = {each.member_id: [] for each in joined.members}
        for partition, member_id in zip(
            range(PARTITIONS), sorted(given) * PARTITIONS, strict=False
        ):
            given[member_id].append(partition)
        synced = await self._ask(
            ApiKey.sync_group,
            5,
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": id_, "assignment": bytes(p)} for id_, p in given.items()],
        )
        if self._is_bad(synced.error_code):
            return
        self.partitions = tuple(synced.assignment)
        self.ledger.owns(self.member_id, self.generation, self.partitions)
        self.is_stable = await self._fetch_positions()

    async def _fetch_positions(self) -> bool:
        known = dict(self.ledger.acknowledged)
        topics = [{"name": TOPIC, "partition_indexes": list(self.partitions)}]
        reply = await self._ask(ApiKey.offset_fetch, 7, group_id=GROUP, topics=topics)
        if self._is_bad(reply.error_code):
            return False
        rows = reply.topics[0].partitions
        self._positions = {row.partition_index: row.committed_offset for row in rows}
        for partition, offset in self._positions.items():
            assert offset >= known[partition], f"{partition}: {offset}, acknowledged {known}"
        return True

    async def _go_on(self) -> None:
        mine = {"group_id": GROUP, "member_id": self.member_id}
        beat = await self._ask(ApiKey.heartbeat, 4, generation_id=self.generation, **mine)
        if self._is_bad(beat.error_code) or not self.partitions:
            return
        asked = {partition: self._positions[partition] + 1 for partition in self.partitions}
        rows = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in asked.items()
        ]
        reply = await self._ask(
            ApiKey.offset_commit,
            8,
            generation_id_or_member_epoch=self.generation,
            topics=[{"name": TOPIC, "partitions": rows}],
            **mine,
        )
        for row in reply.topics[0].partitions:
            if not self._is_bad(row.error_code):
                offset = self._positions[row.partition_index] = asked[row.partition_index]
                best = max(self.ledger.acknowledged[row.partition_index], offset)
                self.ledger.acknowledged[row.partition_index] = best
                self.ledger.commits += 1


class Run:
    def __init__(self, world: World) -> None:
        self.world, self.rng = world, world.stream("faults")
        self.nodes = ClusterNodes(world, 3, config=["group.initial.rebalance.delay.ms=100"])
        self.ledger = Ledger()
        env = world.node("client")
        self.members = [
            Member(env, self.nodes, self.ledger, f"m{number}") for number in range(MEMBERS)
        ]

    async def play(self) -> None:
        self.nodes.start_all()
        await self.nodes.until_ready()
        env = self.world.node("client")
        running = [
            asyncio.ensure_future(self.world.on(env, member.run())) for member in self.members
        ]
        await self.nodes.until("the group forms", self._unstable, within_s=30)
        for _ in range(6):
            await self._fault()
            for task in running:
                if task.done():
                    task.result()
        self.world.heal()
        self.nodes.start_all()
        await self.nodes.until_whole()
        before = self.ledger.commits
        await self.nodes.until("the group settles", self._unstable, within_s=30)
        await asyncio.sleep(2)
        assert self.ledger.commits > before
        for member in self.members:
            member.stopping = True
        await asyncio.gather(*running)

    async def _fault(self) -> None:
        node_id = int(self.rng.choice(self.nodes.ids))
        if self.rng.random() < 0.7:
            node_id = self.members[0].coordinator or node_id
        name = node_name(node_id)
        match self.rng.choice(("kill", "stop", "pause", "power")):
            case "kill":
                self.world.kill(name)
            case "power":
                self.world.crash(name)
            case "stop":
                await self.nodes.stop(node_id)
            case "pause":
                self.world.pause(name)
                await asyncio.sleep(self.rng.uniform(0.5, 5))
                self.world.resume(name)
        await asyncio.sleep(self.rng.uniform(0.2, 3))
        self.nodes.start_all()
        await asyncio.sleep(self.rng.uniform(0.5, 4))

    def _unstable(self) -> str:
        if any(not member.is_stable for member in self.members):
            return "somebody is not in the group"
        generations = {member.generation for member in self.members}
        if len(generations) > 1:
            return f"generations {generations}"
        owned = sorted(p for member in self.members for p in member.partitions)
        return "" if owned == list(range(PARTITIONS)) else f"owned: {owned}"


@pytest.mark.parametrize("seed", range(4))
def test_members_keep_their_partitions_and_positions_through_every_move(seed: int) -> None:
    with World(seed, time_limit_s=900) as world:
        run = Run(world)
        world.run(run.play())
    assert run.ledger.commits > 50
    assert run.ledger.moves > MEMBERS
