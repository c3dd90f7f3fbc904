"""Zombies and worn-out producers: what the workload lets be done to its clients (`fault.Clients`).

A second producer with an id that another has, a producer that sleeps between its send and its commit, and an id whose
epoch goes up until 16 bits are used up: at 32767 its producer id must change.
"""

from .fault import Fault, LeftOut

EPOCHS: tuple[int, int] = (100, 2_000)  # for how many generations an id is used up at a time


class _Clients(Fault):
    needs = "clients"
    targets = ("one",)
    hold_s = (1.0, 10.0)

    def heal(self) -> str:
        return ""


class Zombie(_Clients):
    """Two processes with one transactional id: each that begins fences the other."""

    name = "zombie"

    def begin(self) -> str:
        twin = self.stage.clients.twin
        if twin is None:
            raise LeftOut("this load has no clients that may have twins")
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
        return f"paused the client {pause(self.rng)}"

    def heal(self) -> str:
        if self.stage.clients.resume is not None:
            self.stage.clients.resume()
        return ""


class Epochs(_Clients):
    """InitProducerId again and again for an id of the load."""

    name = "epochs"

    def begin(self) -> str:
        hurry = self.stage.clients.hurry
        if hurry is None:
            raise LeftOut("this load has no ids whose epochs may be used up")
        times = self.rng.randint(*EPOCHS)
        return f"the producer epoch of {hurry(self.rng, times)} went up by {times}"


KINDS = (Zombie, Sleeper, Epochs)
