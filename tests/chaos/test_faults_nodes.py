"""What each fault does to nodes and their worlds, and that nothing of it is left when it was healed."""

import errno
import signal

import pytest
from faults_machines import InSync, strike
from fencepost.chaos.faults import clock_faults, disk_faults
from fencepost.chaos.faults.clock_faults import Clock
from fencepost.chaos.faults.disk_faults import STUCK_S, DiskFail, DiskSlow, Power
from fencepost.chaos.faults.fault import LeftOut, Stage
from fencepost.chaos.faults.plan import Strike
from fencepost.chaos.faults.process_faults import Hunt, Kill, Restart
from fencepost.chaos.faults.world import DISK, Slot, World

TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)


def slots(world: World) -> dict[str, int]:
    """All that it lies about."""
    found = {slot.name: world.get(slot) for slot in Slot if slot is not Slot.VERSION}
    return {name: value for name, value in found.items() if value}


# -- processes ---------------------------------------------------------------------------------------


def test_a_rolling_restart_stops_the_next_node_when_the_one_before_serves(machines) -> None:
    fault = strike(Restart, machines, "all")
    said = fault.begin()
    order = [node for what, node, *_ in machines.done if what == "kill"]
    assert sorted(order) == [1, 2, 3] and said.endswith("one after the other")
    expected = [(("kill", n, TERM), ("start", n), ("ready", n)) for n in order]
    assert machines.done == [step for steps in expected for step in steps]
    machines.done.clear()
    fault.heal()
    assert machines.done[-1] == ("ready", 1, 2, 3) and not machines.dead


def test_a_rolling_restart_that_has_to_end_leaves_the_others_alone(machines) -> None:
    fault = strike(Restart, machines, "all")
    fault.stage.stopping.set()
    fault.begin()
    assert machines.done == []


@pytest.mark.parametrize(
    ("target", "who"), [("leaders", {1, 2}), ("coordinator", {2}), ("controller", {3})]
)
def test_who_has_the_office_is_killed_again_and_again_and_started_at_once(
    machines, target: str, who: set[int]
) -> None:
    fault = strike(Hunt, machines, target)
    said = fault.begin()
    killed = [node for what, node, *_ in machines.done if what == "kill"]
    assert 2 <= len(killed) <= 5 and set(killed) <= who and set(fault.nodes) == set(killed)
    assert machines.done == [step for n in killed for step in (("kill", n, KILL), ("start", n))]
    assert said.startswith(f"killed who was {target}: ")
    fault.heal()
    assert machines.done[-1] == ("ready", *fault.nodes)


def test_whom_a_hunt_has_struck_no_other_fault_takes_before_it_is_over(machines) -> None:
    """It starts them again when it is healed: whoever else had killed one would find it alive."""
    fault = strike(Hunt, machines, "leaders")
    fault.begin()
    assert fault.stage.taken == set(fault.nodes) <= {1, 2}
    others = Kill(fault.stage, Strike(1, "kill", "all", 0.0, 5.0, "another lane"))
    with pytest.raises(LeftOut, match="no all to be found among nodes"):
        others.begin()
    fault.heal()
    assert fault.stage.taken == set(fault.nodes), "they may not serve yet"
    fault.give_back()
    assert fault.stage.taken == set()


def test_a_hunt_leaves_alone_whom_another_fault_has(machines) -> None:
    fault = strike(Hunt, machines, "controller")
    fault.stage.taken.add(3)
    with pytest.raises(LeftOut, match="no controller to be found"):
        fault.begin()
    fault.heal()
    fault.give_back()
    assert fault.stage.taken == {3}
    assert not [step for step in machines.done if step[0] != "ready"]


def test_a_hunt_for_somebody_who_is_nowhere_struck_nobody(machines, monkeypatch) -> None:
    monkeypatch.setattr(InSync, "choose", lambda *_: [])
    fault = strike(Hunt, machines, "controller")
    with pytest.raises(LeftOut, match="no controller to be found"):
        fault.begin()
    assert machines.done == []


# -- clocks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "lies"),
    [
        ("_jump", {"WALL_OFFSET"}),
        ("_drift", {"WALL_RATE", "STEADY_RATE"}),
        ("_flutter", {"WALL_OFFSET"}),
    ],
)
def test_clocks_that_were_wrong_are_right_again_when_it_is_over(
    machines, monkeypatch, form: str, lies: set[str]
) -> None:
    monkeypatch.setattr(clock_faults, "STROBE_S", (0.001, 0.001))
    fault = strike(Clock, machines, "all")
    monkeypatch.setattr(
        fault.rng,
        "choice",
        lambda some: next(
            (each for each in some if getattr(each, "__name__", "") == form), some[-1]
        ),
    )
    said = fault.begin()
    assert "clock" in said and said.endswith("(all)")
    if form == "_flutter":
        seen = {machines.world(1).get(Slot.WALL_OFFSET) != 0 for _ in range(200_000)}
        assert seen == {True, False}, "to and fro"
    else:
        assert all(lies <= slots(machines.world(node)).keys() for node in (1, 2, 3))
    fault.heal()
    for node in (1, 2, 3):
        left = slots(machines.world(node)).keys()
        # What the steady clock gained it keeps: it never goes back.
        assert left <= {"WALL_BASE", "STEADY_BASE", "STEADY_OFFSET"}, left
    assert fault._strobe is None or not fault._strobe.is_alive()


# -- disks -------------------------------------------------------------------------------------------


def test_a_slow_disk_is_slow_in_each_of_its_ways_and_sound_when_it_is_over(machines) -> None:
    seen = set()
    for dice in range(20):
        fault = strike(DiskSlow, machines, "all", str(dice))
        said = fault.begin()
        lies = slots(machines.world(2))
        assert set(lies) <= {"SLOW_SYNC_US", "SLOW_WRITE_US"} and "SLOW_SYNC_US" in lies
        assert lies.get("SLOW_WRITE_US", 0) <= 50_000
        stuck = lies["SLOW_SYNC_US"] == STUCK_S * 1_000_000
        assert stuck == ("stuck" in said)
        seen.add(("SLOW_WRITE_US" in lies, stuck))
        assert fault.heal() == ""
        assert not any(slots(machines.world(node)) for node in machines.nodes)
    assert seen == {(False, False), (True, False), (False, True)}


def test_a_disk_that_fails_is_another_one_for_the_next_process_and_who_ended_is_named(
    machines,
) -> None:
    calls = set()
    for dice in range(20):
        machines.done.clear()
        fault = strike(DiskFail, machines, "one", str(dice))
        said = fault.begin()
        (node,) = fault.nodes
        (call,) = [
            c for c in ("SYNC", "WRITE", "READ") if f"{c}_ERROR" in slots(machines.world(node))
        ]
        assert slots(machines.world(node))[f"{call}_ERROR"] == errno.EIO
        assert f"{call.lower()} on node {node} fails with EIO" in said
        calls.add(call)
        machines.dead.add(node)  # it could not bear it
        assert f"node {node} had ended by itself" in fault.heal()
        assert not slots(machines.world(node))
        assert machines.done == [("kill", node, KILL), ("start", node), ("ready", node)]
    assert calls == {"SYNC", "WRITE", "READ"}
    assert {slot.name for slot in DISK} >= {f"{call}_ERROR" for call in calls}


def test_power_goes_on_all_machines_before_any_disk_is_looked_at(machines, monkeypatch) -> None:
    """One that is killed later could still be told by the others what it had not synced."""
    lose = disk_faults.lose_power

    def lost(world: World, *words, **more):
        machines.done.append(("lost", world.folder.name, world.get(Slot.TRACKING)))
        return lose(world, *words, **more)

    monkeypatch.setattr(disk_faults, "lose_power", lost)
    boots = {node: (machines.world(node).folder / "boot_id").read_text() for node in (1, 2, 3)}
    tracked: list[int] = []
    monkeypatch.setattr(
        Stage,
        "sleep",
        lambda *_: tracked.extend(w.get(Slot.TRACKING) for w in machines.worlds.values()),
    )
    fault = strike(Power, machines, "all")
    said = fault.begin()
    assert tracked == [1, 1, 1], "what is written is noted from before the cut"
    assert machines.done == [
        *(("kill", node, KILL) for node in (1, 2, 3)),
        *(("lost", f"world-{node}", 0) for node in (1, 2, 3)),
    ]
    assert said.startswith("power was lost on nodes 1, 2, 3 (all): on node 1 0 writes")
    for node in (1, 2, 3):
        assert (machines.world(node).folder / "boot_id").read_text() != boots[node]
    fault.heal()
    assert machines.done[-1] == ("ready", 1, 2, 3) and not machines.dead
