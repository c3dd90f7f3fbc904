"""Transaction groups: many producers, on any machines, that commit as one.

    group = TransactionGroup("orders-to-lake", AdminApi.of_dev(bootstrap))
    member = GroupMember(bootstrap, group.name, "task-3")     # in each writer
    member.begin(); member.produce("lake", value=b"a row"); wrote = member.wrote()
    decision = group.commit(42, [wrote])                      # in the driver, with those of all: all or none, once for 42
    member.finish(decision)                                   # in each writer: go on with the next one

A driver that died asks `group.decision(42)`: commit, abort, undecided or forgotten. After "undecided" start the
members anew (`start`) before doing the work again: that fences an end that may still be under way.

INVARIANT  a member commits what a decision names it for, by its producer id and epoch, and nothing else.
PREVENTS   one writer's rows that are read, and those of the others of its number that never are: each of them can have librdkafka
           commit its transaction by itself, and the coordinator does.
PROVED BY  tests/clients/test_transactional_groups.py::test_no_member_is_committed_before_its_number_is_decided
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from .admin_api import AdminApi, AdminRefused, in_path
from .identity import IdentifiedProducer, retrying
from .names import SEPARATOR, group_name, member_name
from .refused_records import RefusedRecords, Words, may_pass, refused_at_once, telling

COMMIT, ABORT, UNDECIDED, FORGOTTEN = "commit", "abort", "undecided", "forgotten"
ONGOING: Final = "Ongoing"  # Kafka's word
DECISIONS_MAX: Final = 1_000  # that one answer lists
MEMBERS_MAX: Final = 10_000  # that one answer lists, and one end takes
FLUSH_S: Final = 60.0
FINISH_S: Final = 60.0
TOLD_S: Final = 1.0
WORDS: Final = Words(
    "a record",
    "config",
    "write another",
    "do the work of this number again, from `begin` on",
    "Its transaction can't be committed: abort it, or start the member anew",
)
NO_NOTES: Final = "'note' is no field"  # a door of an older build


class MemberWrote(NamedTuple):
    """What a writer hands to its driver, in any way it likes: a tuple of plain values, and a list of them will do."""

    member: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`outcome` is what holds: commit, abort, or undecided and forgotten when only asked for."""

    number: int
    outcome: str
    members: tuple[MemberWrote, ...] = ()
    is_new: bool = False
    message: str = ""
    note: str = ""  # what whoever decided it said beside it; none in decisions of older builds


class DecidedBefore(Exception):
    """The number had been decided already, otherwise or for other members: nothing was changed by this call."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(
            f"{decision.message} A member that is not in this decision as it is now has its transaction open, with the work done "
            'again: have it finish("abort"), whatever its outcome is'
        )
        self.decision = decision


class MembersLeftOut(RuntimeError):
    """A group has more members than one answer lists. `listed` is what would have been answered, of those in it."""

    def __init__(self, group: str, left_out: int, listed: dict[str, MemberWrote]) -> None:
        super().__init__(
            f"{group} has {left_out} members more than were listed, which are {MEMBERS_MAX} at most: an end of the listed ones "
            "alone would be one of a part. Hand over what each member's `wrote` told; an end takes "
            f"{MEMBERS_MAX} at most, so let members keep their names, or divide the work among more groups"
        )
        self.left_out = left_out
        self.listed = listed


class TransactionGroup:
    """The driver's side."""

    def __init__(self, name: str, admin: AdminApi) -> None:
        self.name = group_name(name)
        self._admin = admin
        self._path = f"/v1/transaction-groups/{in_path(name)}"

    def commit(
        self, number: int, members: Iterable[MemberWrote | Sequence[Any] | None], note: str = ""
    ) -> Decision:
        """Commit all of them, or raise: AdminRefused when a member can't be committed (then none was). `note`, of 1,000 bytes
        at most, is kept with the decision; nodes of builds before 2026-11-22 do not keep it."""
        return self._end(number, COMMIT, members, note)

    def abort(
        self, number: int, members: Iterable[MemberWrote | Sequence[Any] | None] = ()
    ) -> Decision:
        """Abort all of them. The number is used up: to try again under it, start the members anew instead."""
        return self._end(number, ABORT, members)

    def decision(self, number: int) -> Decision:
        """What was decided for this number, by whoever asked."""
        answer = self._admin.call("GET", f"{self._path}/decisions/{number}")
        return _decision(answer)

    def decisions(self, most: int = DECISIONS_MAX) -> tuple[Decision, ...]:
        """Those that the cluster remembers, of the highest numbers, in their order."""
        answer = self._admin.call("GET", f"{self._path}?limit={most}&members=0")
        return tuple(_decision(each) for each in answer["decisions"])

    def members(self) -> dict[str, MemberWrote]:
        """Who works in this group now: for members of other clients, which can't tell who they are. Ask when they have
        said that they wrote everything. All of them, or MembersLeftOut."""
        return self._listed(open_only=False)

    def open_members(self) -> dict[str, MemberWrote]:
        """Those of them whose transactions nobody has ended yet. All of them, or MembersLeftOut."""
        return self._listed(open_only=True)

    def _listed(self, *, open_only: bool) -> dict[str, MemberWrote]:
        answer = self._admin.call("GET", f"{self._path}?limit=0&members={MEMBERS_MAX}")
        known = answer["members"]
        listed = {
            name: MemberWrote(name, known[name]["producer_id"], known[name]["producer_epoch"])
            for name in known
            if not open_only or known[name]["state"] == ONGOING
        }
        left_out = answer.get("members_left_out", 0)
        if left_out:
            raise MembersLeftOut(self.name, left_out, listed)
        return listed

    def _end(
        self,
        number: int,
        outcome: str,
        members: Iterable[MemberWrote | Sequence[Any] | None],
        note: str = "",
    ) -> Decision:
        """Who wrote nothing (None) has no transaction to be ended."""
        named: dict[str, dict[str, int]] = {}
        for told in members:
            if told is None:
                continue
            each = MemberWrote(*told)
            who = {"producer_id": each.producer_id, "producer_epoch": each.producer_epoch}
            if named.setdefault(each.member, who) != who:
                raise ValueError(_of_one_name(self.name, number, each.member))
        body = {"number": number, "outcome": outcome, "members": named}
        decision = _decision(self._post_end(body, note))
        # An end whose first answer was lost is told of its own decision.
        if decision.outcome != outcome or {each.member: each for each in decision.members} != {
            name: MemberWrote(name, **named[name]) for name in named
        }:
            raise DecidedBefore(decision)
        return decision

    def _post_end(self, body: dict[str, Any], note: str) -> dict[str, Any]:
        path = f"{self._path}/end"
        if not note:
            return self._admin.call("POST", path, body)
        try:
            return self._admin.call("POST", path, {**body, "note": note})
        except AdminRefused as refused:
            if NO_NOTES not in refused.message:
                raise
            return self._admin.call("POST", path, body)


def _of_one_name(group: str, number: int, member: str) -> str:
    return (
        f"two writers say that they are member {member} of {group}, and one has fenced the other: what that one wrote is not "
        f"there any more. Nothing was asked for number {number}. Give each writer a name of its own; where one was started "
        "anew, hand over what it wrote last, if it has done all of the work again"
    )


def _decision(answer: Mapping[str, Any]) -> Decision:
    members = answer.get("members", {})
    return Decision(
        number=answer["number"],
        outcome=answer["outcome"],
        members=tuple(
            MemberWrote(name, members[name]["producer_id"], members[name]["producer_epoch"])
            for name in sorted(members)
        ),
        is_new=answer.get("is_new", False),
        message=answer.get("message", ""),
        note=answer.get("note", ""),
    )


class _Deliveries:
    """Of one transaction. They do not know their member: librdkafka holds them until each record was told of, and its producer,
    which a member holds, would live for as long as they did."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self.errors: list[Any] = []
        self.refused = RefusedRecords(client, WORDS)

    def told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
            self.refused.delivered(error, message)


class GroupMember:
    """A writer. Its name is its own in the group, and stays when it is started anew."""

    def __init__(
        self, bootstrap: str, group: str, name: str, config: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self._client = {"bootstrap.servers": bootstrap, **(config or {})}
        transactional_id = f"{group_name(group)}{SEPARATOR}{member_name(name)}"
        self._new_producer = partial(IdentifiedProducer, bootstrap, transactional_id, config)
        self._identified = self._new_producer()
        self._was_started = False
        self._is_to_start = True  # before it writes
        self._is_writing = False
        self._may_have_moved = False  # to another epoch: after an abort librdkafka may
        self._wrote: MemberWrote | None = None  # as `wrote` told it: a driver may end that
        self._committed: deque[int] = deque(maxlen=DECISIONS_MAX)  # numbers, under this identity
        self._deliveries = _Deliveries(self._client)

    @property
    def producer(self) -> Producer:
        """Librdkafka's own, for what is not here."""
        return self._identified.producer

    def start(self) -> None:
        """Before the first transaction, and to begin anew: fences the one that had this name, this one as it was too, and
        aborts what that left open."""
        if self._was_started:  # librdkafka's is started once
            self._identified = self._new_producer()
        self._was_started = True
        self._identified.start()
        self._committed.clear()
        self._is_to_start = self._may_have_moved = False

    def begin(self) -> None:
        """Starts it where nobody has, and anew after an end that failed. After an abort of what a driver was told of as well: a
        commit of that may still be on its way, and would find this transaction under the same identity."""
        if self._is_to_start:
            self.start()
        self._deliveries = _Deliveries(self._client)
        self._is_writing = False
        self.producer.begin_transaction()
        self._wrote = None

    def produce(self, topic: str, **message: Any) -> None:
        """As `Producer.produce`; waits while librdkafka's queue is full. OutputRefused for what no broker takes."""
        self._is_writing = True
        fields = telling(self._deliveries.told, message)
        while True:
            try:
                self.producer.produce(topic, **fields)
            except BufferError:
                self.producer.poll(0.1)
            except KafkaException as trouble:
                raise self._why_not_taken(trouble, topic, message) from trouble
            else:
                self.producer.poll(0)
                return

    def _why_not_taken(
        self, trouble: Exception, topic: str, message: Mapping[str, Any]
    ) -> Exception:
        """Of a producer that is fenced, and of a transaction that has failed, `produce` says no more than that: any other call
        says why of the one, and the deliveries, which may be told a moment later, of the other."""
        error = trouble.args[0]
        if not may_pass(error):
            return self._deliveries.refused.of(refused_at_once(error, topic, message))
        if error.code() == KafkaError._FATAL:
            try:
                self.producer.abort_transaction(5.0)
            except KafkaException as fatal:
                trouble = fatal
        elif error.code() == KafkaError._STATE:
            deadline = time.monotonic() + TOLD_S
            while not self._deliveries.errors and time.monotonic() < deadline:
                self.producer.poll(0.05)
            if self._deliveries.errors:
                trouble = KafkaException(self._deliveries.errors[0])
        return self._deliveries.refused.refusal() or trouble

    def wrote(self) -> MemberWrote | None:
        """All is written and acknowledged: what the driver needs to commit it. None when nothing was written. OutputRefused
        for what no broker takes."""
        left = self.producer.flush(FLUSH_S)
        errors, refusal = self._deliveries.errors, self._deliveries.refused.refusal()
        if refusal is not None:
            raise refusal
        if errors or left:
            why = errors[0] if errors else f"{left} records were not acknowledged"
            again = WORDS.again[0].upper() + WORDS.again[1:]
            raise RuntimeError(
                f"{self.name} could not write everything: {why}. {WORDS.then}. {again}"
            )
        if not self._is_writing:
            return None
        self._wrote = self._who()
        return self._wrote

    def _who(self) -> MemberWrote:
        identity = self._identified.identity(fresh=self._may_have_moved)
        self._may_have_moved = False
        return MemberWrote(self.name, *identity)

    def finish(self, decided: Decision | str) -> None:
        """Have librdkafka know what `TransactionGroup` gave; or "abort", whatever was decided. ValueError, and the transaction stays
        open, where that is no commit of what this member wrote. KafkaException when it is not what the cluster decided."""
        commit = self._commit_in(decided)
        was_to_start = self._is_to_start or (commit is None and self._wrote is not None)
        self._is_to_start = True  # unless it ends well
        if commit is not None:
            retrying(lambda: self.producer.commit_transaction(5.0), FINISH_S)
            self._committed.append(commit.number)
        else:
            self._may_have_moved = True
            retrying(lambda: self.producer.abort_transaction(5.0), FINISH_S)
        self._is_to_start = was_to_start

    def _commit_in(self, decided: Decision | str) -> Decision | None:
        """None for an abort."""
        if decided == ABORT or (isinstance(decided, Decision) and decided.outcome == ABORT):
            return None
        if not isinstance(decided, Decision) or decided.outcome != COMMIT:
            raise ValueError(
                f"finish takes a decision of its group to commit or abort, or {ABORT!r}, not {decided!r}: the transaction stays open. "
                "Ask the driver for what was decided; where nothing is, start the member anew"
            )
        named = [MemberWrote(*each) for each in decided.members]
        if self._is_writing and (
            decided.number in self._committed or (self._wrote or self._who()) not in named
        ):
            raise ValueError(
                f"number {decided.number} was committed without what {self.name} has written now: that stays open. Take the decision "
                f"of its own number; if that is this one, it was decided before, and {self.name} has to finish({ABORT!r})"
            )
        return decided
