"""The active controller: decides commands on its image and has the quorum agree to the records.

INVARIANT  what is answered as done is in the metadata log, committed, and applied on this node.
PREVENTS   a client that is told of a topic which the next controller has never heard of.
PROVED BY  tests/cluster/controller/test_controller.py::test_an_answer_comes_after_the_record_is_applied
"""

from collections.abc import Mapping
from typing import TypeVar

from ..base.errors import Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Env
from ..quorum.raft_shell import Quorum
from .commands import ControllerCommand

R = TypeVar("R")


class NotController(Trouble):
    """This node does not lead the quorum; `leader_id` does, if it is known."""

    def __init__(self, leader_id: BrokerId | None) -> None:
        super().__init__(f"The active controller is {leader_id}, not this node.", Outcome.REFUSED)
        self.leader_id = leader_id


class Controller:
    """`node_config` holds the node's own settings, broker-level names to text, as in its file."""

    def __init__(self, env: Env, quorum: Quorum, node_config: Mapping[str, str]) -> None:
        self._env = env
        self._quorum = quorum
        self._node_config = node_config

    async def execute(self, command: ControllerCommand[R]) -> R:
        """Answers when it is done. NotController, or Trouble with outcome UNKNOWN when the lead was lost midway."""
        raise NotImplementedError
