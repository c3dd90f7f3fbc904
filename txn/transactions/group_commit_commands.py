"""What a transaction group is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.cluster.base.errors import ErrorCode

from .group_commit_records import GroupDecided


class Identity(NamedTuple):
    """A producer as its member says it is."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndGroup:
    """End these members' transactions, all or none. The number makes it safe to say again."""

    group: str
    number: int
    commit: bool
    members: Mapping[str, Identity]
    note: str = ""  # kept with the decision, and told with it


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDecision:
    group: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    group: str
    decisions_max: int = 100  # the highest numbers
    members_max: int = 1_000  # by name


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was done: Kafka's code, and a sentence that names what is in the way."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """What is decided. `is_new` is False when it had been decided before, by an earlier end of this number."""

    decision: GroupDecided
    is_new: bool


class Undecided(NamedTuple):
    """Nothing is decided for this number; `forgotten` when it may have been, too long ago to know."""

    forgotten: bool


class GroupMemberView(NamedTuple):
    member: str
    producer_id: int
    producer_epoch: int
    phase: str  # in Kafka's words


class GroupView(NamedTuple):
    """What is known of a group: its last decisions, the lowest number first, and its members by name."""

    group: str
    decisions: tuple[GroupDecided, ...]
    floor: int
    members: tuple[GroupMemberView, ...]
    members_left_out: int = 0  # for there are more than were asked for
