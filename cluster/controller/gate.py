"""The way to the active controller from any node: here if it is here, else over the peer door.

INVARIANT  a command is sent again only if it surely was not done, or does no harm when it is done twice; and what
           was answered is applied here before the caller goes on.
PREVENTS   a topic created twice because its first answer was lost; a client that is told of a topic and finds none.
PROVED BY  tests/cluster/controller/test_gate.py::test_a_command_that_may_have_been_done_is_not_sent_again

While the quorum has no leader, and when a leader has just ceased to be one, a command waits and is tried again:
clients see a slow answer instead of an error. How long they wait is the handlers' business (`within_s`).
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from ..base.errors import DiskFull, FrameRefused, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Buffer, Env
from ..metadata.codec import BATCH_BYTES_MAX
from ..metadata.image import ImageDelta
from ..wire.peer_frames import PAYLOAD_MAX
from .command_codec import read_answer, read_command, write_answer, write_command
from .commands import (
    AllocateProducerIds,
    AlterPartition,
    AutoCreateTopics,
    BrokerHeartbeat,
    ControllerCommand,
    FormCluster,
    RegisterBroker,
    ReportDisk,
)
from .service import Agreement, Executes, NotController

R = TypeVar("R")
Said = tuple[dict[str, Any], memoryview]
Handler = Callable[
    [BrokerId, dict[str, Any], memoryview], Awaitable[tuple[Mapping[str, Any], Buffer]]
]

KIND: Final = "controller"
WITHIN_S: Final = 30.0  # Kafka's default.api.timeout.ms is twice as much; handlers mostly say less
RETRY_MIN_S, RETRY_MAX_S = 0.01, 0.1
# One that may be repeated is not waited for as long as the others: another leader may be there already.
REPEAT_AFTER_S: Final = 1.0
APPLY_WAIT_S: Final = 2.0
# As large as an entry of the metadata log may be: more than that it can't become. The answer to the largest fits a frame.
COMMAND_BYTES_MAX: Final = BATCH_BYTES_MAX
# Done twice they do no harm: what is the case already is answered, or refused by the epoch that they name.
REPEATABLE: Final = (
    AllocateProducerIds,
    AlterPartition,
    AutoCreateTopics,
    BrokerHeartbeat,
    FormCluster,
    RegisterBroker,
    ReportDisk,
)
# And of these each time is another record, which makes the one before it void: not asked again of who is about to answer.
_ANEW_EACH_TIME: Final = (AllocateProducerIds, RegisterBroker)
# Their answers tell of nothing that has to be seen here, and heartbeats come one after the other. On a full disk the image may stand.
_OF_A_SESSION: Final = (BrokerHeartbeat, ReportDisk)
# What a node may say of itself only.
_OF_ITSELF: Final = (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    RegisterBroker,
    ReportDisk,
)


class Door(Protocol):
    """What is used of the peer door (`cluster/wire/peer_door.py`)."""

    async def request(
        self,
        node_id: BrokerId,
        kind: str,
        header: Mapping[str, Any],
        payload: Buffer = b"",
        *,
        timeout_s: float,
    ) -> tuple[dict[str, Any], memoryview]: ...

    def on_request(self, kind: str, handler: Handler) -> None: ...


class Unreadable(Trouble):
    """The active controller runs another version, which does not know the command."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Outcome.REFUSED)


class TooLarge(Trouble):
    """The command is larger than any that could be carried out."""

    def __init__(self, size: int) -> None:
        why = f"The command has {size} bytes, and {COMMAND_BYTES_MAX} may be sent to the controller at once."
        super().__init__(why, Outcome.REFUSED)


class ControllerGate:
    """`active` is asked while this node leads; `door` is None for a node that has no others."""

    def __init__(self, env: Env, door: Door | None, quorum: Agreement, active: Executes) -> None:
        self._env = env
        self._door = door
        self._quorum = quorum
        self._active = active
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waited = 0
        if door is not None:
            door.on_request(KIND, self._serve)

    # --- asking ---

    async def execute(self, command: ControllerCommand[R], *, within_s: float = WITHIN_S) -> R:
        """The answer, once it holds on this node too. Trouble says whether the command may have been done."""
        clock = self._env.clock
        deadline = clock.steady() + within_s
        pause = RETRY_MIN_S
        while True:
            try:
                return await self._once(command, deadline)
            except (DiskFull, TooLarge, Unreadable):
                raise
            except Trouble as trouble:
                again = trouble.outcome is Outcome.REFUSED or isinstance(command, REPEATABLE)
                if not again or clock.steady() + pause >= deadline:
                    raise
            await clock.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)

    async def _once(self, command: ControllerCommand[R], deadline: float) -> R:
        if self._quorum.is_leader:
            return await self._active.execute(command)
        leader_id = self._quorum.leader_id
        if leader_id is None or leader_id == self._quorum.node_id or self._door is None:
            raise NotController(leader_id)
        written = write_command(command)
        if len(written) > COMMAND_BYTES_MAX:
            raise TooLarge(len(written))
        left_s = max(deadline - self._env.clock.steady(), RETRY_MIN_S)
        anew = isinstance(command, _ANEW_EACH_TIME)
        if isinstance(command, REPEATABLE) and not anew:
            left_s = min(left_s, REPEAT_AFTER_S)
        asking = self._door.request(leader_id, KIND, {}, written, timeout_s=left_s)
        header, payload = await (self._while_it_leads(leader_id, asking) if anew else asking)
        match header:
            case {"version": int(version)}:
                pass
            case {"refused": "disk full", "sentence": str(sentence)}:
                raise DiskFull(sentence)
            case {"refused": "unreadable", "sentence": str(sentence)}:
                raise Unreadable(sentence)
            case _:
                raise Trouble(f"node {leader_id} gave an answer that is none: {header!r:.200}")
        try:
            answer = read_answer(command, payload)
        except FrameRefused as refused:
            raise Trouble(str(refused)) from refused  # it was done
        if not isinstance(command, _OF_A_SESSION):
            await self._applied(version, deadline)
        return answer

    async def _while_it_leads(self, leader_id: BrokerId, asking: Awaitable[Said]) -> Said:
        """Its answer, however slow its disk is; Trouble a while after this node has heard of another leader, or of none."""
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal timer
            if self._quorum.leader_id == leader_id:
                patience.reschedule(asyncio.get_running_loop().time() + REPEAT_AFTER_S)
                timer = self._env.clock.call_later(REPEAT_AFTER_S / 2, look)

        try:
            async with asyncio.timeout(REPEAT_AFTER_S) as patience:
                look()
                return await asking
        except TimeoutError:
            raise Trouble(f"node {leader_id} ceased to lead, and has not answered") from None
        finally:
            if timer is not None:
                timer.cancel()

    # --- reading one's own writes ---

    async def _applied(self, version: int, deadline: float) -> None:
        """Until the image here has that version, or for a bounded time: the answer holds all the same."""
        if self._quorum.image.version >= version:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waited += 1
        heapq.heappush(self._waiting, (version, self._waited, done))
        wait_s = min(deadline - self._env.clock.steady(), APPLY_WAIT_S)
        try:
            async with asyncio.timeout(max(wait_s, 0)):
                await done
        except TimeoutError:
            at = self._quorum.image.version
            self._env.log.warn("image_behind_the_controller", wanted=version, at=at)
        finally:
            done.cancel()

    def on_image(self, delta: ImageDelta) -> None:
        while self._waiting and self._waiting[0][0] <= delta.image.version:
            _, _, done = heapq.heappop(self._waiting)
            if not done.done():
                done.set_result(None)

    # --- being asked ---

    async def _serve(
        self, peer_id: BrokerId, _header: dict[str, Any], payload: memoryview
    ) -> tuple[Mapping[str, Any], Buffer]:
        try:
            command = read_command(payload)
        except FrameRefused as refused:
            # The connection carries the quorum's messages too: the sentence is answered, and it stays.
            return self._refusal(peer_id, "unreadable", str(refused))
        if isinstance(command, _OF_ITSELF) and command.broker_id != peer_id:
            why = f"node {peer_id} speaks for node {command.broker_id}"
            return self._refusal(peer_id, "unreadable", why)
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        try:
            answer = await self._active.execute(command)
        except DiskFull as full:
            return self._refusal(peer_id, "disk full", str(full))
        written = write_answer(command, answer)
        if len(written) > PAYLOAD_MAX:
            raise Trouble(f"It was done, and the answer of {len(written)} bytes is too large")
        return {"version": self._quorum.image.version}, written

    def _refusal(self, peer_id: BrokerId, why: str, sentence: str) -> tuple[dict[str, str], bytes]:
        self._env.log.warn("controller_command_refused", peer=peer_id, cause=sentence)
        return {"refused": why, "sentence": sentence}, b""
