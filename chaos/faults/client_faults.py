"""Zombies and worn-out producers: a second producer with an id that another has, one that sleeps between its send and
its commit, an id whose epochs are used up: at 32767 its producer id must change.

A load lends its own clients for it (`fault.Clients`, `../runs/lent.py`); of one that does not nobody is struck. Brokers would tell of ids, too,
but for days after whoever had one has ended.
"""

from typing import Any

from ..harness.asking import Address
from .fault import Fault, LeftOut, Stage
from .plan import Strike
from .zombies import take_over

EPOCHS: tuple[int, int] = (20, 500)  # for how many generations an id is used up at a time


class _Clients(Fault):
    needs = "clients"
    targets = ("one",)
    hold_s = (1.0, 10.0)

    def heal(self) -> str:
        return ""


class Zombie(_Clients):
    """Two producers with one transactional id: each that begins fences the other."""

    name = "zombie"

    def begin(self) -> str:
        twin = self.stage.clients.twin
        if twin is None:
            raise LeftOut("this load has no ids that a second producer may have")
        return (
            f"a second producer has begun with the transactional id {twin(self.rng, self.lasts_s)}"
        )


class Sleeper(_Clients):
    """It sends, sleeps past its transaction's timeout perhaps, and commits then. Others may sleep meanwhile, each for its own time."""

    name = "sleeper"
    hold_s = (2.0, 20.0)

    def __init__(self, stage: Stage, strike: Strike) -> None:
        super().__init__(stage, strike)
        self._asleep: Any = None

    def begin(self) -> str:
        pause = self.stage.clients.pause
        if pause is None:
            raise LeftOut("this load has no clients that may be paused")
        self._asleep = pause(self.rng)
        return f"stopped {self._asleep} between its sends and its commit"

    def heal(self) -> str:
        resume = self.stage.clients.resume
        if self._asleep is not None and resume is not None:
            resume(self._asleep)
        return ""


class Epochs(_Clients):
    """InitProducerId again and again for one id: of a load that has an old one, past the last epoch that there is."""

    name = "epochs"

    def begin(self) -> str:
        in_use = self.stage.clients.in_use
        if in_use is None:
            raise LeftOut("this load has no ids that may be worn out")
        chosen, times = in_use(self.rng), self.rng.randint(*EPOCHS)
        taken = take_over(self.doors, chosen, times, self.stage.stopping.is_set)
        if not taken.times:
            raise LeftOut(f"nobody coordinates {chosen}")
        return f"the transactional id {chosen} was {taken}"

    def doors(self) -> dict[int, Address]:
        doors = self.system.doors
        return {node: doors[node] for node in self.system.nodes if self.system.is_up(node)}


KINDS = (Zombie, Sleeper, Epochs)
