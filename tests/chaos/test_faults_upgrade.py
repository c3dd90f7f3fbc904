"""What a rolling upgrade does to nodes, in which order, and what it takes for a promise that was broken."""

import json
import signal

import pytest
from faults_straw import Known, Straw
from fencepost.chaos.faults import upgrade_faults
from fencepost.chaos.faults.exits import Watched
from fencepost.chaos.faults.fault import Clients, LeftOut, Stage
from fencepost.chaos.faults.kinds import FAULTS
from fencepost.chaos.faults.plan import Strike, plan
from fencepost.chaos.faults.upgrade_faults import Upgrade
from fencepost.chaos.harness.processes import DidNotStart
from fencepost.cluster.base.errors import ErrorCode

TERM = int(signal.SIGTERM)
NEWEST = {"group.version": 1, "transaction.version": 2}
REFUSED = (
    "Unable to register because the broker does not support finalized version 1 of group.version."
)


class Builds(Straw):
    """A cluster of two builds, as it should be; `lets` is what it lets happen all the same."""

    can = frozenset({"kill", "upgrade"})

    def __init__(self) -> None:
        super().__init__()
        self.builds = dict.fromkeys(self.nodes, "older")
        self.levels = dict.fromkeys(NEWEST, 0)
        self.lets: set[str] = set()
        self.asked = 0
        self.words = ""
        self.ended: set[int] = set()  # by themselves
        self.last = {"event": "node_refused", "cause": REFUSED}

    def take_build(self, node: int, build: str) -> None:
        self.done.append((build, node))
        self.builds[node] = build

    def wait_ready(self, nodes, timeout_s: float) -> float:
        for node in nodes:
            if self.builds[node] == "older" and any(self.levels.values()):
                if "serve" in self.lets:
                    continue
                self.dead.add(node)
                self.ended.add(node)
                self.words = json.dumps(self.last)
                raise DidNotStart(f"node {node} ended")
        return super().wait_ready(nodes, timeout_s)

    def start(self, node: int) -> None:
        super().start(node)
        self.ended.discard(node)

    def exit_code(self, node: int) -> int | None:
        return 70 if node in self.ended else 0

    def said(self, node: int) -> str:
        return self.words

    def update(self, _addresses, levels) -> tuple[ErrorCode, str]:
        self.asked += 1
        if "older" in self.builds.values() and "raise" not in self.lets:
            return ErrorCode.invalid_update_version, "only supports versions 0-0"
        self.levels = dict(levels)
        self.done.append(("raise", *sorted(self.builds.values())))
        return ErrorCode.none, ""


class InSync(Known):
    def addresses(self) -> list:
        return []

    def wait_in_sync(self, wait_s: float) -> float:
        self.system.done.append(("in sync",))
        return 0.0


@pytest.fixture
def nodes(monkeypatch) -> Builds:
    made = Builds()
    monkeypatch.setattr(Stage, "sleep", lambda *_: None)
    monkeypatch.setattr(upgrade_faults.asking, "update_features", made.update)
    monkeypatch.setattr(upgrade_faults.asking, "feature_levels", lambda _: made.levels)
    return made


def upgrade(nodes: Builds, dice: str = "dice") -> Upgrade:
    stage = Stage(nodes, InSync(nodes), Clients(), now_s=lambda: 7.0)
    return Upgrade(stage, Strike(1, "upgrade", "all", 0.0, 5.0, dice))


def starts(nodes: Builds) -> list[tuple[str, int]]:
    return [step for step in nodes.done if step[0] in ("older", "newer")]


def test_nodes_go_one_by_one_and_levels_are_raised_when_all_are_there(nodes) -> None:
    fault = upgrade(nodes)
    said = fault.begin()
    raised = nodes.done.index(("raise", "newer", "newer", "newer"))
    path = starts(nodes)
    moves = [step for step in nodes.done[:raised] if step != ("in sync",)]
    for at in range(0, len(moves), 4):
        killed, taken, started, ready = moves[at : at + 4]
        node = killed[1]
        assert killed == ("kill", node, TERM) and taken[1] == node
        assert (started, ready) == (("start", node), ("ready", node))
    assert nodes.done[:raised].count(("in sync",)) == len(moves) / 4, "nobody is stopped before"
    # Too late to go back: who tries is refused, and comes back on the newer one.
    assert [build for build, _ in path[-2:]] == ["older", "newer"] and path[-1][1] == path[-2][1]
    assert said.endswith(f"was refused on the older build: {REFUSED}")
    assert nodes.levels == NEWEST and set(nodes.builds.values()) == {"newer"} and not nodes.dead
    assert nodes.asked >= 2, "once too early"
    assert fault.stage.broken == fault.stage.trouble == []
    assert fault.heal() == "" and nodes.done[-1] == ("ready", 1, 2, 3)
    told = fault.more["builds"]
    assert told[:3] == [{"at_s": 0.0, "node": n, "build": "older"} for n in (1, 2, 3)]
    assert [(each["build"], each["node"]) for each in told[3:]] == path
    assert {each["at_s"] for each in told[3:]} == {7.0}


def test_now_and_then_one_goes_back_before_it_is_too_late(nodes) -> None:
    forms = set()
    for dice in range(40):
        fault = upgrade(nodes, str(dice))
        fault.nodes = [1, 2, 3]
        path = fault._path()
        last = dict(path)
        assert last == {1: "newer", 2: "newer", 3: "newer"}
        back = [at for at, (_, build) in enumerate(path) if build == "older"]
        for at in back:
            node = path[at][0]
            assert (node, "newer") in path[:at] and (node, "newer") in path[at + 1 :]
        forms.add(len(path))
    assert forms == {3, 5}


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_upgrade_that_has_to_end_is_brought_to_its_end(nodes, monkeypatch, after: int) -> None:
    fault = upgrade(nodes)
    take = nodes.take_build

    def take_build(node: int, build: str) -> None:
        take(node, build)
        if len(starts(nodes)) >= after:
            fault.stage.stopping.set()

    monkeypatch.setattr(nodes, "take_build", take_build)
    if after == 0:
        fault.stage.stopping.set()
    fault.begin()
    assert "older" in nodes.builds.values() and nodes.levels != NEWEST
    fault.heal()
    assert set(nodes.builds.values()) == {"newer"} and nodes.levels == NEWEST
    assert len(starts(nodes)) <= 6


def test_whoever_serves_below_the_levels_of_its_cluster_has_broken_a_promise(nodes) -> None:
    nodes.lets = {"serve"}
    fault = upgrade(nodes)
    fault.begin()
    (why,) = fault.stage.broken
    assert "of the older build serves, in a cluster whose levels it does not know" in why
    assert set(nodes.builds.values()) == {"newer"}


def test_levels_that_are_raised_too_early_are_a_broken_promise(nodes) -> None:
    nodes.lets = {"raise", "serve"}
    fault = upgrade(nodes)
    fault.begin()
    assert "levels were raised that nodes of the older build do not know" in fault.stage.broken


def test_a_refusal_is_no_end_to_be_told_of_and_any_other_end_is(nodes) -> None:
    watched = Watched(nodes)
    fault = upgrade(watched)
    fault.stage.was_to_end = watched.was_to_end
    fault.begin()
    assert watched.exits == []
    nodes.last = {"event": "broken_invariant", "cause": "AssertionError: an epoch went back"}
    again = upgrade(watched)
    again.stage.was_to_end = watched.was_to_end
    with pytest.raises(DidNotStart):
        again.begin()
    again.heal()
    (end,) = watched.exits
    assert end.broken and not end.excused
    assert set(nodes.builds.values()) == {"newer"} and not nodes.dead


def test_nobody_is_upgraded_who_is_another_fault_s(nodes) -> None:
    fault = upgrade(nodes)
    fault.stage.taken.add(2)
    with pytest.raises(LeftOut, match="no all to be found"):
        fault.begin()
    assert fault.heal() == "" and nodes.done == [("ready",)]


def test_whatever_else_strikes_strikes_after_the_upgrade() -> None:
    """A bug of the older build is not today's."""
    kinds = {name: FAULTS[name].kind() for name in ("upgrade", "kill", "cut", "power")}
    for seed in range(30):
        for lane in (0, 1):
            some = [strike.kind for strike in plan(kinds, seed, 120.0, lane)]
            assert some[0] == "upgrade" and sorted(some[:4]) == sorted(kinds)
