"""What a fault is: it begins, it is lived with, it is healed; and a sentence says what it did."""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from .plan import Kind, Strike
from .system import System, Way
from .targets import TARGETS, Asking

SYNC_S: Final = 60.0
LONG_S: Final = (40.0, 60.0)


class LeftOut(Exception):
    """This fault can't be now; the sentence says why. Nothing was done, or nothing that is known to have come about."""


@dataclass(slots=True)
class Clients:
    """What the workload lets be done to its clients; whoever has none leaves them out.

    `twin`      start a second producer with a transactional id of the load, for that many seconds; its id
    `pause`     stop a producer between a send and its commit; who it is, as `str` says it
    `resume`    wake the one that `pause` has returned, and nobody else
    `in_use`    a transactional id that a client of the load has now, and whose epochs may be nearly used up

    Each may raise `LeftOut`.
    """

    twin: Callable[[random.Random, float], str] | None = None
    pause: Callable[[random.Random], Any] | None = None
    resume: Callable[[Any], None] | None = None
    in_use: Callable[[random.Random], str] | None = None


@dataclass(slots=True)
class Stage:
    """Where faults strike. `stopping` is set when all has to end; `taken` are nodes that are another fault's now."""

    system: System
    asked: Asking
    clients: Clients
    stopping: threading.Event = field(default_factory=threading.Event)
    taken: set[int] = field(default_factory=set)
    cuts: dict[str, list[Way]] = field(default_factory=dict)  # by the fault that has begun them
    slow: dict[str, dict[Way, float]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)  # what was seen while faults were healed
    trouble: list[str] = field(default_factory=list)  # why the run proves nothing
    broken: list[str] = field(default_factory=list)  # what must not be, whatever the load saw
    lock: threading.RLock = field(default_factory=threading.RLock)
    now_s: Callable[[], float] = lambda: 0.0  # since the run began
    was_to_end: Callable[[int], None] = lambda _node: None  # its end is nothing to be told of

    def take(self, target: str, rng: random.Random) -> list[int]:
        """Nodes of that kind that run and are nobody else's; `LeftOut` when there are none."""
        with self.lock:
            free = [
                node
                for node in self.system.nodes
                if node not in self.taken and self.system.is_up(node)
            ]
            nodes = self.asked.choose(target, rng, free)
            if not nodes:
                raise LeftOut(f"no {target} to be found among nodes {free}")
            self.taken.update(nodes)
            return nodes

    def give_back(self, nodes: Sequence[int]) -> None:
        with self.lock:
            self.taken.difference_update(nodes)

    def wait_in_sync(self) -> None:
        """Before something that only full copies bear."""
        try:
            self.asked.wait_in_sync(SYNC_S)
        except TimeoutError as late:
            raise LeftOut(f"{late}: this one would take a copy more") from late

    def sleep(self, seconds: float) -> None:
        """Less when all has to end."""
        self.stopping.wait(seconds)


class Fault(ABC):
    """One of its kind for each strike. `begin` may raise `LeftOut`; `heal` is called whatever `begin` came to."""

    name: ClassVar[str]
    needs: ClassVar[str]  # of `System.can`
    targets: ClassVar[Sequence[str]] = TARGETS
    hold_s: ClassVar[tuple[float, float]] = (1.0, 8.0)
    # Now and then, of targets that leave a majority: so long that all timers of a system run out while it goes on.
    long_s: ClassVar[tuple[float, float] | None] = None
    first: ClassVar[bool] = False  # of its run
    form = ""  # one that makes a difference to what is promised meanwhile (checkers/promised.py)

    def __init__(self, stage: Stage, strike: Strike) -> None:
        self.stage = stage
        self.system = stage.system
        self.target = strike.target
        self.rng = strike.rng()
        self.key = strike.dice
        self.lasts_s = strike.until_s - strike.at_s
        self.nodes: list[int] = []
        self.struck_s: float | None = None  # since the run began: when it did the first harm
        self.more: dict[str, Any] = {}  # for its line

    @classmethod
    def kind(cls) -> Kind:
        return Kind(tuple(cls.targets), cls.hold_s, cls.long_s, cls.first)

    def take(self) -> list[int]:
        """Harm is done at once, or `strikes` says when: whoever has an office may have been looked for for seconds."""
        self.nodes = self.stage.take(self.target, self.rng)
        self.strikes()
        return self.nodes

    def strikes(self) -> None:
        self.struck_s = self.stage.now_s()

    @abstractmethod
    def begin(self) -> str:
        """What was done, as a sentence."""

    @abstractmethod
    def heal(self) -> str:
        """What was seen while it was healed, if that is worth a sentence."""

    def give_back(self) -> None:
        self.stage.give_back(self.nodes)

    def start_again(self, nodes: Sequence[int]) -> str:
        """All at once, and wait until they serve."""
        for node in nodes:
            self.system.start(node)
        took_s = self.system.wait_ready(nodes, self.system.back_s)
        return f"served again {took_s:.1f} s after the start"


def names(nodes: Sequence[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
