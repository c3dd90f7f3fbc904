"""Disks that are full, slow, stuck or failing, and power that is lost with all that was not synced."""

import errno
from collections.abc import Sequence
from typing import ClassVar

from ..checkers.promised import SLIGHT, STUCK
from .fault import LONG_S, Fault, names
from .power import lose_power
from .targets import TARGETS
from .world import World

STUCK_S = 3_600
SLIGHT_MS = 100  # longer, and a transaction of these loads ends long before it times out


class _Disk(Fault):
    needs = "disk"
    targets: ClassVar[Sequence[str]] = ("one", "leaders", "coordinator", "controller", "minority")

    def worlds(self) -> list[World]:
        return [self.system.world(node) for node in self.nodes]

    def heal(self) -> str:
        for world in self.worlds():
            world.sound_disk()
        return self._start_who_ended()

    def _start_who_ended(self) -> str:
        """Nodes may end for a disk that fails them."""
        ended = [node for node in self.nodes if not self.system.runs(node)]
        if not ended:
            return ""
        return f"{names(ended)} had ended by itself; {self.start_again(ended)}"


class DiskFull(_Disk):
    """Nothing can be written or made; reads and syncs work."""

    name = "disk-full"
    targets = TARGETS
    hold_s = (1.0, 10.0)
    long_s = LONG_S

    def begin(self) -> str:
        nodes = self.take()
        for world in self.worlds():
            world.set(full=1)
        return f"the disk of {names(nodes)} is full ({self.target})"


class DiskSlow(_Disk):
    """Each sync, perhaps each write, takes longer; or syncs do not come back before the end."""

    name = "disk-slow"
    targets = TARGETS
    hold_s = (2.0, 15.0)
    long_s = LONG_S

    def begin(self) -> str:
        nodes = self.take()
        form = self.rng.choice(("syncs", "syncs and writes", "stuck"))
        ms = 10 ** self.rng.uniform(0.5, 3.0)
        told = {"slow_sync_us": int(ms * 1000)}
        if form == "syncs and writes":
            told["slow_write_us"] = int(min(ms, 50) * 1000)
        if form == "stuck":
            told = {"slow_sync_us": STUCK_S * 1_000_000}
        for world in self.worlds():
            world.set(**told)
        self.form = STUCK if form == "stuck" else SLIGHT if ms <= SLIGHT_MS else ""
        what = "syncs are stuck" if form == "stuck" else f"{form} take {ms:.0f} ms longer"
        return f"{what} on {names(nodes)} ({self.target})"


class DiskFail(_Disk):
    """Syncs, writes or reads fail with EIO, all of them or some. The node is started anew afterwards, on another disk."""

    name = "disk-fail"
    hold_s = (0.5, 6.0)

    def begin(self) -> str:
        nodes = self.take()
        call = self.rng.choice(("sync", "write", "read"))
        one_in = self.rng.choice((1, 3, 20))
        for world in self.worlds():
            world.set(**{f"{call}_error": errno.EIO}, one_in=one_in)
        often = "every" if one_in == 1 else f"one in {one_in}"
        return f"{often} {call} on {names(nodes)} fails with EIO ({self.target})"

    def heal(self) -> str:
        for world in self.worlds():
            world.sound_disk()
        ended = [node for node in self.nodes if not self.system.runs(node)]
        for node in self.nodes:
            self.system.kill(node)
        seen = self.start_again(self.nodes)
        return f"{names(ended)} had ended by itself; {seen}" if ended else seen


class Power(Fault):
    """What was not synced is lost, all of it or a random part; the next process is of another boot of the machine."""

    name = "power"
    needs = "power"
    hold_s = (0.2, 4.0)

    def begin(self) -> str:
        nodes = self.take()
        for node in nodes:
            self.system.world(node).track(on=True)
        self.stage.sleep(self.rng.uniform(0.5, 3.0))
        self.strikes()
        for node in nodes:  # before any of them is looked at: they fail together
            self.system.kill(node)
        all_of_it = self.rng.random() < 0.5
        told = []
        for node in nodes:
            self.system.world(node).track(on=False)
            lost = lose_power(self.system.world(node), self.rng, all_of_it=all_of_it)
            told.append(f"on node {node} {lost}")
        return f"power was lost on {names(nodes)} ({self.target}): {'; '.join(told)}"

    def heal(self) -> str:
        for node in self.nodes:
            self.system.world(node).track(on=False)
        return self.start_again(self.nodes)


KINDS = (DiskFull, DiskSlow, DiskFail, Power)
