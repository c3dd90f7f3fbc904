"""What the watch says of nodes that are made up for it: two that lead, features that nobody knows, images that part, a log too new."""

from types import SimpleNamespace

import pytest
from fencepost.chaos.sim.cluster import make_world
from fencepost.chaos.sim.cluster_watch import ClusterWatch
from fencepost.chaos.sim.expiring import Expiring
from fencepost.chaos.sim.image_watch import compare_images
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World
from fencepost.cluster.metadata.codec import CommandUnreadable
from fencepost.cluster.metadata.image import ClusterImage


@pytest.fixture
def failed(monkeypatch) -> list[str]:
    """What worlds were told to fail for."""
    told: list[str] = []
    monkeypatch.setattr(World, "fail", lambda _, why: told.append(str(why)))
    return told


@pytest.fixture
def watch():
    with World(1) as world:
        yield ClusterWatch(world)


def quorum(*, leads: bool) -> SimpleNamespace:
    return SimpleNamespace(quorum=SimpleNamespace(is_leader=leads, term=3))


@pytest.mark.parametrize(("second", "slept", "cries"), [(True, 0, 1), (False, 0, 0), (True, 2, 0)])
def test_two_that_control_at_once_are_seen_but_for_one_that_has_slept(
    watch, failed, second, slept, cries
) -> None:
    brokers = {1: quorum(leads=True), 2: quorum(leads=second), 3: quorum(leads=False)}
    watch.nodes = SimpleNamespace(
        up=lambda: [*brokers], has_slept=lambda id_, _: id_ == slept, brokers=brokers
    )
    watch._look_who_controls()
    assert len(failed) == cries
    assert all("two-controllers" in each and "1 in term 3" in each for each in failed)


@pytest.mark.parametrize(("level", "cries"), [(2, 0), (3, 1)])
def test_a_level_that_a_registered_node_does_not_know_is_seen(watch, failed, level, cries) -> None:
    image = ClusterImage()
    image.features["metadata.version"] = level
    image.brokers[1] = SimpleNamespace(broker_id=1, features={"metadata.version": (1, 2)})
    watch.nodes = SimpleNamespace(image=image)
    watch._look_at_features()
    assert len(failed) == cries
    assert all("feature-unknown" in each and "knows 1 to 2" in each for each in failed)


def test_images_of_one_version_that_are_not_the_same_are_seen() -> None:
    same, other, later = ClusterImage(), ClusterImage(), ClusterImage()
    other.next_producer_id = later.next_producer_id = 1_000
    later.version = 1
    assert compare_images([(1, same), (2, same), (3, later)]) == []
    (found,) = compare_images([(1, same), (2, other), (3, later)])
    assert (found.rule, "nodes 1 and 2" in found.what) == ("images-differ", True)


@pytest.mark.parametrize(
    ("faults", "rule"), [(("upgrade",), "metadata-unreadable"), (("kill",), "")]
)
def test_what_is_written_in_an_upgrade_and_can_not_be_read_is_seen(failed, faults, rule) -> None:
    nodes = SimpleNamespace(rotten=None, builds={})
    plan = Plan(campaign="transactions", seed=1, faults=faults)
    with make_world(plan, lambda: nodes) as world:
        world.node("node-1")
        world.deaths_allowed("node-1", CommandUnreadable("version 9 of a command"))
    assert [each.partition(":")[0] for each in failed] == [rule] * bool(rule)


def test_what_is_old_and_stays_is_seen(watch, failed) -> None:
    """And where a clock was set nobody can say what is old."""
    expiring = Expiring.__new__(Expiring)
    expiring.watch, expiring.topic, expiring.retention_ms = watch, "stream", 100
    expiring._too_much = lambda: "3 records of a minute ago"
    expiring.look = lambda: None
    for struck in (["clock"], ["kill"]):
        expiring.struck = lambda struck=struck: struck
        watch.world.run(expiring.at_the_end())
    assert [each.partition(":")[0] for each in failed] == ["never-expired"]
