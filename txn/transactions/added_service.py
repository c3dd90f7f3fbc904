"""Transaction groups and check-back on this node: one method for each question, plain values in and out.

Each answers what the machine says, a `Refusal` that says why nothing was done, or an ErrorCode when this node could
not take the question or can't tell its outcome: all of them may be asked again, here or at another coordinator.

INVARIANT  that nothing was done, or that a half message waits still, is said only by a node that coordinates it for certain.
PREVENTS   a driver that did not hear how its end went, asks again, and is told by a coordinator that slept meanwhile that none
           of it was committed: it is, and whoever does it all again has it twice.
PROVED BY  tests/txn/test_added_service.py::test_a_coordinator_that_was_deposed_refuses_no_end_that_its_successor_has_decided
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env

from .check_back_commands import (
    AnswerCheck,
    Attempt,
    DescribeHalf,
    HalfAnswered,
    ListHalves,
    PollChecks,
    PollGone,
    PrepareHalf,
    ReleaseHalf,
    Verdict,
)
from .check_back_records import HalfMessage
from .group_commit_commands import (
    DescribeDecision,
    DescribeGroup,
    EndGroup,
    GroupEnded,
    GroupView,
    Identity,
    Refusal,
    Undecided,
)
from .group_commit_records import GroupDecided


class Transactions(Protocol):
    """What is needed of the service whose machines these questions are put to (`service.py`)."""

    async def coordinator_of(self, transactional_id: str, /) -> BrokerId | ErrorCode: ...

    async def execute(self, transactional_id: str, command: Any, /) -> Any: ...

    def next_ticket(self) -> int: ...

    async def ask_all(self, command: Any, /) -> Mapping[int, Any] | ErrorCode: ...


@dataclass(frozen=True, slots=True)
class HalvesHere:
    """`partitions` of the transactions' topic are those that it was asked of."""

    halves: list[HalfMessage]
    partitions: list[int]


class AddedService:
    def __init__(
        self, env: Env, transactions: Transactions, confirm_image: Callable[[], Awaitable[bool]]
    ) -> None:
        """`confirm_image` is False if what this node knows may not be of now."""
        self._env = env
        self._confirm_image = confirm_image
        self._execute = transactions.execute
        self._next_ticket = transactions.next_ticket
        self._ask_all = transactions.ask_all
        # Which node answers for a transactional id, or for a group by its name.
        self.coordinator_of = transactions.coordinator_of

    async def _ask(self, name: str, command: Any) -> Any:
        """What was written is so. What was only remembered is asked again when it is certain who coordinates it: all
        commands may be."""
        reply = await self._execute(name, command)
        if not _is_from_memory(reply):
            return reply
        if not await self._confirm_image():
            return ErrorCode.not_coordinator
        return await self._execute(name, command)

    # -- transaction groups ----------------------------------------------------------------------

    async def end_group(
        self,
        group: str,
        number: int,
        *,
        commit: bool,
        members: Mapping[str, Identity],
        note: str = "",
    ) -> GroupEnded | Refusal | ErrorCode:
        command = EndGroup(group=group, number=number, commit=commit, members=members, note=note)
        ended: GroupEnded | Refusal | ErrorCode = await self._ask(group, command)
        return ended

    async def group_decision(self, group: str, number: int) -> GroupDecided | Undecided | ErrorCode:
        """Not from memory alone: whoever hears "undecided" may do it all again, and must not hear it from a coordinator
        that slept while another one decided."""
        if not await self._confirm_image():
            return ErrorCode.not_coordinator
        command = DescribeDecision(group=group, number=number)
        decision: GroupDecided | Undecided | ErrorCode = await self._execute(group, command)
        return decision

    async def describe_group(
        self, group: str, *, decisions_max: int, members_max: int
    ) -> GroupView | ErrorCode:
        """Nor is this: whoever ends all members that are listed must not leave out one that began elsewhere."""
        if not await self._confirm_image():
            return ErrorCode.not_coordinator
        command = DescribeGroup(group=group, decisions_max=decisions_max, members_max=members_max)
        view: GroupView | ErrorCode = await self._execute(group, command)
        return view

    # -- check-back ------------------------------------------------------------------------------

    async def prepare(
        self, transactional_id: str, identity: Identity, half_id: str, half_number: int = 0
    ) -> HalfAnswered | Refusal | ErrorCode:
        """`half_id` is its name, by which a lost answer can be asked for again. `half_number` goes up with each one of
        this producer: what comes late does not prepare the next one."""
        command = PrepareHalf(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            half_id=half_id,
            half_number=half_number,
        )
        answered: HalfAnswered | Refusal | ErrorCode = await self._ask(transactional_id, command)
        return answered

    async def poll_checks(
        self,
        group: str,
        member: str,
        *,
        wait_ms_max: int,
        checks_max: int,
        delivered: tuple[Attempt, ...],
    ) -> tuple[Attempt, ...] | Refusal | ErrorCode:
        """Waits until there is something to check. To poll is to be a member that is alive."""
        ticket = self._next_ticket()
        command = PollChecks(
            group=group,
            member=member,
            ticket=ticket,
            wait_ms_max=wait_ms_max,
            checks_max=checks_max,
            delivered=delivered,
        )
        try:
            reply = await self._execute(group, command)
        except asyncio.CancelledError:  # it hung up: a check would be offered to nobody
            gone = self._hung_up(PollGone(group=group, member=member, ticket=ticket))
            self._env.tasks.spawn(gone, name=f"checker {member} of {group} hung up")
            raise
        return reply if isinstance(reply, Refusal | ErrorCode) else tuple(reply["checks"])

    async def _hung_up(self, command: PollGone) -> None:
        await self._execute(command.group, command)

    async def answer_check(
        self,
        transactional_id: str,
        half_id: str,
        verdict: Verdict,
        *,
        by: str,
        attempt: int = 0,
    ) -> HalfAnswered | Refusal | ErrorCode:
        command = AnswerCheck(
            transactional_id=transactional_id,
            half_id=half_id,
            verdict=verdict,
            by=by,
            attempt=attempt,
        )
        # That it can't tell yet is said of every check: nothing rests on the answer.
        ask = self._execute if verdict is Verdict.UNKNOWN else self._ask
        answered: HalfAnswered | Refusal | ErrorCode = await ask(transactional_id, command)
        return answered

    async def release(
        self, transactional_id: str, half_id: str
    ) -> HalfAnswered | Refusal | ErrorCode:
        command = ReleaseHalf(transactional_id=transactional_id, half_id=half_id)
        answered: HalfAnswered | Refusal | ErrorCode = await self._ask(transactional_id, command)
        return answered

    async def describe_half(self, transactional_id: str) -> HalfAnswered | Refusal | ErrorCode:
        command = DescribeHalf(transactional_id=transactional_id)
        answered: HalfAnswered | Refusal | ErrorCode = await self._ask(transactional_id, command)
        return answered

    async def halves(self, *, parked_only: bool, halves_max: int) -> HalvesHere | ErrorCode:
        """Those that are not decided and coordinated by this node."""
        replies = await self._ask_all(ListHalves(parked_only=parked_only, halves_max=halves_max))
        if isinstance(replies, ErrorCode):
            return replies
        found: list[HalfMessage] = list(chain.from_iterable(replies.values()))
        found.sort(key=lambda half: half.transactional_id)
        return HalvesHere(found[:halves_max], [*replies])


def _is_from_memory(reply: Any) -> bool:
    """A decision is one for ever, whoever coordinates it by now."""
    if isinstance(reply, HalfAnswered):
        return not (reply.is_new or reply.half.is_decided)
    return isinstance(reply, Refusal)
