"""Asks the coordinator that a question concerns, here or on another node.

INVARIANT  a question that came from another node is answered here or not at all, never sent on.
PREVENTS   two nodes that each think the other one the coordinator sending a question to and fro for ever.
PROVED BY  tests/node/test_admin_calls.py::test_a_question_is_sent_on_once_at_most

Everything that can be asked may be asked twice (each end has its number, each half message its id), so a question
whose answer was lost in between is asked again until the time is over.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgpack
from fencepost.cluster.base.errors import ErrorCode, FrameRefused, Trouble
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC, BrokerId
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.txn.transactions.added_service import AddedService

from .answers import PASSING, Answer, refused
from .inputs import BadInput
from .operations import OPERATIONS, Args, Operation

E = ErrorCode
KIND: Final = "admin"
ASK_S: Final = 10.0  # the whole question, without the time that it asks to be kept waiting for
TRY_S: Final = 4.0  # one node
PAUSE_S: Final = 0.05
# What waits at one other node. It serves 1,024 requests of this one at a time (`peer_serving.py`): heartbeats are some.
SENT_ON_MAX: Final = 768
WAITING_MAX: Final = 512  # of them: polls, which wait for as long as a minute


class AdminCalls:
    def __init__(
        self,
        env: Env,
        node_id: BrokerId,
        door: PeerDoor | None,
        service: AddedService,
        alive: Callable[[], Sequence[BrokerId]],
        leaders: Callable[[], Mapping[int, BrokerId]] = dict,
    ) -> None:
        """`alive` lists the nodes that are thought to be there; a node alone has no door. `leaders` tells who
        coordinates each partition, NO_LEADER for nobody."""
        self._env = env
        self._node_id = node_id
        self._door = door
        self._service = service
        self._alive = alive
        self._leaders = leaders
        self._sent_on: Counter[BrokerId] = Counter()
        if door is not None:
            door.on_request(KIND, self._asked)

    async def ask(self, name: str, args: Args) -> Answer:
        operation = OPERATIONS[name]
        if operation.key is None:
            return await self._ask_all(name, operation, args)
        key = operation.key(args)
        wait_s = args.get("wait_ms_max", 0) / 1000
        deadline = self._env.clock.steady() + wait_s + ASK_S
        while True:
            answer = await self._try(name, operation, key, args)
            if isinstance(answer, Answer):
                return answer
            if self._env.clock.steady() + PAUSE_S >= deadline:
                return self._unanswered(key, answer)
            await self._env.clock.sleep(PAUSE_S)

    async def _try(
        self, name: str, operation: Operation, key: str, args: Args
    ) -> Answer | ErrorCode:
        """An ErrorCode is one of PASSING."""
        node = await self._service.coordinator_of(key)
        if isinstance(node, ErrorCode):
            return node
        if node == self._node_id:
            return _settled(await operation.run(self._service, args))
        try:
            return await self._send(node, name, args)
        except Trouble as trouble:
            self._env.log.info("admin_call_failed", node=node, what=name, cause=str(trouble))
            return E.coordinator_not_available

    def _unanswered(self, key: str, code: ErrorCode) -> Answer:
        return refused(
            code,
            f"the coordinator of {key} did not answer in {ASK_S:g} s: {code.name.upper()}. The request may "
            "have been carried out.",
        )

    async def _ask_all(self, name: str, operation: Operation, args: Args) -> Answer:
        """Every node for what it coordinates. Who can't be asked is named, and what nobody could be asked for: the
        answer is without theirs."""
        nodes = sorted({*self._alive(), self._node_id})
        before = self._leaders()
        answers = await asyncio.gather(*(self._ask_one(n, name, operation, args) for n in nodes))
        halves: list[Any] = []
        silent = []
        unasked: set[int] = set()
        for node, answer in zip(nodes, answers, strict=True):
            fields = {} if isinstance(answer, ErrorCode) else answer.fields
            listed, asked = fields.get("half_messages"), fields.get("partitions")
            if isinstance(listed, list):  # no other question is put to all
                halves += listed
                if isinstance(asked, list):  # an older build does not tell
                    # It leads some, as is known here, and may not have heard of it yet.
                    unasked |= {
                        each for each in before if before[each] == node and each not in asked
                    }
            else:
                silent.append(int(node))
        after = self._leaders()
        # What has moved meanwhile may have been with neither when it was asked.
        missing = [
            partition
            for partition in sorted(after.keys() | before.keys())
            if partition in unasked
            or before.get(partition) not in nodes
            or before.get(partition) != after.get(partition)
        ]
        told = {
            "half_messages": halves,
            "nodes_not_reached": silent,
            "partitions_without_a_coordinator": missing,
        }
        return Answer(200, told)

    async def _ask_one(
        self, node: BrokerId, name: str, operation: Operation, args: Args
    ) -> Answer | ErrorCode:
        try:
            if node == self._node_id:
                async with asyncio.timeout(TRY_S):
                    return _settled(await operation.run(self._service, args))
            return await self._send(node, name, args)
        except (Trouble, TimeoutError) as trouble:
            self._env.log.info("admin_call_failed", node=node, what=name, cause=str(trouble))
            return E.coordinator_not_available

    async def _send(self, node: BrokerId, name: str, args: Args) -> Answer | ErrorCode:
        if self._door is None:
            return E.coordinator_not_available
        wait_ms = args.get("wait_ms_max", 0)
        if self._sent_on[node] >= (WAITING_MAX if wait_ms else SENT_ON_MAX):
            why = f"{self._sent_on[node]} requests of this node wait at node {node} already"
            return refused(E.throttling_quota_exceeded, why)
        beside = {each: args[each] for each in OPERATIONS[name].beside if each in args}
        header: dict[str, Any] = {"what": name} | ({"beside": beside} if beside else {})
        known = {each: args[each] for each in args if each not in beside}
        self._sent_on[node] += 1
        try:
            _, packed = await self._door.request(
                node, KIND, header, msgpack.packb(known), timeout_s=TRY_S + wait_ms / 1000
            )
        except asyncio.CancelledError:
            if wait_ms:
                gone = self._hung_up(node, name, args)
                self._env.tasks.spawn(gone, name=f"a poll at node {node} hung up")
            raise
        finally:
            self._sent_on[node] -= 1
        match _unpack(packed):
            case [int(status), dict(fields)]:
                return Answer(status, fields)
            case int(code):
                return _passing(code)
            case _:
                raise FrameRefused(f"node {node} answers {name} in unreadable words")

    async def _hung_up(self, node: BrokerId, name: str, args: Args) -> None:
        """There it would wait on in its place, and be offered a check that nobody takes. A poll ends its member's earlier one;
        whoever has come back by then is told that there is nothing, and asks again."""
        assert self._door is not None
        last = {**args, "wait_ms_max": 0, "checks_max": 0, "delivered": []}
        try:
            packed = msgpack.packb(last)
            await self._door.request(node, KIND, {"what": name}, packed, timeout_s=TRY_S)
        except Trouble as trouble:
            self._env.log.info("admin_call_failed", node=node, what=name, cause=str(trouble))

    async def _asked(
        self, peer_id: BrokerId, header: dict[str, Any], payload: memoryview
    ) -> tuple[dict[str, Any], Buffer]:
        operation = OPERATIONS.get(str(header.get("what")))
        if operation is None:
            raise Trouble(f"node {self._node_id} does not know what {header.get('what')!r} is")
        fields, beside = _unpack(payload), header.get("beside", {})
        if not isinstance(fields, dict) or not isinstance(beside, dict):
            raise FrameRefused(f"node {peer_id} asks in unreadable words")
        try:
            answer = _settled(await operation.run(self._service, operation.read(fields | beside)))
        except BadInput as bad:
            raise FrameRefused(f"node {peer_id} sends on what can't be: {bad}") from None
        said = int(answer) if isinstance(answer, ErrorCode) else list(answer)
        return {}, msgpack.packb(said)


def leaders_of(image: ClusterImage) -> dict[int, BrokerId]:
    """Who coordinates each partition of the transactions' topic."""
    topic = image.topics.get(TRANSACTION_STATE_TOPIC)
    return {} if topic is None else {each.partition: each.leader for each in topic.partitions}


def _settled(answer: Answer | ErrorCode) -> Answer | ErrorCode:
    if isinstance(answer, ErrorCode) and answer not in PASSING:
        return refused(answer, f"the coordinator answers {answer.name.upper()}")
    return answer


def _passing(code: int) -> ErrorCode:
    for each in PASSING:
        if each == code:
            return each
    raise FrameRefused(f"a peer answers with the unexpected code {code}")


def _unpack(packed: Buffer) -> Any:
    try:
        return msgpack.unpackb(packed)
    except (ValueError, msgpack.exceptions.UnpackException) as damaged:
        raise FrameRefused(f"a peer sends unreadable words: {damaged}") from damaged
