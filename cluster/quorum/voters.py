"""Who votes: a set that changes by one, through the log, and counts from the moment it is appended.

INVARIANT  two sets that follow each other differ in one voter, so that any two majorities of theirs overlap.
PREVENTS   two leaders of one term, elected by an old and a new set that have nobody in common.
PROVED BY  tests/cluster/quorum/test_voters.py::test_the_last_set_in_the_log_counts_and_a_cut_brings_back_the_one_before

The node's configuration is only the first set, for a log that has none (Raft's dissertation, §4.1).

Raft may leave it at that, as its voters lose no disk. Ours may lose one. A set is therefore committed, with all that was not
committed in front of it, by majorities of the set before and of its own (`raft_leader`), and is then written once more:
whoever finds it twice, one behind the other, need not ask the set before any more, whose members may be gone.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgpack

from ..base.errors import ErrorCode, LogDamaged, Outcome, Trouble
from ..base.ids import BrokerId

Address = tuple[str, int]
Voters = Mapping[BrokerId, Address]

VOTERS_KIND: Final = 2  # pysyncobj's MEMBERSHIP, the first byte of such an entry
_FORMAT: Final = 1


class VoterChangeRefused(Trouble):
    """It surely was not done; `error_code` is what Kafka's clients are told."""

    def __init__(self, error_code: ErrorCode, sentence: str) -> None:
        super().__init__(sentence, Outcome.REFUSED)
        self.error_code = error_code


def pack_voters(voters: Voters) -> list[list[object]]:
    return [[each, *voters[each]] for each in sorted(voters)]


def unpack_voters(packed: list[list[object]]) -> Voters:
    found: dict[BrokerId, Address] = {}
    for item in packed:
        match item:
            case [int(id_), str(host), int(port)]:
                found[BrokerId(id_)] = (host, port)
            case _:
                raise LogDamaged(f"{item!r} is no voter.")
    return found


def write_voters(voters: Voters) -> bytes:
    """What an entry holds behind its kind."""
    return bytes(msgpack.packb([_FORMAT, pack_voters(voters)], use_bin_type=True))


def read_voters(command: bytes) -> Voters:
    form, packed = msgpack.unpackb(command, raw=False)
    if form != _FORMAT:
        raise LogDamaged(
            f"The metadata log has a set of voters of format {form}; this version reads {_FORMAT}."
        )
    return unpack_voters(packed)


def majority(voters: int) -> int:
    return voters // 2 + 1


def is_elected(voters: Collection[BrokerId], fresh_of: Mapping[BrokerId, bool]) -> bool:
    """Whether those who vote for a candidate, each with whether it is *fresh*, are enough.

    A fresh voter began with an empty folder and has not caught up since. At a cluster's first start all are;
    later it is one whose disk was lost, and with it what it had acknowledged and for whom it had voted. Its vote
    counts only when all others vote too: one of them has what it forgot.
    """
    granted = [each for each in voters if each in fresh_of]
    sure = [each for each in granted if not fresh_of[each]]
    return len(sure) >= majority(len(voters)) or len(granted) == len(voters)


class VoterSets:
    """All sets from the snapshot on, with the index of the entry that brought each."""

    def __init__(self, index: int, voters: Voters) -> None:
        self._sets: list[tuple[int, Voters]] = [(index, dict(voters))]

    @property
    def current(self) -> Voters:
        return self._sets[-1][1]

    @property
    def index(self) -> int:
        """Of the entry that brought the current set; the next change waits until it is committed."""
        return self._sets[-1][0]

    @property
    def before(self) -> Voters:
        """The set before the current one, or none that is known."""
        return self._sets[-2][1] if len(self._sets) > 1 else {}

    @property
    def is_settled(self) -> bool:
        """Whether the set before counts no more: the current one is written twice, or a snapshot begins with it."""
        return self.before in ({}, self.current)

    def at(self, index: int) -> Voters:
        return next(voters for begun, voters in reversed(self._sets) if begun <= index)

    def add(self, index: int, voters: Voters) -> None:
        assert index > self.index, "sets of voters out of order"
        self._sets.append((index, dict(voters)))

    def cut_from(self, index: int) -> None:
        """Entries from here on are gone."""
        while len(self._sets) > 1 and self._sets[-1][0] >= index:
            self._sets.pop()

    def forget_before(self, index: int) -> None:
        """A snapshot holds the set that was in force there."""
        while len(self._sets) > 1 and self._sets[1][0] <= index:
            del self._sets[0]


def change_by_one(
    voters: Voters, *, add: tuple[BrokerId, Address] | None, remove: BrokerId | None
) -> Voters:
    """VoterChangeRefused says why it can't be."""
    assert (add is None) != (remove is None), "one voter is added or one is removed"
    changed = dict(voters)
    if add is not None:
        if add[0] in voters:
            raise VoterChangeRefused(
                ErrorCode.duplicate_voter, f"Node {add[0]} is a voter already."
            )
        changed[add[0]] = add[1]
    elif remove is not None:
        if remove not in voters:
            raise VoterChangeRefused(ErrorCode.voter_not_found, f"Node {remove} is no voter.")
        if len(voters) == 1:
            why = f"Node {remove} is the only voter."
            raise VoterChangeRefused(ErrorCode.invalid_request, why)
        del changed[remove]
    return changed
