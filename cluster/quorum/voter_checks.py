"""What has to be so before the voters change, and before a change is called done.

INVARIANT  when a new set of voters is proposed, a majority of it has just answered, and who is new to it holds the log.
PREVENTS   a person who removes a voter that lives while another one is dead: nobody could agree on anything any more, the
           change itself and taking it back included. And a commit that waits until a newcomer has been sent the log.
PROVED BY  tests/cluster/quorum/test_quorum_members.py::test_a_voter_that_is_needed_is_not_removed

INVARIANT  who made the last voter one of two holds that it votes no more, twice, when its removal is called done.
PREVENTS   1. of 1 and 2, 1 removes 2, which is cut off, and commits that alone, as any majority of {1} may   2. 3 is added, and 1
           and 3 agree on more   3. the disk of 1 is lost, 2 is back   4. by the set that it knows 2 has all votes: 1's and its own.
PROVED BY  tests/cluster/quorum/test_last_voter.py::test_who_was_one_of_two_has_heard_that_it_votes_no_more
"""

from collections.abc import Callable
from typing import Final

from ..base.errors import ErrorCode
from ..base.ids import BrokerId
from ..base.ports import Clock
from .raft import Raft
from .raft_leader import SILENT_S
from .voters import Address, VoterChangeRefused, Voters, change_by_one, majority

CATCH_UP_S: Final = 10.0
CATCH_UP_POLL_S: Final = 0.05


def change_of_committed(
    raft: Raft, *, add: tuple[BrokerId, Address] | None, remove: BrokerId | None
) -> Voters:
    """VoterChangeRefused where the last change is not committed: it may be taken back, so that nobody is told who votes by it."""
    if raft.voters_submitted or raft.sets.index > raft.commit_index:
        why = "The last change of the voters is not committed."
        raise VoterChangeRefused(ErrorCode.request_timed_out, why)
    return change_by_one(raft.voters, add=add, remove=remove)


async def wait_caught_up(leading: Callable[[], Raft], clock: Clock, node_id: BrokerId) -> None:
    """Until it holds all that is committed; VoterChangeRefused when it does not come so far in CATCH_UP_S."""
    deadline = clock.steady() + CATCH_UP_S
    while True:
        raft = leading()
        progress = raft.progress.get(node_id)
        if progress is not None and progress.match_index >= raft.commit_index:
            return
        if clock.steady() >= deadline:
            why = f"Node {node_id} does not follow the metadata log: start it, then add it."
            raise VoterChangeRefused(ErrorCode.request_timed_out, why)
        await clock.sleep(CATCH_UP_POLL_S)


async def wait_told(leading: Callable[[], Raft], clock: Clock, removed: BrokerId) -> None:
    """Until it has heard of it. VoterChangeRefused, though it is done: somebody has to know what may come of it."""
    deadline = clock.steady() + CATCH_UP_S
    while True:
        raft = leading()
        progress = raft.progress.get(removed)
        if progress is not None and progress.match_index >= raft.sets.index:
            return
        if clock.steady() >= deadline:
            raise VoterChangeRefused(
                ErrorCode.request_timed_out,
                f"Node {removed} votes no more, and has not heard of it: it might be elected by what it knew before. Start it, or "
                "have it start with an empty log.dir.",
            )
        await clock.sleep(CATCH_UP_POLL_S)


async def wait_answers(leading: Callable[[], Raft], clock: Clock, voters: Voters) -> None:
    """A leader that was just elected has heard nobody as such: give a majority the time to answer, or not to."""
    deadline = clock.steady() + SILENT_S
    while clock.steady() < deadline and _too_many_silent(leading(), clock, voters):
        await clock.sleep(CATCH_UP_POLL_S)


def _too_many_silent(raft: Raft, clock: Clock, voters: Voters) -> list[BrokerId]:
    """Nobody where the others are a majority."""
    silent = raft.silent(voters, clock.steady())
    return [] if len(voters) - len(silent) >= majority(len(voters)) else silent


def check_majority_answers(raft: Raft, clock: Clock, voters: Voters) -> None:
    """VoterChangeRefused when too few of those who would vote answer the leader."""
    silent = _too_many_silent(raft, clock, voters)
    if not silent:
        return
    dead = " and ".join(f"node {each}" for each in silent)
    does, them = ("does", "it") if len(silent) == 1 else ("do", "them")
    raise VoterChangeRefused(
        ErrorCode.invalid_request,
        f"Of nodes {', '.join(map(str, sorted(voters)))}, which would vote, {dead} {does} not answer, and the others are no"
        f" majority: nothing could be agreed on any more. Start {dead}, or remove {them} first.",
    )
