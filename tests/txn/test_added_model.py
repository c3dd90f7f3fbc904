"""Transaction groups and half messages against a plain model, with a coordinator that moves at any time.

The model only knows what was answered: a decision that anybody has heard of must hold for ever, in the transactions
themselves, for everybody who asks, and for every later coordinator.
"""

from typing import Any

import hypothesis.strategies as st
import pytest
from fencepost.txn.transactions.check_back_commands import Attempt, HalfAnswered, Verdict
from fencepost.txn.transactions.check_back_records import HalfState
from fencepost.txn.transactions.group_commit_commands import (
    DescribeDecision,
    GroupEnded,
    Identity,
    Refusal,
)
from fencepost.txn.transactions.group_commit_records import GroupDecided
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.added_scene import AddedScene

MEMBERS = ("a", "b", "c")
CHECKS_MAX = 3
names = st.sampled_from(MEMBERS)
outcomes = st.booleans()


class Added(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = AddedScene(transaction_check_max=CHECKS_MAX, transaction_group_decisions_max=4)
        self.identities: dict[str, Identity] = {}
        self.decided: dict[int, tuple[bool, tuple[str, ...]]] = {}
        self.halves: dict[str, HalfState] = {}  # by name of the half message: what was answered
        self.of: dict[str, str] = {}  # half message -> member
        self.asked: dict[str, Identity] = {}  # half message -> whom its prepare named
        self.offered: list[Attempt] = []
        self.delivered: dict[str, int] = {}
        self.released: set[str] = set()
        self.serial = 0

    def name(self, member: str) -> str:
        return f"g::{member}"

    # -- producers -------------------------------------------------------------------------------

    @rule(member=names)
    def start(self, member: str) -> None:
        reply = self.scene.starts(self.name(member))
        if isinstance(reply, Identity):
            self.identities[member] = reply

    @rule(member=names)
    def write(self, member: str) -> None:
        if member in self.identities:
            self.scene.writes(self.name(member), self.identities[member])

    @rule(member=names, commit=outcomes)
    def end(self, member: str, commit: bool) -> None:
        if member in self.identities:
            self.scene.ends(self.name(member), self.identities[member], commit=commit)

    @rule()
    def write_markers(self) -> None:
        self.scene.finish()

    @rule(passed_ms=st.sampled_from((1_000, 7_000, 30_000, 200_000)))
    def wait(self, passed_ms: int) -> None:
        self.scene.pass_ms(passed_ms)

    @rule()
    def move(self) -> None:
        markers = self.scene.markers
        self.scene = self.scene.moved()
        # The new coordinator has sent what is due again by itself.
        assert {each.transactional_id for each in markers} <= {
            each.transactional_id for each in self.scene.markers
        }

    # -- groups ----------------------------------------------------------------------------------

    @rule(number=st.integers(0, 9), members=st.sets(names), commit=outcomes, stale=st.booleans())
    def end_group(self, number: int, members: set[str], commit: bool, stale: bool) -> None:
        known = {each: self.identities[each] for each in sorted(members) if each in self.identities}
        if stale and known:
            first = next(iter(known))
            known[first] = Identity(known[first].producer_id, known[first].producer_epoch + 1)
        before = {each: self.scene.phase(self.name(each)) for each in known}
        reply = self.scene.end_group("g", number, commit=commit, **known)
        after = {each: self.scene.phase(self.name(each)) for each in known}
        if isinstance(reply, Refusal):
            assert after == before, "refused whole"
            return
        assert isinstance(reply, GroupEnded)
        said = (reply.decision.commit, tuple(each.member for each in reply.decision.members))
        if number in self.decided:
            assert said == self.decided[number]
        if reply.is_new:
            assert not (stale and known)
            assert number not in self.decided
            assert said == (commit, tuple(known))
            expected = "PrepareCommit" if commit else "PrepareAbort"
            assert set(after.values()) <= {expected}
        else:
            assert after == before
        self.decided[number] = said

    @rule(number=st.integers(0, 9))
    def ask(self, number: int) -> None:
        found: Any = self.scene.do(DescribeDecision(group="g", number=number))
        if isinstance(found, GroupDecided):
            assert number in self.decided
            assert (found.commit, tuple(each.member for each in found.members)) == self.decided[
                number
            ]
        elif number in self.decided:
            assert found.forgotten, "what was decided is known or said to be forgotten"

    # -- half messages ---------------------------------------------------------------------------

    @rule(member=names)
    def prepare(self, member: str) -> None:
        if member not in self.identities:
            return
        self.serial += 1
        half_id = f"h{self.serial}"
        identity = self.asked[half_id] = self.identities[member]
        reply = self.scene.prepares(self.name(member), identity, half_id, self.serial)
        if isinstance(reply, HalfAnswered):
            assert reply.is_new
            self.halves[half_id] = HalfState.WAITING
            self.of[half_id] = member
            self.delivered[half_id] = 0

    @rule(member=names, commit=outcomes)
    def sell(self, member: str, commit: bool) -> None:
        """A half message from its first record to its end, and the next one's first record."""
        if member not in self.identities:
            self.start(member)
        self.write(member)
        self.prepare(member)
        self.end(member, commit)
        self.scene.finish()
        self.write(member)

    @rule(member=names)
    def prepare_late(self, member: str) -> None:
        """All that were asked for it were held up on their way, too; others came through before them."""
        for half_id in self.of:
            if self.of[half_id] == member:
                who, number = self.name(member), int(half_id.removeprefix("h"))
                reply = self.scene.prepares(who, self.asked[half_id], half_id, number)
                assert isinstance(reply, Refusal) or not reply.is_new, f"{half_id} comes again"

    @rule(checker=st.sampled_from(("c1", "c2")), confirm=st.booleans())
    def poll(self, checker: str, confirm: bool) -> None:
        given = self.scene.polls("g", checker, *(self.offered if confirm else ()), wait_ms=0)
        if confirm:
            for attempt in self.offered:
                if attempt.number == self.delivered[attempt.half_id] + 1:
                    self.delivered[attempt.half_id] += 1
            self.offered = []
        for attempt in given:
            assert self.halves[attempt.half_id] is HalfState.WAITING, "nobody is asked about others"
            assert attempt.number <= CHECKS_MAX
        self.offered += given

    @rule(verdict=st.sampled_from(Verdict), place=st.integers(0, 5), attempt=st.integers(0, 4))
    def answer(self, verdict: Verdict, place: int, attempt: int) -> None:
        if place >= len(self.of):
            return
        half_id = sorted(self.of)[-1 - place]
        before = self.scene.checks.halves.get(self.name(self.of[half_id]))
        reply = self.scene.answers_check(
            self.name(self.of[half_id]), verdict, half_id, attempt=attempt
        )
        if isinstance(reply, Refusal):
            assert before is None or before.half_id != half_id
            return
        if attempt == self.delivered[half_id] + 1 and reply.half.checks == attempt:
            self.delivered[half_id] = attempt
        if reply.half.is_decided:
            self.halves[half_id] = reply.half.state

    @rule(place=st.integers(0, 3))
    def release(self, place: int) -> None:
        if place < len(self.of):
            half_id = sorted(self.of)[place]
            reply = self.scene.releases(self.name(self.of[half_id]), half_id)
            if isinstance(reply, HalfAnswered) and reply.is_new:
                self.delivered[half_id] = 0

    # -- always ----------------------------------------------------------------------------------

    @invariant()
    def what_was_decided_stays(self) -> None:
        for half in self.scene.checks.halves.values():
            known = self.halves[half.half_id]
            if known in (HalfState.COMMITTED, HalfState.ROLLED_BACK):
                assert half.state is known
            elif half.is_decided:
                self.halves[half.half_id] = half.state  # by its producer or its group

    @invariant()
    def a_half_message_and_its_transaction_agree(self) -> None:
        for name, half in self.scene.checks.halves.items():
            phase = self.scene.phase(name)
            assert (phase == "Prepared") == (not half.is_decided)

    @invariant()
    def only_what_was_delivered_counts(self) -> None:
        for half in self.scene.checks.halves.values():
            assert half.checks <= self.delivered[half.half_id] <= CHECKS_MAX

    @invariant()
    def a_later_coordinator_is_the_same(self) -> None:
        moved = self.scene.moved()
        assert moved.checks.halves == self.scene.checks.halves
        groups, again = self.scene.groups.groups, moved.groups.groups
        assert {name: groups[name].decisions for name in groups} == {
            name: again[name].decisions for name in again
        }


TestAdded = pytest.mark.slow(Added.TestCase)
TestAdded.settings = settings(deadline=None, max_examples=40, stateful_step_count=40)
