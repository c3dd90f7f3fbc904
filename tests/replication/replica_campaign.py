"""Random faults on three nodes that replicate, a controller that fences and elects as Kafka's does, and who watches.

INVARIANT  (watched all the time) what any node says is committed is the same bytes on every node that says so; a leader's
           high watermark never goes back while it leads. (At the end) all that was acknowledged is there, once, in its
           producer's order; the logs are equal; every replica knows the producers as a replay of its log does.
"""

from asyncio import Future, Task, sleep, timeout
from collections.abc import Callable

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, BrokerId, TopicPartition
from fencepost.replication.log import snapshots
from fencepost.replication.log.producer_snapshot import ProducerState
from fencepost.replication.partition import Appended, Partition
from replica_cluster import Cluster, log_bytes, values_of
from replica_helpers import NONE, batch

NODES = (1, 2, 3)
PARTITIONS = 3
NAMES = [TopicPartition("orders", index) for index in range(PARTITIONS)]


def known(states: list[ProducerState]) -> dict[int, ProducerState]:
    """Without when the node saw them."""
    return {each.producer_id: each._replace(seen_ms=0) for each in states}


def replayed(partition: Partition) -> dict[int, ProducerState]:
    log = partition.log
    machine = snapshots.new_machine(log)
    for segment, position, header in log.headers_from(0, log.log_end_offset):
        snapshots.replay(machine, segment, position, header, 0)
    return known(machine.states())


class Producer:
    """Idempotent, one batch at a time, each sent again until it is acknowledged."""

    def __init__(self, run: "Campaign", number: int, name: TopicPartition) -> None:
        self.run = run
        self.pid = 100 + number
        self.name = name
        self.sequence = 0
        self.born_ms = 0
        self.acknowledged: list[tuple[bytes, int]] = []

    async def go(self) -> None:
        while not self.run.is_over:
            value = f"{self.pid}:{self.sequence}".encode()
            self.born_ms = int(self.run.world.loop.time() * 1000)
            offset = await self.send(value)
            if offset is not None:
                self.acknowledged.append((value, offset))
                self.sequence += 1
            await sleep(self.run.rng.uniform(0.001, 0.05))

    async def send(self, value: bytes) -> int | None:
        """None when the campaign ended before it was acknowledged."""
        while not self.run.is_over:
            try:
                async with timeout(1.0):
                    offset = await self.try_once(value)
            except TimeoutError:
                offset = None
            if offset is not None:
                return offset
            await sleep(self.run.rng.uniform(0.01, 0.1))
        return None

    async def try_once(self, value: bytes) -> int | None:
        cluster = self.run.cluster
        # Now and then to another node: clients' metadata are old.
        leader: int = cluster.state("orders", self.name.partition).leader
        if self.run.rng.random() < 0.1:
            leader = self.run.rng.choice(NODES)
        node = cluster.nodes.get(leader)
        if node is None or not node.is_started or not node.env.incarnation.alive:
            return None
        partition = node.manager.partition(self.name)
        if not isinstance(partition, Partition):
            return None
        data = batch(
            value,
            pid=self.pid,
            sequence=self.sequence,
            timestamp=self.born_ms,
        )
        done = node.produce(data, self.name)
        if not isinstance(done, Appended):
            # A leader that was deposed, and does not know, lacks what its successors took.
            is_deposed = leader != cluster.state("orders", self.name.partition).leader
            assert is_deposed or done.error is not ErrorCode.out_of_order_sequence_number, done
            return None
        told: Future[ErrorCode] = cluster.world.loop.create_future()
        outcome = node.do(
            partition.when_acknowledged,
            done.last_offset,
            -1,
            lambda code: None if told.done() else told.set_result(code),
        )
        if not isinstance(outcome, ErrorCode):
            outcome = await told  # for ever, if the node goes down
        return done.first_offset if outcome is NONE else None


class Watch:
    """What was ever said to be committed, and by whom how far."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.committed: dict[TopicPartition, dict[int, bytes]] = {name: {} for name in NAMES}
        self.seen: dict[tuple[int, TopicPartition], tuple[object, int]] = {}
        self.leading: dict[tuple[int, int, TopicPartition], int] = {}

    def look(self) -> None:
        for node_id, node in sorted(self.cluster.nodes.items()):
            if not node.is_started or not node.env.incarnation.alive:
                continue
            for name, partition in node.manager.partitions.items():
                self.look_at(node_id, name, partition)

    def look_at(self, node_id: int, name: TopicPartition, partition: Partition) -> None:
        if partition.closed is not None:
            return
        high_watermark = partition.high_watermark
        if partition.is_leader:
            key = (id(partition), partition.leader_epoch, name)
            assert high_watermark >= self.leading.get(key, 0), "a leader's watermark went back"
            self.leading[key] = high_watermark
        before, seen = self.seen.get((node_id, name), (None, 0))
        if before is not partition:
            seen = 0  # another start: all of it is looked at
        if high_watermark <= seen:
            return
        truth = self.committed[name]
        for segment, position, header in partition.log.headers_from(seen, high_watermark):
            if header.last_offset >= high_watermark:
                break
            data = segment.file().read(position, header.size)
            known = truth.setdefault(header.base_offset, data)
            assert known == data, f"{name} at {header.base_offset} differs on node {node_id}"
        self.seen[node_id, name] = (partition, high_watermark)


class Campaign:
    def __init__(self, world: World, *, flush_policy: str) -> None:
        self.world = world
        self.rng = world.stream("campaign")
        self.flush_policy = flush_policy
        self.cluster = Cluster(world, replica_lag_time_max_ms="2000")
        self.watch = Watch(self.cluster)
        self.is_over = False
        self.down: dict[int, bool] = {}  # and whether its power went
        self.cuts: list[tuple[str, str]] = []
        self.producers = [Producer(self, number, NAMES[number % 3]) for number in range(5)]
        self.history: list[str] = []

    async def run(self, seconds: float) -> None:
        cluster = self.cluster
        await cluster.start()
        cluster.create(
            partitions=PARTITIONS, min_insync_replicas="2", flush_policy=self.flush_policy,
            segment_ms="3000",
        )  # fmt: skip
        tasks = [self.world.loop.create_task(each.go()) for each in self.producers]
        tasks.append(self.world.loop.create_task(self.watching()))
        end = self.world.loop.time() + seconds
        while self.world.loop.time() < end:
            await sleep(self.rng.uniform(0.1, 2.0))
            self.check(tasks)
            await self.something()
        await self.recover()
        self.check(tasks)
        self.is_over = True
        for task in tasks:
            await task
        await self.settle()
        self.compare()

    def check(self, tasks: list[Task[None]]) -> None:
        for task in tasks:
            if task.done():
                task.result()

    async def watching(self) -> None:
        while not self.is_over:
            self.watch.look()
            await sleep(0.02)

    # -- what happens ----------------------------------------------------------------------------------

    async def something(self) -> None:
        cluster, rng = self.cluster, self.rng
        up = [node for node in NODES if node not in self.down]
        node = rng.choice(up) if up else 0
        choices: list[tuple[str, Callable[[], None]]] = [("nothing", lambda: None)]
        if up:
            choices += [
                ("kill", lambda: self.take_down(node, power=False)),
                ("power", lambda: self.take_down(node, power=self.flush_policy == "ack")),
                ("pause", lambda: self.pause(node)),
                ("fence", lambda: self.fence(node)),
                ("isolate", lambda: self.isolate(node)),
                ("cut", lambda: self.cut(*rng.sample(NODES, 2))),
                ("full", lambda: self.fill(node)),
                ("slow", lambda: self.slow(node)),
                ("lead", lambda: self.move_leader(rng.randrange(PARTITIONS))),
            ]
        name, act = rng.choice(choices)
        self.history.append(f"{self.world.loop.time():.3f} {name} {node}")
        act()
        if self.down and rng.random() < 0.5:
            await self.bring_back(rng.choice(sorted(self.down)))
        if rng.random() < 0.4:
            self.heal()
        if not self.down and rng.random() < 0.1:
            for each in rng.sample(NODES, 3):  # the lights go out
                self.take_down(each, power=self.flush_policy == "ack")
        assert cluster.world.deaths == []

    def take_down(self, node: int, *, power: bool) -> None:
        self.cluster.deaf.discard(node)
        self.cluster.cut_off.discard(node)
        if power:
            self.cluster.crash(node)
        else:
            self.cluster.kill(node)
        self.down[node] = power
        self.fence(node)

    async def bring_back(self, node: int) -> None:
        power = self.down.pop(node)
        cluster = self.cluster
        cluster.world.restart(f"node-{node}")
        await cluster.start(node)
        if power:  # it may have lost what it had not synced
            self.leave_isr(node)
        cluster.register(node)
        self.unfence(node)

    def pause(self, node: int) -> None:
        if not self.cluster[node].env.incarnation.paused:
            self.world.pause(f"node-{node}")
            self.fence(node)

    def isolate(self, node: int) -> None:
        self.world.net.isolate(f"node-{node}")
        self.cluster.deaf.add(node)
        self.cluster.cut_off.add(node)
        if self.rng.random() < 0.8:
            self.fence(node)

    def cut(self, one: int, other: int) -> None:
        self.world.net.cut(f"node-{one}", f"node-{other}", one_way=self.rng.random() < 0.5)

    def fill(self, node: int) -> None:
        faults = self.world.disk(f"node-{node}").faults
        path = f"*orders-{self.rng.randrange(PARTITIONS)}*"
        faults.fail("append", path=path, number=28, times=self.rng.randrange(1, 30))

    def slow(self, node: int) -> None:
        self.world.disk(f"node-{node}").faults.sync_s = (0.1, 1.0)

    def heal(self) -> None:
        self.world.heal()
        for node in NODES:
            if node not in self.down:
                self.cluster.deaf.discard(node)
                self.cluster.cut_off.discard(node)
                self.cluster.spread(node)
                self.unfence(node)

    # -- what the controller does ----------------------------------------------------------------------

    def is_fenced(self, node: int) -> bool:
        return self.fenced.get(node, False)

    @property
    def fenced(self) -> dict[int, bool]:
        return self.__dict__.setdefault("_fenced", {})

    def fence(self, node: int) -> None:
        self.fenced[node] = True
        self.cluster.change_broker(node, fenced=True)
        self.leave_isr(node)

    def leave_isr(self, node: int) -> None:
        for index in range(PARTITIONS):
            state = self.cluster.state("orders", index)
            isr = tuple(each for each in state.isr if each != node)
            if not isr:
                isr = state.isr  # the last one stays: it alone is known to have everything
            self.change(index, isr, give_up=node)

    def change(self, index: int, isr: tuple[BrokerId, ...], *, give_up: int) -> None:
        state = self.cluster.state("orders", index)
        if state.leader not in (give_up, NO_LEADER):
            if isr != state.isr:
                self.cluster.change(index=index, isr=isr)
            return
        alive = [each for each in isr if not self.is_fenced(each)]
        leader = self.rng.choice(alive) if alive else NO_LEADER
        if (leader, isr) != (state.leader, state.isr):
            self.cluster.elect(leader, index=index, isr=isr)

    def unfence(self, node: int) -> None:
        if not self.is_fenced(node):
            return
        self.fenced[node] = False
        self.cluster.change_broker(node, fenced=False)
        for index in range(PARTITIONS):
            state = self.cluster.state("orders", index)
            if state.leader == NO_LEADER:
                self.change(index, state.isr, give_up=NO_LEADER)

    def move_leader(self, index: int) -> None:
        state = self.cluster.state("orders", index)
        alive = [each for each in state.isr if not self.is_fenced(each)]
        if alive and state.leader != NO_LEADER:
            self.cluster.elect(self.rng.choice(alive), index=index)

    # -- how it ends -----------------------------------------------------------------------------------

    async def recover(self) -> None:
        for node in sorted(self.down):
            await self.bring_back(node)
        self.heal()
        await self.cluster.until(self.all_in_sync, seconds=120)
        counts = [len(each.acknowledged) for each in self.producers]
        await self.cluster.until(
            lambda: all(
                len(each.acknowledged) > count
                for each, count in zip(self.producers, counts, strict=True)
            )
        )

    def all_in_sync(self) -> bool:
        return all(len(self.cluster.state("orders", index).isr) == 3 for index in range(PARTITIONS))

    async def settle(self) -> None:
        def equal() -> bool:
            ends = [
                {self.cluster[node].partition(name).high_watermark for node in NODES}
                | {self.cluster[node].partition(name).log_end_offset for node in NODES}
                for name in NAMES
            ]
            return all(len(each) == 1 for each in ends)

        await self.cluster.until(equal)
        self.watch.look()

    def compare(self) -> None:
        for name in NAMES:
            first, *others = [self.cluster[node].partition(name) for node in NODES]
            for other in others:
                assert log_bytes(first) == log_bytes(other)
            values = values_of(first)
            assert len(values) == len(set(values)), "something is there twice"
            for partition in (first, *others):
                assert known(partition.producers.states()) == replayed(partition)
            for producer in self.producers:
                if producer.name == name:
                    mine = [each for each in values if each.startswith(b"%d:" % producer.pid)]
                    acknowledged = [value for value, _ in producer.acknowledged]
                    assert mine[: len(acknowledged)] == acknowledged
                    assert len(mine) <= len(acknowledged) + 1
                    for value, offset in producer.acknowledged:
                        assert values[offset] == value


def campaign(seed: int, *, seconds: float = 30.0, flush_policy: str = "ack") -> Campaign:
    with World(f"replication {seed} {flush_policy}") as world:
        run = Campaign(world, flush_policy=flush_policy)
        try:
            world.run(run.run(seconds))
        except BaseException as error:
            error.add_note("\n".join(run.history[-20:]))
            raise
    return run
