"""Nodes that are nowhere, with disks and clocks that are somewhere, for tests of what faults do to those."""

from pathlib import Path

from faults_straw import Known, Straw
from fencepost.chaos.faults.fault import Clients, Fault, Stage
from fencepost.chaos.faults.plan import Strike
from fencepost.chaos.faults.world import World


class Machines(Straw):
    """With a disk, clocks and power each; `words` is what their logs say."""

    can = frozenset({"kill", "clock", "disk", "power", "damage"})

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.data = folder
        self.words = ""
        self.worlds = {}
        for node in self.nodes:
            self.folder(node).mkdir()
            self.worlds[node] = World(folder / f"world-{node}", self.folder(node), Path("none"))

    def folder(self, node: int) -> Path:
        return self.data / f"node-{node}"

    def world(self, node: int) -> World:
        return self.worlds[node]

    def said(self, node: int) -> str:
        return self.words


class InSync(Known):
    def wait_in_sync(self, wait_s: float) -> float:
        return 0.0

    def wait_held_by_others(self, node: int, wait_s: float) -> float:
        return 0.0


def strike(kind: type[Fault], machines: Machines, target: str, dice: str = "dice") -> Fault:
    stage = Stage(machines, InSync(machines), Clients())
    return kind(stage, Strike(1, kind.name, target, 0.0, 5.0, dice))
