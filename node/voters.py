"""Who votes on the metadata, changed while the cluster runs: asked of any node, done by the quorum's leader.

INVARIANT  what is answered as done is committed in the metadata log, and holds on this node's question for voters.
PREVENTS   two voters replaced at once, of which one change is lost: their majorities need have nobody in common.
PROVED BY  tests/sim/test_cluster_voters.py::test_three_voters_are_replaced_one_at_a_time_under_load

A voter is a node, by its id. Kafka's voters have directory ids, too, so that a disk that was replaced is another voter;
here a voter that began empty knows that it did, and counts for less until it has caught up (`quorum/voters.py`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode, FrameRefused, Outcome, Trouble
from fencepost.cluster.base.host_names import EVERYWHERE, PORT_MAX, why_no_host
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.controller.service import NotController
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.cluster.quorum.voters import Address, VoterChangeRefused
from fencepost.cluster.wire.peer_door import PeerDoor

KIND: Final = "change voters"
PEER_LISTENER: Final = "PEER"  # the name under which a node registers its peer door
RETRY_S: Final = 0.1
REGISTERED_S: Final = 1.0  # how long a registration may take to be seen on all nodes
# Longer than the quorum's leader waits for a node that is to vote to hold all of the log.
ASK_S: Final = 15.0
DONE_BEFORE: Final = (ErrorCode.duplicate_voter, ErrorCode.voter_not_found)


def registered_address(image: ClusterImage, node_id: BrokerId) -> Address | None:
    """Where that node has said that its peer door is."""
    broker = image.brokers.get(node_id)
    endpoint = None if broker is None else broker.endpoint(PEER_LISTENER)
    return None if endpoint is None else (endpoint.host, endpoint.port)


class VoterAnswer(NamedTuple):
    error_code: ErrorCode
    sentence: str = ""


DONE: Final = VoterAnswer(ErrorCode.none)


class VoterChanges:
    """`door` is None for a node that votes alone, and always will: nobody could follow it."""

    def __init__(
        self,
        env: Env,
        node_id: BrokerId,
        quorum: Quorum,
        image: ClusterImage,
        door: PeerDoor | None,
        is_registered: Callable[[BrokerId], bool],
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._quorum = quorum
        self._image = image
        self._door = door
        self._is_registered = is_registered
        if door is not None:
            door.on_request(KIND, self._serve)

    async def add(self, node_id: BrokerId, address: Address | None, within_s: float) -> VoterAnswer:
        """Have that node vote. `address` is where its peer door is; None: where it has registered it."""
        address = address or await self._when_registered(node_id)
        if address is None:
            return VoterAnswer(
                ErrorCode.invalid_request,
                f"Add voter request didn't include a {PEER_LISTENER} endpoint, and node {node_id} has"
                " registered none: it needs a peer.listener.",
            )
        return await self._change(
            {"add": node_id, "host": address[0], "port": address[1]}, within_s
        )

    async def remove(self, node_id: BrokerId, within_s: float) -> VoterAnswer:
        """It votes no more, and goes on as a node that follows the log."""
        return await self._change({"remove": node_id}, within_s)

    async def _when_registered(self, node_id: BrokerId) -> Address | None:
        """A node that has just come may be known to others before it is known here."""
        give_up = self._env.clock.steady() + REGISTERED_S
        while (found := registered_address(self._image, node_id)) is None:
            if self._env.clock.steady() >= give_up:
                break
            await self._env.clock.sleep(RETRY_S)
        return found

    # --- asking ---

    async def _change(self, what: dict[str, Any], within_s: float) -> VoterAnswer:
        """Again while nobody leads. One whose outcome is not known is repeated: what is done already is done."""
        clock = self._env.clock
        deadline = clock.steady() + within_s
        maybe_done = False
        while True:
            try:
                answer = await self._once(what, max(deadline - clock.steady(), RETRY_S))
            except Trouble as trouble:
                maybe_done |= trouble.outcome is not Outcome.REFUSED
                if clock.steady() + RETRY_S >= deadline:
                    return VoterAnswer(ErrorCode.request_timed_out, str(trouble))
                await clock.sleep(RETRY_S)
                continue
            if maybe_done and answer.error_code in DONE_BEFORE:
                return DONE
            is_late = clock.steady() + RETRY_S >= deadline
            if is_late or not maybe_done or answer.error_code is not ErrorCode.request_timed_out:
                return answer
            await clock.sleep(RETRY_S)  # the change may have been made, and not be committed yet

    async def _once(self, what: dict[str, Any], left_s: float) -> VoterAnswer:
        if self._quorum.is_leader:
            try:
                async with asyncio.timeout(left_s):
                    return await self._here(what)
            except TimeoutError as late:
                raise Trouble("The voters did not agree in time.") from late
        leader_id = self._quorum.leader_id
        if leader_id is None or leader_id == self._node_id or self._door is None:
            raise NotController(leader_id)
        said, _ = await self._door.request(leader_id, KIND, what, timeout_s=min(left_s, ASK_S))
        match said:
            case {"code": int(code), "sentence": str(sentence)}:
                return VoterAnswer(_code(code), sentence)
            case _:
                raise Trouble(f"node {leader_id} gave an answer that is none: {said!r:.200}")

    # --- being asked ---

    async def _serve(
        self, _peer_id: BrokerId, what: dict[str, Any], _payload: memoryview
    ) -> tuple[dict[str, Any], Buffer]:
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        answer = await self._here(what)
        return {"code": int(answer.error_code.value), "sentence": answer.sentence}, b""

    async def _here(self, what: dict[str, Any]) -> VoterAnswer:
        try:
            match what:
                case {"add": int(node_id), "host": str(host), "port": int(port)}:
                    _check_address(host, port)
                    check = partial(self._check_registered, BrokerId(node_id))
                    check()
                    add = (BrokerId(node_id), (host, port))
                    await self._quorum.change_voters(add=add, check=check)
                case {"remove": int(node_id)}:
                    await self._quorum.change_voters(remove=BrokerId(node_id))
                case _:
                    raise FrameRefused(
                        f"a peer asks for a change of voters that is none: {what!r:.200}"
                    )
        except VoterChangeRefused as refused:
            return VoterAnswer(refused.error_code, str(refused))
        self._env.log.info("voters_changed", voters=sorted(self._quorum.voters), asked=what)
        return DONE

    def _check_registered(self, node_id: BrokerId) -> None:
        """By that all know what it can read (`metadata/levels.py`), which no command may go beyond while it votes."""
        if not self._is_registered(node_id) and node_id not in self._quorum.voters:
            why = f"Node {node_id} is not registered, and nobody knows what it can read: start it, then add it."
            raise VoterChangeRefused(ErrorCode.invalid_request, why)


def _check_address(host: str, port: int) -> None:
    """Or all would dial it, for as long as it votes, and a majority may be counted on it."""
    why = why_no_host(host)
    if why is None and (host in EVERYWHERE or not 0 < port <= PORT_MAX):
        why = f"nobody can connect to {host}:{port}"
    if why is not None:
        raise VoterChangeRefused(
            ErrorCode.invalid_request,
            f"The {PEER_LISTENER} endpoint of the voter can't be used: {why}.",
        )


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:  # of a later version
        return ErrorCode.unknown_server_error
