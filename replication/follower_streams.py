"""Which partitions this node follows, and whom: as the metadata log says, one stream a leader."""

import asyncio
from typing import Final
from uuid import UUID

from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import (
    NO_BROKER_EPOCH,
    ImageDelta,
    PartitionState,
    TopicState,
)

from .follower_copy import Copy
from .follower_machine import Phase
from .manager import ReplicaManager
from .peers import Door
from .stream_frames import UNLIMITED
from .streams_follower import FollowerStream
from .throttle_machine import ByteBucket

# How often a leader that hears nothing else hears that we live. One small frame a stream, not one a partition.
BEAT_S: Final = 0.25
GRANT_BYTES: Final = 256 << 10


class FollowerStreams:
    """One `FollowerStream` a leader."""

    def __init__(self, env: Env, manager: ReplicaManager, door: Door) -> None:
        self.manager = manager
        self.door = door
        self._env = env
        self._streams: dict[BrokerId, FollowerStream] = {}
        self._followed: dict[tuple[UUID, int], FollowerStream] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._throttle = ByteBucket()
        self._grants = False  # some may have been limited in the last round

    def start(self) -> None:
        self._tasks.append(self._env.tasks.spawn(self._beat(), name="replication beats"))
        for topic, state in self.manager.image.partitions_of(self.manager.node_id):
            self._look(topic, state)

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def broker_epoch(self) -> int:
        """None before this process is registered: what the image has is that of the one that was here before."""
        me = self.manager.image.brokers.get(self.manager.node_id)
        return me.broker_epoch if me is not None and self.manager.is_registered else NO_BROKER_EPOCH

    def on_image(self, delta: ImageDelta) -> None:
        for topic in delta.topics_deleted:
            for index in range(len(topic.partitions)):
                self._forget((topic.topic_id, index))
        for topic, state in delta.partitions_changed:
            self._look(topic, state)
        if self.manager.node_id in delta.brokers_changed:
            self.tell_broker_epoch()

    def look_again(self) -> None:
        manager = self.manager
        for topic, state in list(manager.image.partitions_of(manager.node_id)):
            self._look(topic, state)

    def tell_broker_epoch(self) -> None:
        for stream in self._streams.values():
            stream.tell_broker_epoch()

    def peer_is_up(self, node_id: BrokerId) -> None:
        if node_id in self._streams:
            self._streams[node_id].kick()

    def _look(self, topic: TopicState, state: PartitionState) -> None:
        name = (topic.topic_id, state.partition)
        me = self.manager.node_id
        partition = self.manager.partitions.get(TopicPartition(topic.name, state.partition))
        if (
            partition is None
            or partition.topic_id != topic.topic_id
            or me not in state.replicas
            or state.leader < 0
            or not partition.follows(state.leader_epoch)
        ):
            self._forget(name)
            return
        stream = self._followed.get(name)
        if stream is not None:
            copy = stream.copies.get(name)
            if (
                copy is not None
                and copy.partition is partition
                and copy.machine.leader_epoch == state.leader_epoch
            ):
                return  # only the ISR changed
            self._forget(name)
        stream = self._followed[name] = self._stream_to(state.leader)
        stream.follow(partition)

    def _forget(self, name: tuple[UUID, int]) -> None:
        stream = self._followed.pop(name, None)
        if stream is not None and name in stream.copies:
            stream.forget(stream.copies[name])

    def _stream_to(self, leader_id: BrokerId) -> FollowerStream:
        stream = self._streams.get(leader_id)
        if stream is None:
            stream = self._streams[leader_id] = FollowerStream(self._env, self, leader_id)
            task = self._env.tasks.spawn(stream.run(), name=f"following node {leader_id}")
            self._tasks.append(task)
        return stream

    async def _beat(self) -> None:
        while True:
            await self._env.clock.sleep(BEAT_S)
            for stream in self._streams.values():
                stream.beat()
            self._grant()

    @property
    def is_limited(self) -> bool:
        self._throttle.set_rate(self.manager.follower_throttled_rate)
        if self._throttle.is_limited:
            self._grants = True  # whoever is told so now has to be told when it is over
        return self._throttle.is_limited

    def _grant(self) -> None:
        """follower.replication.throttled.rate: share out what may come now, over all leaders."""
        if not self.is_limited and not self._grants:
            return
        grants: dict[Copy, None] = {}
        hungry: list[Copy] = []
        untold = False
        for stream in self._streams.values():
            for copy in stream.copies.values():
                if copy.machine.phase is not Phase.FOLLOWING:
                    # Its leader may not know what a grant would be for.
                    untold |= copy.granted != UNLIMITED
                elif not self._throttle.is_limited or not copy.is_throttled:
                    if copy.granted != UNLIMITED:
                        copy.granted = UNLIMITED
                        grants[copy] = None
                elif copy.granted == UNLIMITED:
                    copy.granted = copy.taken
                    grants[copy] = None
                elif copy.granted - copy.taken < GRANT_BYTES:
                    hungry.append(copy)
        self._grants = self._throttle.is_limited or untold
        room = self._throttle.available(self._env.clock.steady()) if hungry else 0
        share = room // len(hungry) if hungry else 0
        if share > 0:
            for copy in hungry:
                copy.granted += share
                grants[copy] = None
            self._throttle.take(share * len(hungry))
        for stream in self._streams.values():
            mine = [copy for copy in grants if copy.stream is stream]
            if mine:
                stream.grant(mine)
