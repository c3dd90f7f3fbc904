"""Who votes, and who has what, changed under load: by the commands that a person would give.

INVARIANT  a fault has struck when its first command was done; what a command may have changed is put back before it is over.
PREVENTS   a run under faults that were all refused, or a node that votes no more for the rest of it.
PROVED BY  tests/chaos/test_faults_members.py::test_a_command_that_fails_strikes_nobody
"""

import subprocess
import time
from collections.abc import Sequence
from typing import Final

from fencepost.node.cli.children import die_with_parent

from ..harness.processes import fencepost_command
from .fault import Fault, LeftOut, Stage
from .plan import Strike

COMMAND_S: Final = 90.0
UNDO_S: Final = 60.0
AGAIN_S: Final = 2.0
# By a command that was given up, and came about later.
ALREADY: Final = ("is a voter already", "is no voter")


class _Commanded(Fault):
    """Under faults of other lanes a command may have to fail."""

    def strike(self, *words: str) -> str:
        is_done, said = self.say(*words)
        if not is_done:
            raise LeftOut(said)
        return said

    def undo(self, *words: str) -> str:
        """Again for a while: the run goes on with what this leaves. TimeoutError when it can't be done."""
        deadline = time.monotonic() + UNDO_S
        while True:
            is_done, said = self.say(*words)
            if is_done or any(each in said for each in ALREADY):
                return said
            if time.monotonic() > deadline:
                raise TimeoutError(said)
            time.sleep(AGAIN_S)

    def say(self, *words: str) -> tuple[bool, str]:
        """Whether it was done, and what it came to, as a sentence."""
        doors = self.system.doors
        bootstrap = ",".join(
            f"{host}:{port}" for node, (host, port) in doors.items() if self.system.is_up(node)
        )
        command = [*fencepost_command(), *words, "--bootstrap", bootstrap]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
                preexec_fn=die_with_parent,
            )
        except subprocess.TimeoutExpired:
            return False, f"`{' '.join(words)}` was given up after {COMMAND_S:g} s"
        if done.returncode == 0:
            return True, f"`{' '.join(words)}` done"
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        return False, f"`{' '.join(words)}` failed: {lines[-1]}"


class Voters(_Commanded):
    """A node votes no more, for a while; with more than three another votes in its place."""

    name = "voters"
    needs = "members"
    targets = ("one", "controller", "coordinator", "leaders")
    hold_s = (1.0, 10.0)

    def __init__(self, stage: Stage, strike: Strike) -> None:
        super().__init__(stage, strike)
        self._tried: int | None = None  # to be removed
        self._is_removed = False
        self._added: int | None = None

    def begin(self) -> str:
        (node,) = self.take()
        voters = self._voters()
        if node not in voters:
            raise LeftOut(f"node {node} does not vote")
        others = [each for each in self.system.nodes if each not in voters]
        self._tried = node
        said = [self.strike("node", "voters", "remove", str(node))]
        self._is_removed = True
        if others:
            self._added = self.rng.choice(others)
            said.append(self.say("node", "voters", "add", str(self._added))[1])
        return f"{'; '.join(said)} ({self.target})"

    def _voters(self) -> Sequence[int]:
        count = len(self.system.nodes)
        first = self.system.nodes[: 5 if count >= 5 else 3]
        return first if count >= 3 else ()

    def heal(self) -> str:
        said = []
        if self._added is not None:
            said.append(self.undo("node", "voters", "remove", str(self._added)))
        if self._is_removed:
            said.append(self.undo("node", "voters", "add", str(self._tried)))
        elif self._tried is not None:  # it may vote all the same; then this is refused
            said.append(self.say("node", "voters", "add", str(self._tried))[1])
        return "; ".join(said)


class Drain(_Commanded):
    """All that a node has goes to the others, and comes back. Needs a node more than there are copies."""

    name = "drain"
    needs = "drain"
    targets = ("one", "controller", "coordinator", "leaders")
    hold_s = (2.0, 10.0)
    is_drained = False

    def begin(self) -> str:
        if len(self.system.nodes) <= 3:
            raise LeftOut("three nodes have three copies: nobody can be drained; say --nodes 4")
        (node,) = self.take()
        said = self.strike("node", "drain", str(node), "--yes")
        self.is_drained = True
        return f"{said} ({self.target})"

    def heal(self) -> str:
        if not self.nodes:
            return ""
        if self.is_drained:
            return self.undo("node", "rebalance", "--yes")
        return self.say("node", "rebalance", "--yes")[1]  # it may have been done all the same


class Rebalance(_Commanded):
    """Leaders and copies are evened out, as after a node was added."""

    name = "rebalance"
    needs = "drain"
    targets = ("all",)
    hold_s = (0.5, 2.0)

    def begin(self) -> str:
        return self.strike("node", "rebalance", "--yes")

    def heal(self) -> str:
        return ""


KINDS = (Voters, Drain, Rebalance)
