"""Zombies and worn-out producers: a second producer with an id that another has, one that sleeps between its send and
its commit, an id whose epochs are used up: at 32767 its producer id must change.

A load lends its own clients for it (`fault.Clients`, `../runs/lent.py`); of one that does not ids are taken that the brokers know of.
"""

from ..harness.asking import Address
from .fault import Fault, LeftOut
from .zombies import choose_id, take_over

EPOCHS: tuple[int, int] = (20, 500)  # for how many generations an id is used up at a time


class _Clients(Fault):
    needs = "clients"
    targets = ("one",)
    hold_s = (1.0, 10.0)

    def heal(self) -> str:
        return ""

    def doors(self) -> dict[int, Address]:
        doors = self.system.doors
        return {node: doors[node] for node in self.system.nodes if self.system.is_up(node)}

    def take_over(self, times: int, known: str = "") -> str:
        chosen = known or choose_id(list(self.doors().values()), self.rng)
        if chosen is None:
            raise LeftOut("the brokers know of no transactional id")
        taken = take_over(self.doors, chosen, times, self.stage.stopping.is_set)
        if not taken.times:
            raise LeftOut(f"nobody coordinates {chosen}")
        return f"the transactional id {chosen} was {taken}"


class Zombie(_Clients):
    """Two producers with one transactional id: each that begins fences the other."""

    name = "zombie"

    def begin(self) -> str:
        twin = self.stage.clients.twin
        if twin is None:
            return self.take_over(self.rng.randint(1, 3))
        return (
            f"a second producer has begun with the transactional id {twin(self.rng, self.lasts_s)}"
        )


class Sleeper(_Clients):
    """It sends, sleeps past its transaction's timeout perhaps, and commits then."""

    name = "sleeper"
    hold_s = (2.0, 20.0)

    def begin(self) -> str:
        pause = self.stage.clients.pause
        if pause is None:
            raise LeftOut("this load has no clients that may be paused")
        return f"stopped {pause(self.rng)} between its sends and its commit"

    def heal(self) -> str:
        if self.stage.clients.resume is not None:
            self.stage.clients.resume()
        return ""


class Epochs(_Clients):
    """InitProducerId again and again for one id: of a load that has an old one, past the last epoch that there is."""

    name = "epochs"

    def begin(self) -> str:
        elder = self.stage.clients.elder
        return self.take_over(self.rng.randint(*EPOCHS), elder() if elder else "")


KINDS = (Zombie, Sleeper, Epochs)
