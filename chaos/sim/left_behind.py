"""A node is left behind: it sleeps, or is cut off, until others lead what it led, and the first who comes asks it.

INVARIANT  what is asked of the old leader is asked behind an answer of the new one, and before the old one can have heard
           of anybody but who asks.
PREVENTS   answers from memory that nobody looks for: clients of workloads have written to the old coordinator, which waits
           for that, or find the new one first, and are never the first to ask the old one.
PROVED BY  tests/sim/test_aimed_faults.py::test_who_is_left_behind_tells_nobody_what_it_remembers

A scene has several matters, all of the same old leader: a group's position, where a partition ends, and (in
`aimed_transactions.py`) a transaction. Each is begun at the old leader, goes on at the new one, is asked for at the old
one, and ends at the new one. The judges are those of everybody else: `checkers/group_offsets.py`, `committed.py`, `decisions.py`.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, BrokerId, TopicPartition
from fencepost.cluster.wire.api import ApiKey

from ..checkers.observations import Position, Told
from ..workloads.cluster_client import LATEST
from ..workloads.cluster_offsets import COMMIT_VERSION, FETCH_VERSION
from ..workloads.cluster_stream import ANY_EPOCH
from ..workloads.txn_answers import error_of
from .bystander import Bystander, GivenUp
from .cluster_nodes import node_name

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

ANSWERED_S: Final = 4.0
# A session of a broker's (3 s), an election of the quorum before that, and the new leader's beginning.
SUCCEEDED_S: Final = 10.0
KEYS_MAX: Final = 20
SETTLED_S: Final = 1.0
LIST_OFFSETS_VERSION: Final = 7
OF_CAMPAIGNS: Final = ("stream", "bank")  # a topic that is there: a position is one of a partition


class Matter(Protocol):
    """Something that a partition's leader is asked. `place` is that partition."""

    place: TopicPartition

    async def begin(self) -> None:
        """At whoever leads; GivenUp when nobody does."""

    async def go_on(self) -> None:
        """At who leads now: the old leader knows nothing of it."""

    async def ask(self, node_id: BrokerId) -> str:
        """The old one; its word. Trouble when it does not answer."""

    async def end(self) -> None:
        """At who leads now."""


class Positions:
    """A group commits a position, and a newer one; whoever asks afterwards finds that, or is sent away."""

    def __init__(self, scene: "Scene", group: str, place: TopicPartition) -> None:
        self.place = place
        self._by = scene.by
        self._told = scene.faults.watch.positioned
        self._group = group
        image = scene.faults.nodes.image
        assert image is not None, "there was one when the place was found"
        self._topic = next(name for name in OF_CAMPAIGNS if name in image.topics)
        self.newest = 0  # that was to be stored
        self.found = -1  # of all that was told, the newest

    async def begin(self) -> None:
        await self._commit()

    async def go_on(self) -> None:
        await self._commit()

    async def end(self) -> None:
        await self._by.ask_leader(self.place, self.find, within_s=ANSWERED_S)

    async def ask(self, node_id: BrokerId) -> str:
        return error_of(await self.find(node_id)).name

    async def _commit(self) -> None:
        self.newest += 1
        newest = self.newest
        await self._by.ask_leader(
            self.place, lambda node_id: self.store(node_id, newest), within_s=ANSWERED_S
        )

    async def store(self, node_id: int, offset: int) -> object:
        """Once; what became of it is told as a client knows it."""
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        self._told(Position(self._group, "sent", offset))
        reply = await self._by.ask(
            node_id,
            ApiKey.offset_commit,
            COMMIT_VERSION,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": self._topic, "partitions": [row]}],
        )
        # A refusal is not told: the same position is sent once more, and an earlier try may be stored yet.
        if error_of(reply) is ErrorCode.none:
            self._told(Position(self._group, "ok", offset))
        return reply

    async def find(self, node_id: int, *, by: Bystander | None = None) -> object:
        """`by` another, over whose connections nothing waits."""
        topics = [{"name": self._topic, "partition_indexes": [0]}]
        reply = await (by or self._by).ask(
            node_id,
            ApiKey.offset_fetch,
            FETCH_VERSION,
            group_id=self._group,
            topics=topics,
            require_stable=True,
        )
        if error_of(reply) is ErrorCode.none:
            found = reply.topics[0].partitions[0].committed_offset
            self.found = max(self.found, found)
            self._told(Position(self._group, "read", found))
        return reply


class Ends:
    """Where a partition ends. Others write to it all the while."""

    def __init__(self, scene: "Scene", name: str, place: TopicPartition) -> None:
        self.place = place
        self._by = scene.by
        self._told = scene.faults.watch.told
        self._nodes = scene.faults.nodes
        self._name = f"{name}'s ListOffsets"

    async def begin(self) -> None:
        await self._by.ask_leader(self.place, self._find, within_s=ANSWERED_S)

    go_on = end = begin

    async def ask(self, node_id: BrokerId) -> str:
        return error_of(await self._find(node_id)).name

    async def _find(self, node_id: int) -> object:
        image = self._nodes.image
        if image is None or self.place.topic not in image.topics:
            raise GivenUp(f"{self.place} was deleted")
        key = f"{image.topics[self.place.topic].topic_id}-{self.place.partition}"
        wanted = {
            "partition_index": self.place.partition,
            "current_leader_epoch": -1,
            "timestamp": LATEST,
        }
        reply = await self._by.ask(
            node_id,
            ApiKey.list_offsets,
            LIST_OFFSETS_VERSION,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": self.place.topic, "partitions": [wanted]}],
        )
        if error_of(reply) is ErrorCode.none:
            end = reply.topics[0].partitions[0].offset
            self._told(Told(self._name, key, ANY_EPOCH, end))
        return reply


class Scene:
    """One at a time: with two nodes left behind there would be no majority that goes on."""

    def __init__(self, faults: "ClusterFaults") -> None:
        self.faults = faults
        self.by = Bystander(faults)
        faults.scenes += 1
        self.name = f"scene-{faults.scenes}"  # of its groups and transactional ids
        self._cut: list[tuple[str, str]] = []

    async def positions(self, *, led_by: BrokerId | None = None) -> Positions | None:
        """Of a group that this node coordinates."""
        for number in range(KEYS_MAX):
            group = f"{self.name}-{number}"
            place = await self.by.place_of(GROUP_OFFSETS_TOPIC, group)
            if led_by is None or self.faults.nodes.leader(*place) == led_by:
                return Positions(self, group, place)
        return None

    def ends(self, topics: Sequence[str], *, led_by: BrokerId) -> Ends | None:
        image = self.faults.nodes.image
        if image is None:
            return None
        led = [
            TopicPartition(topic, state.partition)
            for topic in topics
            if topic in image.topics
            for state in image.topics[topic].partitions
            if state.leader == led_by
        ]
        return Ends(self, self.name, self.faults.rng.choice(led)) if led else None

    async def play(self, matters: Sequence[Matter]) -> None:
        """GivenUp when something else keeps it from being played."""
        for matter in matters:
            await matter.begin()
        # What waits to be committed keeps a coordinator from answering at all.
        await asyncio.sleep(self.faults.rng.random() * SETTLED_S)
        old = self.faults.nodes.leader(*matters[0].place)
        if old is None or self.faults.nodes.is_paused(old):
            raise GivenUp("it is moving")
        matters = [each for each in matters if self.faults.nodes.leader(*each.place) == old]
        wakes = self._leave_behind(old)
        try:
            for matter in matters:
                await self.until_succeeded(matter.place, old)
                await matter.go_on()
            wakes()
            if self.faults.nodes.is_up(old):
                await self._ask_all(matters, old)
        finally:
            wakes()
            self.join()
        for matter in matters:
            await matter.end()

    async def _ask_all(self, matters: Sequence[Matter], old: BrokerId) -> None:
        asked = await asyncio.gather(*(each.ask(old) for each in matters), return_exceptions=True)
        for matter, each in zip(matters, asked, strict=True):
            if isinstance(each, BaseException) and not isinstance(each, Trouble | GivenUp):
                raise each
            what = f"{each!r}" if isinstance(each, BaseException) else each
            event = {"matter": type(matter).__name__, "place": str(matter.place), "told": what}
            self.faults.world.trace.event("chaos", "asked", node=old, **event)

    def _leave_behind(self, node_id: BrokerId) -> "_Wakes":
        """It hears of nobody any more but of the bystander; perhaps it sleeps meanwhile. What wakes it."""
        world, name = self.faults.world, node_name(node_id)
        self.part(node_id)
        stop = self.faults.rng.choice((None, world.pause, world.suspend))
        if stop is None or not world.is_up(name):
            return _Wakes(self.faults, "")
        stop(name)
        return _Wakes(self.faults, name)

    def part(self, node_id: BrokerId) -> None:
        """From all other nodes and all clients but the bystander."""
        name = node_name(node_id)
        others = [*self.faults.nodes.names, *self.faults.clients]
        for other in others:
            if other != name:
                self.faults.world.net.cut(name, other)
                self._cut.append((name, other))

    def join(self) -> None:
        for pair in self._cut:
            self.faults.world.net.heal(*pair)
        self._cut.clear()

    async def until_succeeded(self, place: TopicPartition, old: BrokerId) -> BrokerId:
        """Until others have another leader."""
        nodes, loop = self.faults.nodes, self.faults.world.loop
        end = loop.time() + SUCCEEDED_S
        while (leader := nodes.leader(*place)) in (None, old) or not nodes.is_up(leader):
            if loop.time() > end:
                raise GivenUp(f"nobody leads {place} after {old}")
            await asyncio.sleep(0.05)
        return leader


class _Wakes:
    """Once, if it is still what was put to sleep."""

    def __init__(self, faults: "ClusterFaults", name: str) -> None:
        self._world = faults.world
        self._name = name
        self._env = faults.world.node(name) if name else None

    def __call__(self) -> None:
        env, self._env = self._env, None
        if env is not None and env.incarnation.alive and env.incarnation.paused:
            self._world.resume(self._name)
