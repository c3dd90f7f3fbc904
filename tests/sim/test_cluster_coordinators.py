"""Group coordinators of a cluster of three that move with the leadership of their partitions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

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
GROUP = "g"
SESSION_MS = 60_000


class Groups:
    """Three nodes, and a client that speaks to the one it names."""

    def __init__(self, world: World, nodes: int) -> None:
        self.world = world
        self.nodes = ClusterNodes(world, nodes, config=["group.initial.rebalance.delay.ms=0"])
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


def play(seed: int, scenario: Callable[[Groups, int], Awaitable[None]], *, nodes: int = 3) -> None:
    with World(seed, time_limit_s=600) as world:
        groups = Groups(world, nodes)

        async def all_of_it() -> None:
            await scenario(groups, await groups.settle())

        world.run(all_of_it())


SEEDS = pytest.mark.parametrize("seed", range(3))


class AnotherSeed(Exception):
    """What a scenario is about can't be had with this one."""


@SEEDS
def test_every_node_names_the_leader_of_the_groups_partition(seed: int) -> None:
    async def scenario(groups: Groups, coordinator: int) -> None:
        assert {await groups.coordinator(int(each)) for each in groups.nodes.ids} == {coordinator}
        image = groups.nodes.image
        assert image is not None
        states = image.topics[GROUP_OFFSETS_TOPIC].partitions
        assert all(len(state.replicas) == 3 for state in states)
        assert states[groups.partition].leader == coordinator
        for other in groups.others(coordinator):
            assert await groups.commit(other, 9) is E.not_coordinator
            assert await groups.fetch(other) is E.not_coordinator

    play(seed, scenario)


@SEEDS
@pytest.mark.parametrize("end", ["kill", "stop", "power"])
def test_a_stable_group_goes_on_where_its_next_coordinator_is(seed: int, end: str) -> None:
    """The member keeps its id, its generation and its position; nobody rebalances."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 42) is E.none
        began = groups.world.loop.time()
        match end:
            case "kill":
                groups.world.kill(node_name(coordinator))
            case "power":
                groups.world.crash(node_name(coordinator))
            case "stop":
                await groups.nodes.stop(coordinator)
        successor = await groups.next_coordinator(coordinator)
        await groups.until(successor, 42, lambda: groups.fetch(successor))
        took_s = groups.world.loop.time() - began
        assert took_s < (5.0 if end == "power" else 3.0), took_s
        assert await groups.beat(successor) is E.none
        assert await groups.commit(successor, 43) is E.none
        groups.nodes.start(coordinator)
        await groups.nodes.until_whole()
        back = await groups.coordinator(coordinator)
        assert isinstance(back, int)
        await groups.until(back, 43, lambda: groups.fetch(back))
        assert await groups.beat(back) is E.none
        for other in groups.others(back):
            assert await groups.beat(other) is E.not_coordinator

    play(seed, scenario)


@SEEDS
def test_a_coordinator_that_slept_answers_for_nobody_when_it_wakes(seed: int) -> None:
    """What it was asked before and never wrote is not there, whatever it thinks; what its successor took is."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 1) is E.none
        groups.world.pause(node_name(coordinator))
        asked = asyncio.ensure_future(groups.commit(coordinator, 2))
        successor = await groups.next_coordinator(coordinator)
        await groups.until(successor, 1, lambda: groups.fetch(successor))
        assert await groups.commit(successor, 5) is E.none
        groups.world.resume(node_name(coordinator))
        try:
            assert await asked is not E.none
        except Trouble:
            pass  # it was too late to hear
        await groups.nodes.until_whole()
        one = await groups.next_coordinator(0)
        await groups.until(one, 5, lambda: groups.fetch(one))

    play(seed, scenario)


@SEEDS
@pytest.mark.parametrize("away", ["asleep", "suspended", "cut off"])
def test_a_coordinator_that_slept_tells_nobody_positions_of_long_ago(seed: int, away: str) -> None:
    """Another was elected meanwhile and has stored a newer one. A client that asks in the first moment afterwards, before
    anybody else has said a word to it, is told where the group is now, or to look for it."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        assert await groups.commit(coordinator, 7) is E.none
        name = node_name(coordinator)
        if away == "asleep":
            groups.world.pause(name)
        elif away == "suspended":
            groups.world.suspend(name)
        else:
            for other in groups.others(coordinator):
                groups.world.net.cut(name, node_name(other))
        one = await groups.next_coordinator(coordinator)
        await groups.until(one, E.none, lambda: groups.commit(one, 9))
        if away != "cut off":
            groups.world.resume(name)
        for _ in range(2):
            assert await groups.fetch_or_nothing(coordinator) in (9, E.not_coordinator, None)
        groups.world.heal()
        await groups.nodes.until_whole()

    play(seed, scenario)


@SEEDS
def test_the_last_of_three_keeps_its_members_and_tells_no_position(seed: int) -> None:
    """Before they died the others may have stored a newer one, for all that the last one knows. And nobody is left to take
    the dead out of the in-sync set: what is appended waits for them, as in Kafka, and what is asked of that group
    afterwards waits with it."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 7) is E.none
        for other in groups.others(coordinator):
            groups.world.kill(node_name(other))
            await asyncio.sleep(4)
        assert await groups.beat(coordinator) is E.none
        assert await groups.fetch_or_nothing(coordinator) in (E.not_coordinator, None)
        assert await groups.commit(coordinator, 8) is E.coordinator_not_available
        groups.nodes.start_all()
        await groups.nodes.until_whole()
        one = await groups.next_coordinator(0)
        await groups.until(one, E.none, lambda: groups.commit(one, 9))
        assert await groups.fetch(one) == 9

    play(seed, scenario)


@SEEDS
def test_under_the_minimum_of_replicas_members_stay_and_positions_are_told(seed: int) -> None:
    """The controller has taken the dead out: a write is refused before anything is decided, and costs no more."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        followers = groups.replicas_of_group()
        followers.remove(coordinator)
        if set(followers) <= set(map(int, groups.nodes.voters)):
            raise AnotherSeed("the quorum would be gone")
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 7) is E.none
        for follower in followers:
            groups.world.kill(node_name(follower))
        await asyncio.sleep(6)
        if await groups.coordinator(coordinator) != coordinator:
            raise AnotherSeed("the leaders were balanced meanwhile")
        for _ in range(5):
            assert await groups.beat(coordinator) is E.none
            assert await groups.fetch(coordinator) == 7
            assert await groups.commit(coordinator, 8) is E.coordinator_not_available
            await asyncio.sleep(0.5)
        groups.nodes.start_all()
        await groups.nodes.until_whole()
        one = await groups.next_coordinator(0)
        await groups.until(one, E.none, lambda: groups.commit(one, 9))
        assert await groups.beat(one) is E.none

    for other in range(seed, 30, 3):
        with suppress(AnotherSeed):
            return play(other, scenario, nodes=5)
    raise AssertionError("none of ten seeds has a follower that does not vote")


@SEEDS
def test_who_waits_for_a_rebalance_is_sent_to_the_next_coordinator(seed: int) -> None:
    """An undecided join is memory of one coordinator: it is answered, and the next one has never heard of it."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        second = await groups.join(coordinator)
        waits = asyncio.ensure_future(groups.join(coordinator, second.member_id))
        await asyncio.sleep(0.2)
        assert not waits.done()
        await groups.nodes.stop(coordinator)
        try:
            assert (await waits).error_code is E.not_coordinator
        except Trouble:
            pass  # the connection went with the node
        successor = await groups.next_coordinator(coordinator)
        await groups.until(successor, E.none, lambda: groups.beat(successor))
        reply = await groups.join(successor, second.member_id)
        assert reply.error_code is E.unknown_member_id

    play(seed, scenario)


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

    async def _ask(self, node_id: int, key: ApiKey, version: int, **fields: Any) -> ErrorCode:
        fields["transactional_id"] = self.transactional_id
        reply = await self.groups.ask(node_id, key, version, **self.identity, **fields)
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


@SEEDS
@pytest.mark.parametrize("away", ["asleep", "suspended"])
def test_a_coordinator_that_slept_refuses_no_commit_of_a_transaction_it_knows_nothing_of(
    seed: int, away: str
) -> None:
    """By what it has in memory nothing is open. INVALID_TXN_STATE would end the producer."""

    async def scenario(groups: Groups, _: int) -> None:
        producer = Producer(groups, "t")
        found: int | ErrorCode = E.coordinator_not_available
        while isinstance(found, ErrorCode):
            found = await producer.coordinator(1)
            await asyncio.sleep(0.05)
        old = found
        await groups.until(old, E.none, lambda: producer.init(old))
        assert await producer.add(old) is E.none
        assert await producer.commit(old) is E.none
        await asyncio.sleep(1.0)  # its markers are written
        (groups.world.pause if away == "asleep" else groups.world.suspend)(node_name(old))
        end = groups.world.loop.time() + 10
        while (one := await producer.coordinator(groups.others(old)[0])) in (old, -1) or isinstance(
            one, ErrorCode
        ):
            assert groups.world.loop.time() < end, "nobody took over"
            await asyncio.sleep(0.05)
        await groups.until(one, E.none, lambda: producer.add(one))
        groups.world.resume(node_name(old))
        try:
            assert await producer.commit(old) is E.not_coordinator
        except Trouble:
            pass  # no answer in its time
        assert await producer.commit(one) is E.none

    play(seed, scenario)
