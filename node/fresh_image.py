"""Whether what this node knows of the cluster is of now: asked before memory answers for what others may have been given.

INVARIANT  once confirmed, the image has all that the cluster had agreed on when it was asked.
PREVENTS   a coordinator that slept, or was cut off, while its partition was given to another, and for the first moment
           afterwards tells a consumer the positions of long ago: it reads again what it has committed as read.
PROVED BY  tests/sim/test_cluster_coordinators.py::test_a_coordinator_that_slept_tells_nobody_positions_of_long_ago

The quorum's leader is asked, all who wait share a question. Without a majority of the voters nobody can say, and nothing is
told: the last node that lives can't know what the others did before they died. Kafka answers from memory, whatever has
become of the lead meanwhile.

That it leads still the quorum's leader asks a majority, whoever wants to know: its lease goes by a clock, which stands
still while a machine is suspended as a whole.
"""

import asyncio
from collections.abc import Sequence
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
# Long: librdkafka gives a partition up for which it is told NOT_COORDINATOR, until the next rebalance. And below the 30 s
# that Java's clients wait for an answer.
CONFIRM_S: Final = 20.0
# For what clients ask again, and what holds up all else that comes over its connection.
ANSWER_S: Final = 2.0
ASK_S: Final = 1.0
RETRY_S: Final = 0.05

Waiting = asyncio.Future[None]


class FreshImage:
    def __init__(self, env: Env, quorum: Quorum, image: ClusterImage, door: PeerDoor) -> None:
        self._env = env
        self._quorum = quorum
        self._image = image
        self._door = door
        self._waiting: list[Waiting] = []
        self._changed: Waiting | None = None
        self._asking = False
        door.on_request(KIND, self._serve)

    async def confirm(self, within_s: float = CONFIRM_S) -> bool:
        """False when nobody can say."""
        waiting: Waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if not self._asking:
            self._asking = True
            self._env.tasks.spawn(self._ask_for_all(), name="confirm image")
        try:
            async with asyncio.timeout(within_s):
                await waiting
        except TimeoutError:
            return False
        return True

    def on_image(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _ask_for_all(self) -> None:
        """Whoever comes while a question is on its way waits for the next: the answer may be of before he came."""
        try:
            while waiting := _left(self._waiting):
                self._waiting = waiting
                together = [*waiting]
                version = await self._version()
                if version is None:
                    await self._env.clock.sleep(RETRY_S)
                    continue
                while self._image.version < version and _left(together):
                    await self._change()
                for each in _left(together):
                    each.set_result(None)
        finally:
            self._asking = False

    async def _change(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ASK_S):
                await self._changed
        except TimeoutError:
            pass  # whoever waits may have gone meanwhile

    async def _version(self) -> int | None:
        """Of the image of whoever leads the quorum now."""
        leader_id = self._quorum.leader_id
        if self._quorum.is_leader:
            return self._image.version if await self._quorum.confirm_lead() else None
        if leader_id is None or leader_id == self._quorum.node_id:
            return None
        try:
            said, _ = await self._door.request(leader_id, KIND, {}, timeout_s=ASK_S)
            return _read(leader_id, said)
        except Trouble as trouble:
            # While the nodes are given a new build, memory answers as it did in the old one.
            return self._image.version if UNKNOWN in str(trouble) else None

    async def _serve(
        self, _peer_id: BrokerId, _header: dict[str, Any], _payload: memoryview
    ) -> tuple[dict[str, Any], Buffer]:
        if not await self._quorum.confirm_lead():
            raise NotController(self._quorum.leader_id)
        return {"version": self._image.version}, b""


def _left(waiting: Sequence[Waiting]) -> list[Waiting]:
    return [each for each in waiting if not each.done()]


def _read(leader_id: BrokerId, said: dict[str, Any]) -> int:
    match said:
        case {"version": int(version)}:
            return version
        case _:
            raise FrameRefused(f"node {leader_id} gave no image version: {said!r:.200}")
