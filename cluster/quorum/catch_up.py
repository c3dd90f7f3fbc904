"""A node that is to vote has to follow first: one that has to be sent the log would hold up every commit until then."""

from collections.abc import Callable
from typing import Final

from ..base.errors import ErrorCode
from ..base.ids import BrokerId
from ..base.ports import Clock
from .raft import Raft
from .voters import VoterChangeRefused

CATCH_UP_S: Final = 10.0
CATCH_UP_POLL_S: Final = 0.05


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
