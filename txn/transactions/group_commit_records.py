"""What a transaction group leaves in the log: for each number what was decided, and for whom.

`floor` is the highest number of this group that had been forgotten when the decision was made: a number at or
below it may have been decided, nobody knows how any more, so it is never decided again.

Of a group that nobody uses any more a `remnant` is left: its highest decision, which has forgotten all others.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from .added_records import GROUP_DECISION, key_of, read_key, read_value, value_of

NO_FLOOR: Final = -1


class MemberEnded(NamedTuple):
    """A member as the decision found it."""

    member: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecided:
    group: str
    number: int
    commit: bool
    decided_ms: int
    floor: int = NO_FLOOR
    members: tuple[MemberEnded, ...] = ()

    def remnant(self, floor: int) -> "GroupDecided":
        """What is kept for long is small: of the members one, whose name tells whose decision it was."""
        return replace(self, floor=max(self.floor, floor), members=self.members[:1])

    def encode(self) -> tuple[bytes, bytes]:
        key = key_of(GROUP_DECISION, self.group, self.number)
        return key, value_of(self.commit, self.decided_ms, self.floor, self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecisionForgotten:
    group: str
    number: int

    def encode(self) -> tuple[bytes, None]:
        return key_of(GROUP_DECISION, self.group, self.number), None


def decode_group_decision(key: bytes, value: bytes | None) -> GroupDecided | GroupDecisionForgotten:
    group, number = read_key(key, numbered=True)
    if value is None:
        return GroupDecisionForgotten(group=group, number=number)
    commit, decided_ms, floor, rows, *_ = read_value(value, (bool, int, int, list))
    members = tuple(map(_member, rows))
    return GroupDecided(
        group=group,
        number=number,
        commit=commit,
        decided_ms=decided_ms,
        floor=floor,
        members=members,
    )


def _member(row: object) -> MemberEnded:
    match row:
        case [str(member), int(producer_id), int(producer_epoch)]:
            return MemberEnded(member, producer_id, producer_epoch)
        case _:
            raise ValueError("a decision names a member in unreadable words")
