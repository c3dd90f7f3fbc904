"""A rolling upgrade under load: all begin on an older build, one after the other runs today's, then the feature levels are raised.

INVARIANT  when it is over all nodes run today's build and the levels are today's, or `trouble` says why not; what the two builds
           must not let happen in between, and did, is in `broken`.
PREVENTS   an upgrade that passes because every node ran the same build, or because nobody raised a level.
PROVED BY  tests/chaos/test_faults_upgrade.py::test_nodes_go_one_by_one_and_levels_are_raised_when_all_are_there,
           tests/chaos/test_faults_upgrade.py::test_an_upgrade_that_has_to_end_is_brought_to_its_end
"""

import signal
from collections.abc import Collection, Mapping
from typing import Final

from fencepost.cluster.base.errors import ErrorCode

from ..harness import asking
from ..harness.local_cluster import wait_for
from ..harness.processes import DidNotStart
from .exits import REFUSED, last_words
from .fault import SYNC_S, Fault
from .older_node import KNOWS
from .system import NEWER, OLDER, UPGRADE, System

BREATH_S: Final = (1.0, 4.0)  # of load on two builds
COLD_FEET: Final = 1 / 2  # one goes back, before it goes on
RAISED_S: Final = 60.0
WORDS: Final = {NEWER: "today's", OLDER: "the older"}
REGISTRATION: Final = "does not support finalized version"


def excuse(system: System) -> str:
    """Why it may not be today's build that made a producer begin a new epoch; empty where only that serves."""
    older = sorted(node for node, build in system.builds.items() if build == OLDER)
    if not older:
        return ""
    return f"Of an older build are nodes {older}: before f631007 what followed a batch that came before the lead was out of order"


class Upgrade(Fault):
    """The first of a run is the upgrade. Any later one starts a node on the older build again, which must be refused."""

    name = "upgrade"
    needs = UPGRADE
    targets = ("all",)
    hold_s = (1.0, 2.0)
    first = True  # what else is broken strikes today's build

    def begin(self) -> str:
        self.nodes = self.stage.take("all", self.rng)
        if OLDER not in self.system.builds.values():
            return self._go_back(self.rng.choice(self.nodes))
        self.more["builds"] = [self._step(node, OLDER, 0.0) for node in self.nodes]
        path = self._path()
        asks_at = self.rng.randrange(len(path))
        done = []
        for at, (node, build) in enumerate(path):
            if self.stage.stopping.is_set():
                break
            if at == asks_at:
                self._may_not_be_raised()
            self._move(node, build)
            done.append(f"{node} to {WORDS[build]}")
            self.stage.sleep(self.rng.uniform(*BREATH_S))
        said = f"from the older build, one after the other: {', '.join(done) or 'none yet'}"
        if OLDER in self.system.builds.values():
            return said
        said += f"; {self._raise()}"
        if not self.stage.stopping.is_set():
            said += f"; {self._go_back(self.rng.choice(self.nodes))}"
        return said

    def heal(self) -> str:
        """Whatever is missing: nobody stays on the older build."""
        seen = []
        for node in self.nodes:
            if self.system.builds[node] == OLDER:
                self._move(node, NEWER)
                seen.append(f"node {node} to today's build")
        self.start_again(self.nodes)
        if self.nodes and self._levels() != self._newest():
            seen.append(self._raise())
        return "; ".join(seen)

    # -- one node --------------------------------------------------------------------------------

    def _path(self) -> list[tuple[int, str]]:
        """Who is started on which build, in this order."""
        order = list(self.nodes)
        self.rng.shuffle(order)
        path = [(node, NEWER) for node in order]
        if len(order) > 1 and self.rng.random() < COLD_FEET:
            at = self.rng.randrange(1, len(order))
            node = self.rng.choice(order[:at])
            path[at:at] = [(node, OLDER), (node, NEWER)]
        return path

    def _move(self, node: int, build: str) -> None:
        """As an operator does it: nobody is stopped before all that is copied is in sync."""
        self.stage.asked.wait_in_sync(SYNC_S)
        self._start(node, build)
        self.system.wait_ready([node], self.system.back_s)

    def _start(self, node: int, build: str) -> None:
        self.system.kill(node, signal.SIGTERM)
        self.system.take_build(node, build)
        self.system.start(node)
        self.more.setdefault("builds", []).append(self._step(node, build, self.stage.now_s()))

    def _step(self, node: int, build: str, at_s: float) -> dict[str, object]:
        return {"at_s": at_s, "node": node, "build": build}

    def _go_back(self, node: int) -> str:
        """When the levels are raised it is too late for that. The others go on meanwhile: the load sees to it."""
        self.stage.asked.wait_in_sync(SYNC_S)
        self._start(node, OLDER)
        try:
            self.system.wait_ready([node], self.system.back_s)
        except DidNotStart:
            event, cause = last_words(self.system.said(node))
            if self.system.runs(node) or event != REFUSED or REGISTRATION not in cause:
                raise  # of its end the schedule tells
            self.stage.was_to_end(node)
            said = f"node {node} was refused on the older build: {cause}"
        else:
            said = (
                f"node {node} of the older build serves, in a cluster whose levels it does not know"
            )
            self.stage.broken.append(said)
        self._start(node, NEWER)
        self.system.wait_ready([node], self.system.back_s)
        return said

    # -- feature levels --------------------------------------------------------------------------

    def _may_not_be_raised(self) -> None:
        code, why = self._ask({ErrorCode.none, ErrorCode.invalid_update_version})
        if code is ErrorCode.none:
            self.stage.broken.append("levels were raised that nodes of the older build do not know")
        else:
            self.stage.seen.append(f"levels could not be raised yet: {why}")

    def _raise(self) -> str:
        newest = self._newest()
        self._ask({ErrorCode.none})
        wait_for("all nodes to know the levels", lambda: self._levels() == newest, RAISED_S)
        return "raised " + ", ".join(f"{name} to {level}" for name, level in newest.items())

    def _ask(self, wanted: Collection[ErrorCode]) -> tuple[ErrorCode, str]:
        """That the levels be raised, until this is the answer."""
        answer = ErrorCode.none, ""

        def answered() -> bool:
            nonlocal answer
            answer = asking.update_features(self.stage.asked.addresses(), self._newest())
            return answer[0] in wanted

        try:
            wait_for("an answer about levels", answered, RAISED_S)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; the last one was {answer[0].name}, {answer[1]}") from late
        return answer

    def _newest(self) -> dict[str, int]:
        """What our own build has of what the older one lacks."""
        from fencepost.node.broker import SUPPORTED_FEATURES

        return {name: SUPPORTED_FEATURES[name][1] for name in KNOWS}

    def _levels(self) -> Mapping[str, int]:
        """The lowest that a node knows of."""
        found = [asking.feature_levels([door]) for door in self.system.doors.values()]
        return {name: min(each.get(name, 0) for each in found) for name in KNOWS}


KINDS = (Upgrade,)
