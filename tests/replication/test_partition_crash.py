"""A broker's partitions under kills, power cuts and failing disks, by seed.

Producers send batches with sequence numbers, up to five in flight, and send again what they have no answer to. In the
end every batch is in the log exactly once, in the order of its producer; what was acknowledged, or read, stays.
"""

import asyncio
import errno
import inspect
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.partition import Partition, Refusal
from replica_helpers import NONE, Metadata, Node, batch, topic_of

E = ErrorCode
T = TypeVar("T")
IN_FLIGHT = 5
BATCHES = 25
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
# What a client sends again for. Anything else would end it, or lose what it sent.
RETRIED = {E.kafka_storage_error, E.not_leader_or_follower, E.unknown_topic_or_partition}


class Producer:
    """One producer id, on one partition."""

    def __init__(self, pid: int, name: TopicPartition) -> None:
        self.pid = pid
        self.name = name
        self.batches = [
            bytes(batch(*self.values(n), pid=pid, sequence=n * 3, timestamp=n + 1))
            for n in range(BATCHES)
        ]
        self.acked = 0

    def values(self, number: int) -> list[str]:
        return [f"{self.pid}:{number}.{i}" for i in range(3)]

    @property
    def all_values(self) -> list[bytes]:
        return [value.encode() for n in range(BATCHES) for value in self.values(n)]

    async def push(self, node: Node, delay_s: float) -> list[ErrorCode]:
        """Send what is not acknowledged; each batch's outcome, as its reply would have it."""
        await node.env.clock.sleep(delay_s)
        partition = node.manager.partition(self.name)
        sent = self.batches[self.acked : self.acked + IN_FLIGHT]
        if not isinstance(partition, Partition):
            return [partition]
        now = node.env.clock.now_ms()
        answers = [
            partition.append_as_leader(bytearray(b), required_acks=-1, now_ms=now) for b in sent
        ]
        return [
            each.error if isinstance(each, Refusal) else await partition.committed(each.last_offset)
            for each in answers
        ]

    def learn(self, outcomes: list[ErrorCode]) -> None:
        good = 0
        while good < len(outcomes) and outcomes[good] is NONE:
            good += 1
        self.acked += good
        rest = outcomes[good:]
        assert not rest or rest[0] in RETRIED, f"{self.pid} at {self.acked}: {rest[0]}"
        assert NONE not in rest, f"{self.pid}: a batch overtook one that was refused: {outcomes}"
        assert all(each in RETRIED or each is E.out_of_order_sequence_number for each in rest)


class Run:
    """One seed."""

    def __init__(self, seed: int, *, power: bool, policy: str) -> None:
        self.world = World(seed)
        self.rng = random.Random(f"test/{seed}")
        self.power = power  # machines go down, not only processes
        config = {"flush.policy": policy, "internal.segment.bytes": "4000"}
        self.metadata = Metadata(topic_of("t", len(PARTITIONS)), configs={"t": config})
        self.producers = [
            Producer(pid, PARTITIONS[pid % len(PARTITIONS)])
            for pid in range(1, len(PARTITIONS) * 2 + 1)
        ]
        self.node: Node | None = None
        self.read: dict[TopicPartition, list[bytes]] = {}

    async def on(self, env: SimEnv, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await self.world.on(env, work)
        finally:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # the node went down before it began

    async def up(self) -> Node:
        """The running node; started, as often as it takes, when it is down."""
        failed = 0
        while self.node is None or not self.world.is_up("a"):
            env = self.world.restart("a")
            node = Node(env, self.metadata)
            try:
                await self.on(env, node.start())
            except (NodeLost, OSError, Trouble):
                continue
            self.node = node
            if node.manager.offline:  # the disk failed while the log was opened: once more
                failed += 1
                assert failed < 10, node.manager.offline
                self.world.kill("a")
        return self.node

    def trouble(self, env: SimEnv) -> None:
        """Something that goes wrong now or soon."""
        rng, faults = self.rng, self.world.disk("a").faults
        match rng.randrange(8):
            case 0:
                self.world.kill("a")
            case 1 if self.power:
                self.world.crash("a")
            case 2 | 3:
                kill = not self.power or rng.random() < 0.4
                self.world.crash_at_disk_op("a", rng.randint(1, 40), kill=kill)
            case 4:
                faults.fail("append", path="*.log", number=errno.ENOSPC, times=rng.randint(1, 6))
            case 5 if self.power:
                faults.fail("sync", path="*.log")
            case 6:
                faults.sync_s = (0.0, rng.choice([0.001, 0.1, 1.0]))
            case _:
                pass

    async def main(self) -> None:
        while any(each.acked < BATCHES for each in self.producers):
            node = await self.up()
            self.trouble(node.env)
            async with asyncio.TaskGroup() as group:
                for producer in self.producers:
                    if producer.acked < BATCHES:
                        group.create_task(self.push(node, producer))
                group.create_task(self.look(node))
            if node.manager.offline or self.rng.random() < 0.1:
                self.world.kill("a")  # a person restarts what says that it is offline
        self.world.heal()
        self.world.kill("a")
        node = await self.up()
        for name in PARTITIONS:
            values = await self.on(node.env, node.read_values(name))
            seen = self.read.get(name, [])
            assert values[: len(seen)] == seen, f"{name}: what was read was taken back"
            mine = [each for each in self.producers if each.name == name]
            assert sorted(values) == sorted(v for each in mine for v in each.all_values)
            for each in mine:
                prefix = f"{each.pid}:".encode()
                assert [v for v in values if v.startswith(prefix)] == each.all_values

    async def push(self, node: Node, producer: Producer) -> None:
        delay_s = self.rng.choice(
            (0.0, 0.000_5, 0.001)
        )  # so that some write while others are synced
        try:
            producer.learn(await self.on(node.env, producer.push(node, delay_s)))
        except NodeLost:
            return  # nothing is known of what was sent

    async def look(self, node: Node) -> None:
        """A consumer reads from the start: whatever it sees must stay."""
        name = self.rng.choice(PARTITIONS)
        if not isinstance(node.manager.partition(name), Partition):
            return
        try:
            values = await self.on(node.env, node.read_values(name))
        except (NodeLost, AssertionError):
            return
        seen = self.read.get(name, [])
        assert values[: len(seen)] == seen, f"{name}: what was read was taken back"
        self.read[name] = max(values, seen, key=len)


def play(seed: int, *, power: bool = True, policy: str = "ack") -> None:
    run = Run(seed, power=power, policy=policy)
    with run.world as world:
        world.run(run.main())


def test_a_file_made_by_a_write_that_failed_is_as_durable_as_any() -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))

        async def before(node: Node) -> None:
            await node.write(batch("a"))
            node.partition().log.roll(node.env.clock.now_ms())
            world.disk("a").faults.fail("append", path="*.log", number=errno.ENOSPC)
            assert isinstance(node.produce(batch("b")), Refusal)
            await node.write(batch("b"))

        async def after(node: Node) -> None:
            assert await node.read_values() == [b"a", b"b"]

        for scene in (before, after):
            env = world.node("a")
            node = Node(env, metadata)
            world.run(world.on(env, node.start()))
            world.run(world.on(env, scene(node)))
            world.crash("a")
            world.restart("a")


def test_a_sync_that_failed_while_a_log_was_opened_is_not_taken_for_done() -> None:
    """A failed sync drops what it could not write; it stays readable until the power goes (seed 3141)."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), topic_of("others"))

        def start() -> Node:
            node = Node(world.restart("a"), metadata)
            world.run(world.on(node.env, node.start()))
            return node

        node = start()
        world.run(world.on(node.env, node.write(batch("a"))))
        node.produce(batch("b"))
        world.disk("a").faults.fail("sync", path="*.log")
        assert start().manager.offline  # the sync of what recovery found
        node = start()
        node.produce(batch("c"))
        assert world.run(world.on(node.env, node.partition().committed(2))) is NONE
        world.run(world.on(node.env, node.env.clock.sleep(1)))
        world.crash("a")
        node = start()
        assert not node.manager.offline
        assert world.run(world.on(node.env, node.read_values())) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.slow
def test_what_was_acknowledged_survives_every_crash(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("policy", ["os", "interval"])
@pytest.mark.slow
def test_without_syncs_it_survives_kills_of_the_process(policy: str, seed: int) -> None:
    play(seed, power=False, policy=policy)
