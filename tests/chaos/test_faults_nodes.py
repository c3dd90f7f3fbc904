"""What each fault does to nodes and their worlds, and that nothing of it is left when it was healed."""

import errno
import json
import signal
from pathlib import Path

import pytest
from faults_straw import Known, Straw
from fencepost.chaos.faults import clock_faults, damage_faults, disk_faults
from fencepost.chaos.faults.clock_faults import Clock
from fencepost.chaos.faults.damage_faults import SILENT, Damage
from fencepost.chaos.faults.disk_faults import STUCK_S, DiskFail, DiskSlow, Power
from fencepost.chaos.faults.fault import Clients, Fault, LeftOut, Stage
from fencepost.chaos.faults.plan import Strike
from fencepost.chaos.faults.process_faults import Hunt, Restart
from fencepost.chaos.faults.world import DISK, Slot, World

TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)


class Machines(Straw):
    """With a disk, clocks and power each; `words` is what their logs say."""

    can = frozenset({"kill", "clock", "disk", "power", "damage"})

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.data = folder
        self.words = ""
        self.worlds = {}
        for node in self.nodes:
            self.folder(node).mkdir()
            self.worlds[node] = World(folder / f"world-{node}", self.folder(node), Path("none"))

    def folder(self, node: int) -> Path:
        return self.data / f"node-{node}"

    def world(self, node: int) -> World:
        return self.worlds[node]

    def said(self, node: int) -> str:
        return self.words


class InSync(Known):
    def wait_in_sync(self, wait_s: float) -> float:
        return 0.0


@pytest.fixture
def machines(tmp_path, monkeypatch):
    monkeypatch.setattr(Stage, "sleep", lambda *_: None)
    made = Machines(tmp_path)
    yield made
    for world in made.worlds.values():
        world.close()


def strike(kind: type[Fault], machines: Machines, target: str, dice: str = "dice") -> Fault:
    stage = Stage(machines, InSync(machines), Clients())
    return kind(stage, Strike(1, kind.name, target, 0.0, 5.0, dice))


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


# -- damage ------------------------------------------------------------------------------------------


def with_files(machines: Machines) -> dict[str, bytes]:
    for node in machines.nodes:
        for name in ("t-0/0.log", "t-0/0.index", "quorum/1.snapshot", "meta.properties"):
            file = machines.folder(node) / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(bytes(100))
    return contents(machines)


def contents(machines: Machines) -> dict[str, bytes]:
    files = (path for path in machines.data.glob("node-*/**/*") if path.is_file())
    return {str(path.relative_to(machines.data)): path.read_bytes() for path in files}


def warned(message: str) -> str:
    lines = [
        {"event": "node_starts"},
        {"event": "log_damaged", "level": "error", "message": message},
        {"event": "logs_read_again", "level": "info", "message": "All logs were read again"},
    ]
    return "\n".join(map(json.dumps, lines))


def test_bytes_rot_in_files_of_a_node_that_is_down_and_of_no_other(machines) -> None:
    before = with_files(machines)
    fault = strike(Damage, machines, "one")
    said = fault.begin()
    (node,) = fault.nodes
    assert machines.dead == {node} and f"node {node} was " in said
    after = contents(machines)
    changed = {name for name in before if before[name] != after[name]}
    assert changed and all(name.startswith(f"node-{node}/") for name in changed)
    assert all(name.partition("/")[2] in said for name in changed)
    machines.words = warned("t-0 is damaged at 40")
    assert fault.heal() == f"node {node} is whole again by itself; it said: t-0 is damaged at 40"
    assert fault.stage.trouble == [] and not machines.dead


def refuses_once(machines: Machines, monkeypatch) -> None:
    wait = machines.wait_ready

    def wait_ready(nodes, timeout_s: float) -> float:
        monkeypatch.setattr(machines, "wait_ready", wait)
        raise damage_faults.DidNotStart("it refused")

    monkeypatch.setattr(machines, "wait_ready", wait_ready)


def test_who_names_its_damage_and_refuses_gets_an_empty_disk_and_that_is_well(
    machines, monkeypatch
) -> None:
    with_files(machines)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = warned("meta.properties is not what was written")
    refuses_once(machines, monkeypatch)
    assert "refused to start, was given an empty disk, and is whole again" in fault.heal()
    assert list(machines.folder(node).iterdir()) == [] and fault.stage.trouble == []


def test_who_finds_its_damage_when_it_is_in_sync_gets_an_empty_disk_too(
    machines, monkeypatch
) -> None:
    """After a clean stop it is in sync at once, and out of it when it has read its logs again."""
    with_files(machines)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = warned("t-0/0.log is damaged at position 40")
    waits = iter((0.0, TimeoutError("t-0 has two in sync"), 0.0))

    def wait_in_sync(_self, _wait_s: float) -> float:
        found = next(waits)
        if isinstance(found, TimeoutError):
            raise found
        return found

    monkeypatch.setattr(InSync, "wait_in_sync", wait_in_sync)
    assert "stayed behind, was given an empty disk" in fault.heal()
    assert list(machines.folder(node).iterdir()) == [] and fault.stage.trouble == []


def test_who_never_comes_to_read_its_logs_again_makes_the_run_unknown(
    machines, monkeypatch
) -> None:
    with_files(machines)
    monkeypatch.setattr(damage_faults, "READ_S", 1.0)
    monkeypatch.setattr(damage_faults, "LOOK_S", 0.01)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = "\n".join(
        json.dumps({"event": event}) for event in ("logs_read_again", "node_starts")
    )
    fault.heal()
    (why,) = fault.stage.trouble
    assert why == f"damage of one: node {node} did not come to read its logs again in 1.0 s"


def test_who_says_nothing_of_its_damage_and_gets_an_empty_disk_makes_the_run_unknown(
    machines, monkeypatch
) -> None:
    with_files(machines)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = json.dumps({"event": "node_starts"})
    refuses_once(machines, monkeypatch)
    assert SILENT in fault.heal()
    (why,) = fault.stage.trouble
    assert why.startswith(f"damage of one: node {node} refused to start and {SILENT}; ")
    assert " bytes" in why, "which files, and where"


# -- zombies -----------------------------------------------------------------------------------------
