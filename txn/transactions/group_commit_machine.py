"""Transaction groups: one decision for the transactions of many producers (no Kafka has this).

INVARIANT  the members of an end are all ended with one outcome or none is, and a number is decided once: the
           records of all of them and of the decision stand in one batch of the log.
PREVENTS   a job of many writers of which half commits, and a driver that decides a batch again after it died.
PROVED BY  tests/txn/test_group_commit.py::test_a_second_end_of_a_number_answers_the_first_and_changes_nothing,
           tests/txn/test_group_commit.py::test_one_member_that_cannot_be_ended_keeps_all_from_being_ended,
           tests/txn/test_group_commit.py::test_a_driver_that_died_asks_what_was_decided_at_another_coordinator

A driver that gives up on an answer asks what was decided. "Nothing" may become a decision yet, while its end is
still under way: members that are started anew (InitProducerId) are fenced from it, and it is refused.

What is remembered is bounded: the decisions of the highest `transaction.group.decisions.max` numbers of a group, of
fewer when they have more than 20,000 members together. A lower number is answered as forgotten and never decided any more. Of a group in which nothing has been decided for
`transactional.id.expiration.ms` (its members' ids have expired by then, too) the highest decision is left, for
`transaction.group.expiration.ms`: a job that runs once a week asks what was decided for its last batch.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import NOTHING, Decision, LogRecord, TimerKey
from .added_config import AddedConfig
from .group_commit_commands import (
    DescribeDecision,
    DescribeGroup,
    EndGroup,
    GroupEnded,
    GroupMemberView,
    GroupView,
    Identity,
    Refusal,
    Undecided,
)
from .group_commit_records import NO_FLOOR, GroupDecided, GroupDecisionForgotten, MemberEnded
from .ids import GROUP_SEPARATOR
from .transaction import OPEN, Transaction

E = ErrorCode
# In all remembered decisions of a group together; the highest number is remembered however many it has.
MEMBERS_KEPT_MAX: Final = 20_000
# Of one batch of the log (`runtime/encoding.py`), and what each record in it may add.
BATCH_BYTES_MAX: Final = 1_048_588 - 1_024
RECORD_OVERHEAD: Final = 64


# In which words of `Found.phase` a transaction can be ended.
OPEN_WORDS: Final = tuple(phase.word for phase in sorted(OPEN))


class Found(Protocol):
    """A transactional id as its coordinator knows it; `phase` in Kafka's words (Ongoing, PrepareCommit, …)."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def phase(self) -> str: ...


class Transactions(Protocol):
    """What additions ask of the machine that holds the transactions (`transactions_machine.py`)."""

    @property
    def transactions(self) -> Mapping[str, Transaction]: ...

    def find(self, transactional_id: str) -> Found | None: ...

    def end(self, transactional_id: str, *, commit: bool, now_ms: int) -> Decision:
        """How an open transaction is ended: the records of its decision and what is to follow them."""

    def prepare(self, transactional_id: str, now_ms: int) -> Decision:
        """How it becomes one that no timeout ends."""

    @property
    def transaction_version(self) -> Callable[[], int]:
        """The level of the cluster's feature."""


class _Group:
    __slots__ = ("decisions", "floor")

    def __init__(self) -> None:
        self.decisions: dict[int, GroupDecided] = {}
        self.floor = NO_FLOOR


class GroupCommitMachine:
    """An `Addition` to the machine of transactions (`additions.py`)."""

    changes: Collection[type] = (GroupDecided, GroupDecisionForgotten)
    timers: Collection[str] = ()

    def __init__(self, config: AddedConfig, transactions: Transactions) -> None:
        self.config = config
        self.commands: Collection[type] = tuple(self.ON_COMMAND)
        self._transactions = transactions
        self.groups: dict[str, _Group] = {}

    # -- decide ----------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Decision:
        return self.ON_COMMAND[type(command)](self, command, now_ms)

    def _end(self, command: EndGroup, now_ms: int) -> Decision:
        group = self.groups.get(command.group) or _Group()
        decided = group.decisions.get(command.number)
        if decided is not None:
            return Decision(reply=GroupEnded(decided, is_new=False))
        forgotten = self._to_forget(group, command.number, len(command.members))
        if command.number <= group.floor or command.number in forgotten:
            return Decision(reply=_forgotten(command))
        if _least_size(command) > BATCH_BYTES_MAX:  # before each of them is looked at
            return Decision(reply=_too_large(command, _least_size(command)))
        for member in sorted(command.members):
            refusal = self._refuse(command, member, command.members[member])
            if refusal is not None:
                return Decision(reply=refusal)
        decided = GroupDecided(
            group=command.group,
            number=command.number,
            commit=command.commit,
            decided_ms=now_ms,
            floor=max([group.floor, *forgotten]),
            members=tuple(
                MemberEnded(name, *command.members[name]) for name in sorted(command.members)
            ),
            note=command.note,
        )
        ends = [
            self._transactions.end(
                f"{command.group}{GROUP_SEPARATOR}{name}", commit=command.commit, now_ms=now_ms
            )
            for name in sorted(command.members)
        ]
        records: list[LogRecord] = [record for end in ends for record in end.records]
        records.append(decided)
        records += (
            GroupDecisionForgotten(group=command.group, number=number) for number in forgotten
        )
        size = size_of(records)
        if size > BATCH_BYTES_MAX:
            return Decision(reply=_too_large(command, size))
        return Decision(
            reply=GroupEnded(decided, is_new=True),
            records=records,
            steps=[step for end in ends for step in end.steps],
            effects=[effect for end in ends for effect in end.effects],
        )

    def _refuse(self, command: EndGroup, member: str, identity: Identity) -> Refusal | None:
        """Why this member's transaction can't be ended: then nobody's is."""
        transactional_id = f"{command.group}{GROUP_SEPARATOR}{member}"
        found = self._transactions.find(transactional_id)
        if found is None:
            return Refusal(
                E.invalid_producer_id_mapping,
                f"Nobody has ever begun to work as {transactional_id}, or it was too long ago. The end of "
                f"{command.group} number {command.number} is refused for all its members.",
            )
        who = f"member {member} of {command.group}"
        if found.producer_id != identity.producer_id:
            return Refusal(
                E.invalid_producer_id_mapping,
                f"{who} has producer id {found.producer_id} now, not {identity.producer_id}: another one "
                f"has taken its place. Number {command.number} is refused for all members.",
            )
        if found.producer_epoch != identity.producer_epoch:
            return Refusal(
                E.producer_fenced,
                f"{who} was fenced: its producer's epoch is {found.producer_epoch} now, not "
                f"{identity.producer_epoch}. Number {command.number} is refused for all members.",
            )
        if found.phase not in OPEN_WORDS:
            return Refusal(
                E.invalid_txn_state,
                f"{who} has no open transaction: it is in {found.phase}. Number {command.number} is "
                "refused for all members.",
            )
        return None

    def _to_forget(self, group: _Group, number: int, members: int = 0) -> list[int]:
        """Which numbers make room for this one, from the lowest on; itself, when it would be one of them."""
        kept = {each: len(group.decisions[each].members) for each in group.decisions}
        kept[number] = members
        left, total = len(kept), sum(kept.values())
        forgotten = []
        for each in sorted(kept)[:-1]:
            if left <= self.config.transaction_group_decisions_max and total <= MEMBERS_KEPT_MAX:
                break
            forgotten.append(each)
            left, total = left - 1, total - kept[each]
        return forgotten

    def _decision(self, command: DescribeDecision, now_ms: int) -> Decision:
        group = self.groups.get(command.group) or _Group()
        decided = group.decisions.get(command.number)
        if decided is not None:
            return Decision(reply=decided)
        number = command.number
        gone = number <= group.floor or number in self._to_forget(group, number)
        return Decision(reply=Undecided(gone))

    def _describe(self, command: DescribeGroup, now_ms: int) -> Decision:
        group = self.groups.get(command.group) or _Group()
        newest = sorted(group.decisions, reverse=True)[: command.decisions_max]
        decisions = tuple(group.decisions[number] for number in reversed(newest))
        beginning = f"{command.group}{GROUP_SEPARATOR}"
        ids = [
            each
            for each in self._transactions.transactions
            if each.startswith(beginning) and each != beginning
        ]
        members = tuple(
            self._member(each, beginning) for each in sorted(ids)[: command.members_max]
        )
        left_out = len(ids) - len(members)
        return Decision(reply=GroupView(command.group, decisions, group.floor, members, left_out))

    def _member(self, transactional_id: str, beginning: str) -> GroupMemberView:
        found = self._transactions.find(transactional_id)
        assert found is not None, f"{transactional_id} is there and is not"
        name = transactional_id.removeprefix(beginning)
        return GroupMemberView(name, found.producer_id, found.producer_epoch, found.phase)

    def owners_of(self, command: Any) -> Sequence[str] | None:
        """Whose records a command rests on: the group's own, and its members'. To list members takes everybody's."""
        if isinstance(command, DescribeGroup):
            return None
        members = getattr(command, "members", ())
        return (
            command.group,
            *(f"{command.group}{GROUP_SEPARATOR}{name}" for name in sorted(members)),
        )

    def expired(self, now_ms: int, limit: int) -> list[LogRecord]:
        """The tombstones of groups that nobody uses any more, of at most `limit` decisions and those of one group."""
        idle_ms = now_ms - self.config.transactional_id_expiration_ms
        oldest_ms = min(idle_ms, now_ms - self.config.transaction_group_expiration_ms)
        records: list[LogRecord] = []
        for name, group in self.groups.items():
            if len(records) >= limit:
                break
            last_ms = max(each.decided_ms for each in group.decisions.values())
            if last_ms >= idle_ms:
                continue
            *lower, highest = sorted(group.decisions)
            if last_ms < oldest_ms:
                lower.append(highest)
            elif lower or len(group.decisions[highest].members) > 1:
                # Before the tombstones: what is left after a cut goes on refusing lower numbers.
                floor = max(lower, default=NO_FLOOR)
                records.append(group.decisions[highest].remnant(floor))
            records += (GroupDecisionForgotten(group=name, number=number) for number in lower)
        return records

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        raise AssertionError(f"there is no timer {key}")

    def loaded(self, now_ms: int) -> Decision:
        return NOTHING

    def woken(self, owner: str, now_ms: int) -> Decision:
        return NOTHING

    def holds(self, transactional_id: str) -> bool:
        return False

    def stepped(self, before: Transaction | None, after: Transaction, now_ms: int) -> Decision:
        return NOTHING

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, change: GroupDecided | GroupDecisionForgotten) -> None:
        group = self.groups.get(change.group)
        if isinstance(change, GroupDecided):
            if group is None:
                group = self.groups[change.group] = _Group()
            known = group.decisions.get(change.number)
            assert known is None or _says_the_same(known, change), (
                f"{known} is decided again: {change}"
            )
            group.decisions[change.number] = change
            group.floor = max(group.floor, change.floor)
        elif group is not None:
            group.decisions.pop(change.number, None)
            if not group.decisions:
                del self.groups[change.group]

    ON_COMMAND: ClassVar[Mapping[type, Callable[..., Decision]]] = {
        EndGroup: _end,
        DescribeDecision: _decision,
        DescribeGroup: _describe,
    }


def _says_the_same(known: GroupDecided, change: GroupDecided) -> bool:
    """The record itself, or what is left of it. A build that knew no notes leaves none."""
    left = known.remnant(change.floor)
    return change in (known, left, replace(left, note=""))


def size_of(records: Sequence[LogRecord]) -> int:
    """What these records take in a batch, at most."""
    size = 0
    for record in records:
        key, value = record.encode()
        size += len(key) + len(value or b"") + RECORD_OVERHEAD
    return size


def _least_size(command: EndGroup) -> int:
    """Of its batch: the group and the member are named in the record of each transaction that is ended."""
    group = len(command.group) + len(GROUP_SEPARATOR) + RECORD_OVERHEAD
    return sum(group + len(member) for member in command.members)


def _forgotten(command: EndGroup) -> Refusal:
    return Refusal(
        E.invalid_txn_state,
        f"number {command.number} of {command.group} is too long ago: what was decided for it, if "
        "anything, is forgotten. Numbers of a group go up.",
    )


def _too_large(command: EndGroup, size: int) -> Refusal:
    return Refusal(
        E.message_too_large,
        f"the decision for {len(command.members)} members of {command.group} takes {size} bytes, and one "
        f"batch of the transaction log holds {BATCH_BYTES_MAX}: nothing was ended. Have fewer members, "
        "or fewer partitions a member.",
    )
