"""Who votes, and who has what, changed under load: by the commands that a person would give."""

import subprocess
from collections.abc import Sequence
from typing import Final

from ..harness.processes import fencepost_command
from .fault import Fault, LeftOut, Stage
from .plan import Strike

COMMAND_S: Final = 90.0


class _Commanded(Fault):
    """Each command that fails is told, and no more: under faults of other lanes it may have to."""

    def say(self, *words: str) -> str:
        """What it came to, as a sentence."""
        doors = self.system.doors
        bootstrap = ",".join(
            f"{host}:{port}" for node, (host, port) in doors.items() if self.system.is_up(node)
        )
        command = [*fencepost_command(), *words, "--bootstrap", bootstrap]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"`{' '.join(words)}` was given up after {COMMAND_S:g} s"
        if done.returncode == 0:
            return f"`{' '.join(words)}` done"
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        return f"`{' '.join(words)}` failed: {lines[-1]}"


class Voters(_Commanded):
    """A node votes no more, for a while; with more than three another votes in its place."""

    name = "voters"
    needs = "members"
    targets = ("one", "controller", "coordinator", "leaders")
    hold_s = (1.0, 10.0)

    def __init__(self, stage: Stage, strike: Strike) -> None:
        super().__init__(stage, strike)
        self._removed: int | None = None
        self._added: int | None = None

    def begin(self) -> str:
        (node,) = self.take()
        voters = self._voters()
        if node not in voters:
            raise LeftOut(f"node {node} does not vote")
        others = [each for each in self.system.nodes if each not in voters]
        self._removed = node
        said = [self.say("node", "voters", "remove", str(node))]
        if others:
            self._added = self.rng.choice(others)
            said.append(self.say("node", "voters", "add", str(self._added)))
        return f"{'; '.join(said)} ({self.target})"

    def _voters(self) -> Sequence[int]:
        count = len(self.system.nodes)
        first = self.system.nodes[: 5 if count >= 5 else 3]
        return first if count >= 3 else ()

    def heal(self) -> str:
        said = []
        if self._added is not None:
            said.append(self.say("node", "voters", "remove", str(self._added)))
        if self._removed is not None:
            said.append(self.say("node", "voters", "add", str(self._removed)))
        return "; ".join(said)


class Drain(_Commanded):
    """All that a node has goes to the others, and comes back. Needs a node more than there are copies."""

    name = "drain"
    needs = "drain"
    targets = ("one", "controller", "coordinator", "leaders")
    hold_s = (2.0, 10.0)

    def begin(self) -> str:
        if len(self.system.nodes) <= 3:
            raise LeftOut("three nodes have three copies: nobody can be drained; say --nodes 4")
        (node,) = self.take()
        return f"{self.say('node', 'drain', str(node), '--yes')} ({self.target})"

    def heal(self) -> str:
        if not self.nodes:
            return ""
        return self.say("node", "rebalance", "--yes")


class Rebalance(_Commanded):
    """Leaders and copies are evened out, as after a node was added."""

    name = "rebalance"
    needs = "drain"
    targets = ("all",)
    hold_s = (0.5, 2.0)

    def begin(self) -> str:
        return self.say("node", "rebalance", "--yes")

    def heal(self) -> str:
        return ""


KINDS = (Voters, Drain, Rebalance)
