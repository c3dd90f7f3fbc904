"""Consumers of the classic protocol against a coordinator that moves, stalls and forgets, by seed.

Safety while anything goes wrong: one generation has one assignment, and only the member that owns a partition
in the current generation commits it. Then everything is healed, and the group must settle by itself.
"""

import asyncio
import copy
import random
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from support.group_node import GroupNode

E = ErrorCode
PARTITIONS = 6
LOST = (E.not_coordinator, E.coordinator_not_available, E.coordinator_load_in_progress)


class Seen:
    """What all clients together have seen; knows what must never be."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, str], dict[int, str]] = {}  # (generation, leader) -> partition
        self.committed: dict[int, int] = {}
        self.generations: dict[int, int] = {}  # the latest in which each partition was committed
        self.rebalances = 0

    def assigned(self, generation: int, leader: str, member_id: str, partitions: list[int]) -> None:
        owners = self.owners.setdefault((generation, leader), {})
        for partition in partitions:
            owner = owners.setdefault(partition, member_id)
            assert owner == member_id, f"{partition} is {owner}'s and {member_id}'s in {generation}"
            latest = self.generations.get(partition, generation)
            assert generation >= latest, f"{partition}: {generation} commits after {latest}"
            self.generations[partition] = generation


class Client:
    """As much of a consumer as the protocol needs. Crashing is falling silent."""

    def __init__(self, node: GroupNode, name: str, seen: Seen, rng: random.Random) -> None:
        self.node, self.name, self.seen, self.rng = node, name, seen, rng
        self.instance = f"static-{name}" if rng.random() < 0.3 else None
        self.member_id = ""
        self.generation = -1
        self.partitions: list[int] = []
        self.is_settled = False
        self.late: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        while True:
            self.is_settled = False
            if await self._join() and await self._sync():
                await self._work()
            await asyncio.sleep(self.rng.uniform(0.01, 0.1))

    async def _join(self) -> bool:
        joined = await self.node.join(
            self.member_id, client=self.name, group_instance_id=self.instance
        )
        match joined.error_code:
            case E.none | E.member_id_required:
                self.member_id = joined.member_id
            case E.unknown_member_id | E.fenced_instance_id:
                self.member_id = ""
        if joined.error_code is not E.none:
            return False
        self.generation, self.leader = joined.generation_id, joined.leader
        self.assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = sorted(member.member_id for member in joined.members)
            for place, member_id in enumerate(members):
                mine = bytes(range(place, PARTITIONS, len(members)))
                self.assignments.append({"member_id": member_id, "assignment": mine})
        return True

    async def _sync(self) -> bool:
        synced = await self._ask(
            "sync_group",
            5,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self.assignments,
        )
        if synced is None or synced.error_code is not E.none:
            return False
        self.partitions = list(synced.assignment)
        self.seen.rebalances += 1
        return True

    async def _work(self) -> None:
        self.is_settled = True
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 2.0))
            beat = await self._ask("heartbeat", 4)
            if beat is None or beat.error_code is not E.none:
                return
            for partition in self.partitions:
                if self.rng.random() < 0.1:
                    late = self._commit_late(self.rng.uniform(0.0, 10.0), partition)
                    self.late.append(asyncio.get_running_loop().create_task(late))
                elif not await self._commit(partition):
                    return

    async def _commit_late(self, delay_s: float, partition: int) -> None:
        """A commit that the network delivers when the client has long gone on."""
        then = copy.copy(self)
        await asyncio.sleep(delay_s)
        await then._commit(partition)

    async def _commit(self, partition: int) -> bool:
        offset = self.seen.committed.get(partition, 0) + 1
        row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        reply = await self._ask(
            "offset_commit",
            9,
            generation_id_or_member_epoch=self.generation,
            topics=[{"name": "work", "partitions": [row]}],
        )
        code = reply.topics[0].partitions[0].error_code
        if code is E.none:
            key = self.generation, self.leader
            self.seen.assigned(*key, self._as_owner(), [partition])
            self.seen.committed[partition] = max(self.seen.committed.get(partition, 0), offset)
        return code is E.none or code in LOST

    def _as_owner(self) -> str:
        """A static member that comes back owns what it owned, under another id."""
        return self.instance or self.member_id

    async def _ask(self, api: str, version: int, **fields: Any) -> Any:
        generation = {"generation_id": self.generation} if api != "offset_commit" else {}
        reply = await self.node.ask(
            api,
            version,
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance,
            **generation,
            **fields,
        )
        code = getattr(reply, "error_code", E.none)
        if code in (E.unknown_member_id, E.fenced_instance_id):
            self.member_id = ""
        return reply

    async def leave(self) -> None:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance}]
        await self.node.ask("leave_group", 5, group_id="g", members=members)


class Crowd:
    def __init__(self, node: GroupNode, rng: random.Random) -> None:
        self.node, self.rng, self.seen = node, rng, Seen()
        self.running: dict[str, tuple[Client, asyncio.Task[None]]] = {}
        self.everyone: list[tuple[Client, asyncio.Task[None]]] = []
        self.count = 0

    def enter(self) -> None:
        self.count += 1
        client = Client(self.node, f"c{self.count}", self.seen, self.rng)
        task = asyncio.get_running_loop().create_task(client.run())
        self.running[client.name] = client, task
        self.everyone.append((client, task))

    async def end(self) -> None:
        """Nobody may have seen what must never be."""
        for client, task in self.everyone:
            for each in (task, *client.late):
                each.cancel()
            for outcome in await asyncio.gather(task, *client.late, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, asyncio.CancelledError), outcome

    async def go(self, *, politely: bool) -> None:
        if not self.running:
            return
        name = self.rng.choice(sorted(self.running))
        client, task = self.running.pop(name)
        task.cancel()
        if politely:
            await client.leave()

    async def move(self) -> None:
        """The partition is led elsewhere for a while; nothing that was committed is lost with it."""
        log = self.node.logs[0]
        log.resign()
        self.node.lead(0, 2)
        await asyncio.sleep(self.rng.uniform(0.0, 3.0))
        log.is_leader = True
        self.node.lead(0, 1)

    async def stall(self) -> None:
        """The disk is slow: nothing is committed for a while."""
        log = self.node.logs[0]
        log.commits_at_once = False
        await asyncio.sleep(self.rng.uniform(0.1, 7.0))
        log.commits_at_once = True
        log.commit()

    async def fill(self) -> None:
        log = self.node.logs[0]
        log.refuse = E.kafka_storage_error
        await asyncio.sleep(self.rng.uniform(0.1, 2.0))
        log.refuse = E.none

    async def trouble(self) -> None:
        for _ in range(25):
            await asyncio.sleep(self.rng.uniform(0.1, 6.0))
            match self.rng.choice(["enter", "enter", "leave", "crash", "move", "stall", "fill"]):
                case "enter":
                    self.enter()
                case "leave":
                    await self.go(politely=True)
                case "crash":
                    await self.go(politely=False)
                case "move":
                    await self.move()
                case "stall":
                    await self.stall()
                case "fill":
                    await self.fill()

    def settled(self) -> bool:
        clients = [client for client, _ in self.running.values()]
        owned = sorted(partition for client in clients for partition in client.partitions)
        generations = {client.generation for client in clients}
        all_settled = all(client.is_settled for client in clients)
        return all_settled and len(generations) == 1 and owned == list(range(PARTITIONS))


def live(seed: int) -> tuple[int, dict[int, int], float]:
    with World(seed=seed) as world:
        outcome: list[tuple[int, dict[int, int], float]] = []

        async def scenario() -> None:
            node = GroupNode(world, partitions=1)
            await node.service.start()
            node.make_topic("work", PARTITIONS)
            await node.service.coordinator_of("g")
            crowd = Crowd(node, world.stream("crowd"))
            for _ in range(3):
                crowd.enter()
            await crowd.trouble()
            crowd.enter()
            loop = asyncio.get_running_loop()
            healed = loop.time()
            while not crowd.settled():
                assert loop.time() - healed < 400, "the group does not settle"
                await asyncio.sleep(1)
            for partition, offset in crowd.seen.committed.items():
                reply = await node.ask(
                    "offset_fetch",
                    7,
                    group_id="g",
                    topics=[{"name": "work", "partition_indexes": [partition]}],
                )
                assert reply.topics[0].partitions[0].committed_offset >= offset, "a commit is lost"
            outcome.append((crowd.seen.rebalances, crowd.seen.committed, loop.time()))
            await crowd.end()
            await node.service.stop()

        world.run(world.on(world.node("n"), scenario()))
        return outcome[0]


@pytest.mark.parametrize("seed", range(24))
def test_a_group_keeps_its_promises_through_trouble_and_settles_after_it(seed: int) -> None:
    rebalances, committed, _ = live(seed)
    assert rebalances > 3
    assert committed


def test_the_same_seed_is_the_same_story() -> None:
    assert live(3) == live(3)
