"""Everything between this node's partitions and the same partitions on other nodes: made once, next to the manager.

`on_image` comes after the manager's, so that roles and epochs here are those of the image.
"""

from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ImageDelta

from . import stream_frames as frames
from .follower_streams import FollowerStreams
from .isr_shell import IsrWish, ProposeIsr
from .leader_streams import LeaderStreams
from .manager import ReplicaManager
from .peers import Door

__all__ = ["IsrWish", "ProposeIsr", "Replication"]


class Replication:
    def __init__(
        self, env: Env, manager: ReplicaManager, door: Door, propose_isr: ProposeIsr
    ) -> None:
        self._is_running = False
        self.leading = LeaderStreams(env, manager, propose_isr)
        self.following = FollowerStreams(env, manager, door)
        door.on_stream(frames.STREAM, self.leading.serve)
        door.on_up(self.following.peer_is_up)

    async def start(self) -> None:
        """After the manager's start; before this node is unfenced, so that it comes back caught up."""
        self._is_running = True
        self.leading.start()
        self.following.start()

    def registered(self) -> None:
        """After `ReplicaManager.lead`, which may have begun logs anew."""
        self.following.look_again()
        self.following.tell_broker_epoch()

    async def stop(self) -> None:
        """Before the manager's stop: nothing is appended or counted after it."""
        self._is_running = False
        await self.following.stop()
        await self.leading.stop()

    def on_image(self, delta: ImageDelta) -> None:
        """After `ReplicaManager.on_image` of the same delta."""
        if self._is_running:
            self.following.on_image(delta)
            self.leading.on_image(delta)
