"""Who is there to be asked, and what they were asked: memory of one coordinator, lost with it.

A checker is a member of its producer's group as long as it polls. The next poll after a move of the coordinator makes
it one again, so nothing of this is written down. What counts (delivered checks, decisions) is in the log.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from .check_back_commands import Attempt

NO_TICKET = 0


class Waiting(NamedTuple):
    """A poll that waits for something to check."""

    ticket: int
    checks_max: int


class Offer(NamedTuple):
    """A check that is on its way to a checker; nobody knows yet whether it arrived."""

    member: str
    attempt: Attempt


@dataclass(slots=True)
class CheckGroup:
    # Members that are alive -> when they were last heard of.
    members: dict[str, int] = field(default_factory=dict)
    # Who waits, longest first: whoever was asked last is asked again last.
    waiting: dict[str, Waiting] = field(default_factory=dict)
    # Half messages to be checked now, in the order in which they became due.
    due: dict[str, None] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.members or self.waiting or self.due or self.offers)


# Steps: what `apply` does to this memory.


class Polled(NamedTuple):
    group: str
    member: str
    now_ms: int


class PollParked(NamedTuple):
    group: str
    member: str
    waiting: Waiting


class PollEnded(NamedTuple):
    group: str
    member: str


class CheckerGone(NamedTuple):
    group: str
    member: str


class CheckDue(NamedTuple):
    group: str
    transactional_id: str


class CheckOffered(NamedTuple):
    group: str
    transactional_id: str
    offer: Offer


class CheckSettled(NamedTuple):
    """It is neither due nor on its way any more."""

    group: str
    transactional_id: str


Step = Polled | PollParked | PollEnded | CheckerGone | CheckDue | CheckOffered | CheckSettled
STEPS = (Polled, PollParked, PollEnded, CheckerGone, CheckDue, CheckOffered, CheckSettled)


class Checkers:
    """By group, which is what all ids of its producers begin with (`ids.transactional_partition_key`)."""

    def __init__(self) -> None:
        self.groups: dict[str, CheckGroup] = {}

    def of(self, group: str) -> CheckGroup:
        """To be read; an empty one when nothing is known."""
        return self.groups.get(group) or CheckGroup()

    def apply(self, step: Step) -> None:
        group = self.groups.setdefault(step.group, CheckGroup())
        match step:
            case Polled(_, member, now_ms):
                group.members[member] = now_ms
            case PollParked(_, member, waiting):
                group.waiting.pop(member, None)
                group.waiting[member] = waiting
            case PollEnded(_, member):
                group.waiting.pop(member, None)
            case CheckerGone(_, member):
                group.members.pop(member, None)
                group.waiting.pop(member, None)
            case CheckDue(_, transactional_id):
                group.offers.pop(transactional_id, None)
                group.due[transactional_id] = None
            case CheckOffered(_, transactional_id, offer):
                group.due.pop(transactional_id, None)
                group.offers[transactional_id] = offer
            case CheckSettled(_, transactional_id):
                group.due.pop(transactional_id, None)
                group.offers.pop(transactional_id, None)
        if group.is_empty:
            del self.groups[step.group]
