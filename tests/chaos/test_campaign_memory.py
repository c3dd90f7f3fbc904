"""Memory is collected between runs, and what it does not look at again is not what a run has left."""

import gc
import weakref

from fencepost.chaos.campaigns import campaign
from fencepost.chaos.campaigns.memory import THRESHOLDS, seldom_collected
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_run_leaves_is_gone_when_the_next_begins(monkeypatch) -> None:
    worlds: list[weakref.ref[World]] = []

    class Short:
        def __init__(self, plan: Plan) -> None:
            assert all(world() is None for world in worlds), "the run before is still there"
            self.world = World(plan.seed)
            worlds.append(weakref.ref(self.world))

        def run(self) -> None:
            with self.world:
                assert gc.get_threshold() == THRESHOLDS

        def __getattr__(self, name: str) -> object:
            return {"acknowledged": 0, "counts": {}}.get(name, ())

    one_node = campaign.CAMPAIGNS["one-node"]
    short = campaign.Campaign("short", one_node.about, (), Short)
    monkeypatch.setitem(campaign.CAMPAIGNS, "short", short)
    before = gc.get_threshold()
    for seed in range(3):
        assert not campaign.run_plan(Plan(campaign="short", seed=seed)).failure
    assert len(worlds) == 3
    assert gc.get_threshold() == before


def test_garbage_of_one_that_failed_is_collected_too() -> None:
    before, left = gc.get_threshold(), None
    try:
        with seldom_collected():
            left = weakref.ref(Cycle())
            raise AssertionError("a promise was broken")
    except AssertionError:
        pass
    assert gc.get_threshold() == before
    with seldom_collected():
        assert left is not None and left() is None
