"""What happens to the nodes of a real cluster: killed, paused or stopped, one of them or a majority, and healed.

Each fault is injected, lived with, healed. Who uses it says what progress is (`Load`).
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..checkers.promised import Promise
from ..faults.exits import BROKEN, last_words
from .kept_run import KeptRun
from .local_cluster import LocalCluster, wait_for
from .loop_frame import BrokenPromise, NoProgress
from .processes import DidNotStart

PROGRESS_S = 30.0  # for everybody to be served again while one node is away
IN_SYNC_S = 60.0
LONG_ODDS, LONG_S = 0.2, (15.0, 25.0)  # of pauses, so long that all must be served meanwhile
MEANWHILE_S = Promise().within_s({"fault": "pause"})
# What comes of a node that is not there: nobody is served, or it can't be killed or paused.
IN_VAIN = (TimeoutError, DidNotStart, NoProgress, ProcessLookupError, AssertionError)
QUIET_AFTER_S = 2.0  # what was on its way when the majority went has arrived


class Load(Protocol):
    """The work that goes on all the while."""

    @property
    def topics(self) -> Sequence[str]: ...

    def progress(self) -> float:
        """Seconds until everybody was served anew; TimeoutError when somebody is not."""

    def served(self) -> int:
        """How often anybody was, so far."""


@dataclass(slots=True)
class Faults:
    """One cluster, one load, one die."""

    cluster: LocalCluster
    load: Load
    rng: random.Random
    kept: KeptRun = field(default_factory=KeptRun)
    counts: Counter[str] = field(default_factory=Counter)
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, seconds: float, faults: Mapping[str, "Fault"]) -> None:
        try:
            self._run(seconds, faults)
        except IN_VAIN:
            self._see_who_ended()
            raise

    def _run(self, seconds: float, faults: Mapping[str, "Fault"]) -> None:
        self.load.progress()  # a group takes seconds to form, and they are no time for faults
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            name = self.rng.choice(list(faults))
            self.counts[name] += 1
            with self.kept.fault(name):
                faults[name](self, name)
            if self.rng.random() < 0.7:  # else the next meets replicas that are still behind
                self.wait_in_sync()
            time.sleep(self.rng.uniform(0.0, 1.0))
            self._see_who_ended()
        self._see_who_ended()

    def _see_who_ended(self) -> None:
        """By itself: of a broken invariant, or nobody knows of what."""
        for node in self.cluster.ended_by_themselves:
            event, cause = last_words(self.cluster.said_by(node))
            why = f"node {node} ended by itself: {cause}"
            raise BrokenPromise(why) if event == BROKEN else DidNotStart(why)

    def wait_in_sync(self) -> None:
        try:
            for topic in self.load.topics:
                wait_for(f"{topic} in sync", lambda: self.cluster.in_sync(topic), IN_SYNC_S)  # noqa: B023
        except TimeoutError:
            self._see_who_ended()
            raise

    # -- one node is away, the others go on --------------------------------------------------------

    def kill_leader(self, name: str) -> None:
        self.lose(name, self.leader())

    def kill_controller(self, name: str) -> None:
        self.lose(name, self.controller())

    def kill_any(self, name: str) -> None:
        self.lose(name, self.rng.choice(self.cluster.nodes))

    def stop_cleanly(self, name: str) -> None:
        node = self.leader()
        self.kept.hit(node)
        self.cluster.stop_node(node)
        event, cause = last_words(self.cluster.said_by(node))
        if event == BROKEN:
            raise BrokenPromise(f"node {node} was told to stop, and ended of: {cause}")
        self._live_without(name, node)

    def lose(self, name: str, node: int) -> None:
        self.kept.hit(node)
        self.cluster.kill(node)
        self._live_without(name, node)

    def _live_without(self, name: str, node: int) -> None:
        if self.rng.random() < 0.8:  # else it comes back at once, perhaps as leader
            self.took_s[name].append(self.load.progress())
        self.cluster.start_again(node)
        self.load.progress()

    def pause_leader(self, name: str) -> None:
        """Long enough that another leads when it wakes up and believes that it still does."""
        self.pause(name, self.leader(), self._pause_s())

    def pause_controller(self, name: str) -> None:
        self.pause(name, self.controller(), self._pause_s())

    def _pause_s(self) -> float:
        return self.rng.uniform(*(LONG_S if self.rng.random() < LONG_ODDS else (4.0, 8.0)))

    def pause_shortly(self, name: str) -> None:
        self.pause(name, self.leader(), self.rng.uniform(0.1, 2.0))

    def pause(self, name: str, node: int, seconds: float) -> None:
        self.kept.hit(node)
        self.cluster.pause(node)
        ends = time.monotonic() + seconds
        if seconds > MEANWHILE_S:
            meanwhile = f"{name}, meanwhile"
            self.counts[meanwhile] += 1
            self.took_s[meanwhile].append(self.load.progress())
        time.sleep(max(0.0, ends - time.monotonic()))
        self.cluster.resume(node)
        self.took_s[name].append(self.load.progress())

    # -- a majority is away, nobody may go on ------------------------------------------------------

    def kill_majority(self, name: str) -> None:
        nodes = list(self.cluster.nodes)
        self.rng.shuffle(nodes)
        self._lose_several(name, nodes[: len(nodes) // 2 + 1])

    def kill_all(self, name: str) -> None:
        self._lose_several(name, list(self.cluster.nodes))

    def _lose_several(self, name: str, nodes: Sequence[int]) -> None:
        self.kept.hit(*nodes)
        for node in nodes:
            self.cluster.kill(node)
        time.sleep(QUIET_AFTER_S)
        before = self.load.served()
        time.sleep(self.rng.uniform(0.0, 1.0))
        if self.load.served() > before:
            raise BrokenPromise(f"acknowledged while {len(nodes)} nodes were dead")
        for node in nodes:
            self.cluster.start_again(node)
        self.took_s[name].append(self.load.progress())

    # -- who is who --------------------------------------------------------------------------------

    def leader(self) -> int:
        """Of any partition of the load."""
        return self._known("a leader", self._any_leader)

    def _any_leader(self) -> int:
        topic = self.rng.choice(self.load.topics)
        leaders = [each.leader for each in self.cluster.partitions(topic)]
        return self.rng.choice(leaders) if leaders else -1

    def controller(self) -> int:
        return self._known("a controller", self.cluster.quorum_leader)

    def _known(self, what: str, ask: Callable[[], int]) -> int:
        found: list[int] = []

        def known() -> bool:
            found.append(ask())
            return found[-1] in self.cluster.nodes

        wait_for(what, known, PROGRESS_S)
        return found[-1]


Fault = Callable[[Any, str], None]  # of Faults, or of those of a loop with more of them
FAULTS: dict[str, Fault] = {
    "kill leader": Faults.kill_leader,
    "kill controller": Faults.kill_controller,
    "kill any": Faults.kill_any,
    "kill majority": Faults.kill_majority,
    "kill all": Faults.kill_all,
    "stop cleanly": Faults.stop_cleanly,
    "pause leader": Faults.pause_leader,
    "pause controller": Faults.pause_controller,
    "pause shortly": Faults.pause_shortly,
}
