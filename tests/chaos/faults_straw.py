"""Nodes that are nowhere, for tests of what faults do to them."""

from typing import ClassVar

from fencepost.chaos.faults.targets import Asking
from fencepost.chaos.harness.processes import DidNotStart


class Straw:
    """Three nodes that are nowhere; it remembers what was done to them."""

    name = "straw"
    nodes = (1, 2, 3)
    can = frozenset({"kill", "pause", "cut", "one-way", "slow"})
    wants: ClassVar[dict[str, str]] = {}
    back_s = 1.0
    doors = dict.fromkeys(nodes, ("127.0.0.1", 1))  # where nobody answers

    def __init__(self) -> None:
        self.dead: set[int] = set()
        self.paused: set[int] = set()
        self.ways: list[tuple[int, int]] = []
        self.refuses_to_start = False
        self.done: list[tuple] = []  # in order

    def runs(self, node: int) -> bool:
        return node not in self.dead

    def is_up(self, node: int) -> bool:
        return node not in self.dead | self.paused

    def exit_code(self, node: int) -> int | None:
        return 70 if node in self.dead else None

    def said(self, node: int) -> str:
        return "AssertionError: an epoch went backwards"

    def kill(self, node: int, signal_number: int = 9) -> None:
        self.done.append(("kill", node, int(signal_number)))
        self.dead.add(node)

    def start(self, node: int) -> None:
        self.done.append(("start", node))
        if not self.refuses_to_start:
            self.dead.discard(node)

    def wait_ready(self, nodes, timeout_s: float) -> float:
        self.done.append(("ready", *nodes))
        if self.dead & set(nodes):
            raise DidNotStart(f"nodes {self.dead} are dead")
        return 0.0

    def pause(self, node: int) -> None:
        self.paused.add(node)

    def resume(self, node: int) -> None:
        self.paused.discard(node)

    def cut(self, ways) -> None:
        self.ways = list(ways)

    def slow(self, ways) -> None:
        pass

    def heal(self) -> None:
        self.ways = []
        self.paused.clear()


class Known(Asking):
    """Nobody has to be asked."""

    def leaders(self) -> dict[str, int]:
        return {"t-0": 1, "t-1": 2}

    def controller(self) -> int:
        return 3

    def coordinators(self) -> list[int]:
        return [2]
