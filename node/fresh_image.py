"""Whether what this node knows of the cluster is of now: asked before memory answers for what others may have been given.

INVARIANT  once confirmed, the image has all that the cluster had agreed on when it was asked.
PREVENTS   a coordinator that slept, or was cut off, while its partition was given to another, and for the first moment
           afterwards tells a consumer the positions of long ago: it reads again what it has committed as read.
PROVED BY  tests/sim/test_cluster_coordinators.py::test_a_coordinator_that_slept_tells_nobody_positions_of_long_ago

The quorum's leader is asked, which knows by its lease that it still leads; all who wait share a question. This is Raft's
read index (dissertation, §6.4). Kafka answers from memory, whatever has become of the lead meanwhile.
"""

import asyncio
from typing import Any, Final

from fencepost.cluster.base.errors import FrameRefused, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.controller.service import NotController
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.cluster.wire.peer_door import PeerDoor

KIND: Final = "image version"
UNKNOWN: Final = "knows no request"  # what the door of an older build says
# All attempts together: above an election, and below what a client's request waits.
CONFIRM_S: Final = 3.0
ASK_S: Final = 1.0
RETRY_S: Final = 0.05


class FreshImage:
    def __init__(self, env: Env, quorum: Quorum, image: ClusterImage, door: PeerDoor) -> None:
        self._env = env
        self._quorum = quorum
        self._image = image
        self._door = door
        self._asking = False
        self._waiting: list[asyncio.Future[bool]] = []
        self._changed: asyncio.Future[None] | None = None
        self._gone: set[BrokerId] = set()  # their processes are dead, as the door says
        door.on_request(KIND, self._serve)
        door.on_gone(self._gone.add)
        door.on_up(self._gone.discard)

    async def confirm(self) -> bool:
        """False when nobody can say."""
        if self._quorum.is_leader:
            return True
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if not self._asking:
            self._asking = True
            self._env.tasks.spawn(self._ask_for_all(), name="confirm image")
        return await waiting

    def on_image(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _ask_for_all(self) -> None:
        """Whoever comes while a question is on its way waits for the next: the answer may be of before he came."""
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                found = await self._ask()
                for waiting in together:
                    if not waiting.done():  # its client may have gone
                        waiting.set_result(found)
        finally:
            self._asking = False

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(CONFIRM_S):
                version = await self._version()
                while self._image.version < version:
                    self._changed = asyncio.get_running_loop().create_future()
                    await self._changed
        except TimeoutError:
            return False
        return True

    async def _version(self) -> int:
        while not (self._quorum.is_leader or self._is_left_alone):
            leader_id = self._quorum.leader_id
            try:
                if leader_id is not None and leader_id != self._quorum.node_id:
                    said, _ = await self._door.request(leader_id, KIND, {}, timeout_s=ASK_S)
                    return _read(leader_id, said)
            except Trouble as trouble:
                if UNKNOWN in str(trouble):
                    break  # while the nodes are given a new build, memory answers as it did in the old one
                # else another leads, or will in a moment
            await self._env.clock.sleep(RETRY_S)
        return self._image.version

    @property
    def _is_left_alone(self) -> bool:
        """The last that lives goes on telling what it knows: nobody is there who could know more."""
        others = [each for each in self._quorum.voters if each != self._quorum.node_id]
        return self._gone.issuperset(others)

    async def _serve(
        self, _peer_id: BrokerId, _header: dict[str, Any], _payload: memoryview
    ) -> tuple[dict[str, Any], Buffer]:
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        return {"version": self._image.version}, b""


def _read(leader_id: BrokerId, said: dict[str, Any]) -> int:
    match said:
        case {"version": int(version)}:
            return version
        case _:
            raise FrameRefused(f"node {leader_id} gave no image version: {said!r:.200}")
