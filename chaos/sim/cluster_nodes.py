"""The nodes of a simulated cluster: their settings, their starts and stops, and who leads what right now.

Node i is machine `node-i`: client door 9092, peer door 9192, data in `/data`. Up to three of them vote.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import ClusterImage, PartitionState
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig

from .cluster_builds import NEW, Build, tells
from .node import SimEnv
from .world import World

CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9192
VOTERS_MAX: Final = 3


def node_name(node_id: int) -> str:
    return f"node-{node_id}"


def node_config(node_id: int, nodes: int, extra: Sequence[str] = ()) -> NodeConfig:
    copies = min(3, nodes)
    flags = [
        f"node.id={node_id}",
        f"listeners=PLAINTEXT://0.0.0.0:{CLIENT_PORT}",
        f"advertised.listeners=PLAINTEXT://{node_name(node_id)}:{CLIENT_PORT}",
        "log.dirs=/data",
        f"default.replication.factor={copies}",
        f"min.insync.replicas={min(2, copies)}",
        f"offsets.topic.replication.factor={copies}",
        "offsets.topic.num.partitions=2",
        # A clock that was set wrong must not end the producers: their own clocks are right.
        "log.message.timestamp.after.max.ms=9223372036854775807",
        # Small, so that rolls, snapshots and retention checks happen in every run.
        "log.internal.segment.bytes=4096",
        "log.index.interval.bytes=256",
        # A clock a day ahead may make nothing old but what retention is asked to remove.
        "log.retention.ms=-1",
        "log.retention.check.interval.ms=500",
        *_peer_flags(node_id, nodes),
        *extra,
    ]
    return NodeConfig.load(flags=flags, environment={}, file=None)


def _peer_flags(node_id: int, nodes: int) -> list[str]:
    if nodes == 1:
        return []
    voters = range(1, min(nodes, VOTERS_MAX) + 1)
    return [
        "controller.quorum.voters="
        + ",".join(f"{voter}@{node_name(voter)}:{PEER_PORT}" for voter in voters),
        f"peer.listener=0.0.0.0:{PEER_PORT}",
        f"peer.advertised.listener={node_name(node_id)}:{PEER_PORT}",
        "peer.secret=of-this-cluster",
        "replica.lag.time.max.ms=1500",  # Kafka's 30 s would outlast most faults of a run
    ]


class ClusterNodes:
    """`on_start` is told of every broker before it starts: whoever watches hooks itself in there."""

    def __init__(
        self,
        world: World,
        count: int,
        *,
        config: Sequence[str] = (),
        on_start: Callable[[int, SimEnv, Broker], None] | None = None,
    ) -> None:
        self.world = world
        self.ids = [BrokerId(place) for place in range(1, count + 1)]
        self.newest_id = self.ids[-1]
        self.voters = self.ids[:VOTERS_MAX]
        self.brokers: dict[BrokerId, Broker] = {}
        self.builds: dict[int, Build] = {}  # of their next start; the newest where none is named
        self.running: dict[
            str, Build
        ] = {}  # by name: what runs there now, where it is an older one
        self.rotten: BrokerId | None = None  # bits of a file of its disk have flipped
        self.has_rotted = False  # a disk, at any time
        # Why what has flipped there can't be mended yet: its node has not found it.
        self.unfound: Callable[[], str] = lambda: ""
        self.emptied: set[BrokerId] = set()  # whose disk was replaced by an empty one
        self._config = config
        self._on_start = on_start

    @property
    def names(self) -> list[str]:
        return [node_name(id_) for id_ in self.ids]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(name, CLIENT_PORT) for name in self.names]

    # Starting and stopping.

    def start(self, node_id: int) -> Broker:
        """A new process on the node's machine; its broker starts as one of its tasks."""
        env = self.world.restart(node_name(node_id))
        broker = Broker(env, node_config(node_id, len(self.ids), self._config))
        self.brokers[BrokerId(node_id)] = broker
        build = self.running[node_name(node_id)] = self.builds.get(node_id, NEW)
        tells(build, broker.session)
        if self._on_start is not None:
            self._on_start(node_id, env, broker)
        self.world.start(env, lambda _: _serve(broker))
        return broker

    def start_all(self) -> None:
        for node_id in self.ids:
            if not self.is_up(node_id):
                self.start(node_id)

    async def stop(self, node_id: int) -> None:
        """A clean stop (SIGTERM), and the end of the process."""
        broker = self.brokers[BrokerId(node_id)]
        env = self.world.node(node_name(node_id))
        await self.world.on(env, broker.stop())
        self.world.kill(node_name(node_id))

    def rots(self, node_id: int) -> None:
        """Bits are about to flip on its disk."""
        self.rotten, self.has_rotted = BrokerId(node_id), True

    def check_damaged(self, answers: int) -> None:
        """A client is served damage, or told that there is some, where a disk has rotted."""
        assert self.has_rotted or not answers, f"{answers} damaged answers, and no disk has rotted"

    def is_up(self, node_id: int) -> bool:
        return self.world.is_up(node_name(node_id))

    def has_slept(self, node_id: int, within_s: float) -> bool:
        return self.world.has_slept(node_name(node_id), within_s)

    def is_paused(self, node_id: int) -> bool:
        env = self.world.machine(node_name(node_id)).env
        return env is not None and env.incarnation.paused

    # Who is what.

    def up(self) -> list[BrokerId]:
        return [id_ for id_ in self.ids if self.is_up(id_)]

    def ready(self) -> list[BrokerId]:
        return [id_ for id_ in self.up() if self.brokers[id_].is_ready]

    def broker(self, node_id: int) -> Broker:
        return self.brokers[BrokerId(node_id)]

    @property
    def image(self) -> ClusterImage | None:
        """The newest that a running node has."""
        images = [self.brokers[id_].image for id_ in self.up() if id_ in self.brokers]
        return max(images, key=lambda image: image.version, default=None)

    def controller(self) -> BrokerId | None:
        """Who leads the quorum in the highest term, and thinks so itself."""
        leading = [id_ for id_ in self.up() if self.brokers[id_].quorum.is_leader]
        return max(leading, key=lambda id_: self.brokers[id_].quorum.term, default=None)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        image = self.image
        return None if image is None else image.partition(topic, index)

    def leader(self, topic: str, index: int) -> BrokerId | None:
        state = self.partition(topic, index)
        return None if state is None or state.leader < 0 else state.leader

    # Waiting.

    async def until(self, what: str, done: Callable[[], str], *, within_s: float) -> None:
        """Until `done` has nothing to complain of any more; else that complaint, as an AssertionError."""
        end = self.world.loop.time() + within_s
        while complaint := done():
            if self.world.loop.time() >= end:
                raise AssertionError(f"no-progress: {what}: not within {within_s} s: {complaint}")
            await asyncio.sleep(0.05)

    async def until_none_waits(
        self, what: str, waiting: Callable[[], Collection[str]], *, within_s: float
    ) -> None:
        """Until nobody waits any more. Each says how far it is, and has `within_s` to go on from there; however far it has to go."""
        since_s: dict[str, float] = {}
        while left := waiting():
            now_s = self.world.loop.time()
            since_s = {each: since_s.get(each, now_s) for each in left}
            if still := [each for each in left if now_s - since_s[each] >= within_s]:
                raise AssertionError(f"no-progress: {what}: for {within_s} s: {'; '.join(still)}")
            await asyncio.sleep(0.05)

    async def until_ready(self, within_s: float = 30.0) -> None:
        def missing() -> str:
            late = [id_ for id_ in self.ids if id_ not in self.ready()]
            return f"not ready: {late}" if late else ""

        await self.until("the nodes start", missing, within_s=within_s)

    def not_whole(self) -> str:
        """What keeps the cluster from being as good as new: no leader, an ISR that is not full, a move under way."""
        if late := [id_ for id_ in self.ids if id_ not in self.ready()]:
            return f"not ready: {late}"
        image = self.image
        assert image is not None
        if fenced := [each.broker_id for each in image.brokers.values() if each.fenced]:
            return f"fenced: {fenced}"
        versions = {id_: self.brokers[id_].image.version for id_ in self.ids}
        if len(set(versions.values())) > 1:
            return f"images differ: {versions}"
        for name in sorted(image.topics):
            for state in image.topics[name].partitions:
                moving = state.adding or state.removing
                if state.leader < 0 or moving or sorted(state.isr) != sorted(state.replicas):
                    return f"{name}-{state.partition}: {state}"
        for id_ in self.ids:
            if offline := self.brokers[id_].replicas.offline:
                return f"offline on {id_}: {offline}"
        return ""

    def uncommitted(self) -> str:
        """What leaders have written and not committed. Nobody writes any more: nothing will push it on."""
        for id_ in self.up():
            for name, here in self.brokers[id_].replicas.partitions.items():
                if here.is_leader and here.high_watermark < here.log_end_offset:
                    at = here.high_watermark, here.log_end_offset
                    return f"{name} on {id_} is committed to {at[0]} of {at[1]}"
        return ""

    async def until_whole(self, within_s: float = 60.0) -> None:
        await self.until("the cluster heals", self.not_whole, within_s=within_s)


async def _serve(broker: Broker) -> None:
    await broker.start()
