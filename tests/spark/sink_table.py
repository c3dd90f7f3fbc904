"""A transaction group that is a table, for the suites of the sink's driver."""

from collections.abc import Iterable, Sequence

from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.row_marks import RowMarks
from fencepost.clients.transactional import (
    AdminRefused,
    AdminUnreachable,
    DecidedBefore,
    Decision,
    MemberWrote,
)

OWNER, OTHER = "q11111111", "q22222222"


def wrote(*members: MemberWrote, number: int = 7) -> Wrote:
    return Wrote(number, OWNER, members)


def batch(*members: MemberWrote, number: int, marks: RowMarks | None = None) -> Wrote:
    """As Spark counts them; without members its tasks found it decided."""
    return Wrote(
        number,
        OWNER,
        members,
        found_decided=not members,
        is_batch_id=True,
        marks=marks or RowMarks(),
    )


def member(partition: int, epoch: int = 0, owner: str = OWNER, attempt: int = 0) -> MemberWrote:
    return MemberWrote(f"{owner}.p{partition}.a{attempt}", 100 + partition, epoch)


ANOTHER_ID = MemberWrote(member(0).member, 999, 0)


class Table:
    """A transaction group; `fence` is what the driver does to names."""

    name = "orders-to-lake"

    def __init__(self, *open_members: MemberWrote) -> None:
        self.open = {each.member: each for each in open_members}
        self.decided: dict[int, Decision] = {}
        self.fenced: list[str] = []
        self.listing: Exception | None = None  # what is raised by whoever asks for that
        self.fencing: Exception | None = None
        self.refusal: AdminRefused | None = None
        self.refusals: list[AdminRefused] = []  # of commits, behind those whose answers are lost
        self.lost = 0  # so many answers to commits are lost, of which the decision of the first one stands or not
        self.is_lost_after = True
        self.asking: list[
            Exception
        ] = []  # what is raised by whoever asks for a decision, one after another

    def commit(
        self, number: int, members: Iterable[MemberWrote | None], note: str = ""
    ) -> Decision:
        if not self.lost:
            if self.refusals:
                raise self.refusals.pop()
            return self._commit(number, members, note)
        self.lost -= 1
        if self.is_lost_after:
            self._commit(number, members, note)
        raise AdminUnreachable("POST: no answer in 30 s")

    def _commit(self, number: int, members: Iterable[MemberWrote | None], note: str) -> Decision:
        if self.refusal is not None:
            raise self.refusal
        named = tuple(each for each in members if each is not None)
        if number in self.decided:
            if self.decided[number].members != named:
                raise DecidedBefore(self.decided[number])
            return self.decided[number]
        for each in named:
            if self.open.get(each.member) != each:
                raise AdminRefused(409, "PRODUCER_FENCED", f"member {each.member} was fenced.", "")
        for each in named:
            del self.open[each.member]
        self.decided[number] = Decision(number=number, outcome="commit", members=named, note=note)
        return self.decided[number]

    def abort(self, number: int) -> Decision:
        if number in self.decided:
            raise DecidedBefore(self.decided[number])
        self.decided[number] = Decision(number=number, outcome="abort")
        return self.decided[number]

    def decision(self, number: int) -> Decision:
        if self.asking:
            raise self.asking.pop()
        return self.decided.get(number, Decision(number=number, outcome="undecided"))

    def decisions(self, most: int = 1_000) -> tuple[Decision, ...]:
        return tuple(self.decided[number] for number in sorted(self.decided)[-most:])

    def open_members(self) -> dict[str, MemberWrote]:
        if self.listing is not None:
            raise self.listing
        return dict(self.open)

    def fence(self, group: str, members: Sequence[str]) -> None:
        assert group == self.name
        if self.fencing is not None:
            raise self.fencing
        self.fenced += members
        for each in members:
            self.open.pop(each, None)
