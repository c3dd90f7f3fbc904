"""What a transaction group leaves in the log: for each number what was decided, and for whom.

`floor` is the highest number of this group that had been forgotten when the decision was made: a number at or
below it may have been decided, nobody knows how any more, so it is never decided again.

Of a group that nobody uses any more a `remnant` is left: its highest decision, which has forgotten all others.

A `note` stands behind the other fields, and only if there is one: older builds read over it, and their remnants have none.
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
    note: str = ""  # what whoever decided wants to find again; nothing of ours reads it

    def remnant(self, floor: int) -> "GroupDecided":
        """What is kept for long is small: of the members one, whose name tells whose decision it was."""
        return replace(self, floor=max(self.floor, floor), members=self.members[:1])

    def encode(self) -> tuple[bytes, bytes]:
        key = key_of(GROUP_DECISION, self.group, self.number)
        noted = (self.note,) if self.note else ()  # as builds that knew none wrote it
        return key, value_of(self.commit, self.decided_ms, self.floor, self.members, *noted)


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
    commit, decided_ms, floor, rows, *behind = read_value(value, (bool, int, int, list))
    members = tuple(map(_member, rows))
    note = behind[0] if behind else ""
    if not isinstance(note, str):
        raise ValueError("a decision has a note that is no text")  # noqa: TRY004 - of its record
    return GroupDecided(
        group=group,
        number=number,
        commit=commit,
        decided_ms=decided_ms,
        floor=floor,
        members=members,
        note=note,
    )


def _member(row: object) -> MemberEnded:
    match row:
        case [str(member), int(producer_id), int(producer_epoch)]:
            return MemberEnded(member, producer_id, producer_epoch)
        case _:
            raise ValueError("a decision names a member in unreadable words")
