"""Files of a node that is down rot: whether it has named them when it could not mend itself."""

import json
import re
from pathlib import Path

import pytest
from faults_machines import InSync, Machines, strike
from fencepost.chaos.faults import damage_faults
from fencepost.chaos.faults.damage_faults import DAMAGE_EVENTS, SILENT, Damage
from fencepost.chaos.faults.targets import Asking
from fencepost.chaos.harness import asking
from fencepost.chaos.harness.asking import PartitionView
from fencepost.cluster.base.log_events import EVENTS

FILES = ("t-0/0.log", "t-0/0.index", "metadata/snapshot", "meta.properties")


def with_files(machines: Machines, names: tuple[str, ...] = FILES) -> dict[str, bytes]:
    for node in machines.nodes:
        for name in names:
            file = machines.folder(node) / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(bytes(100))
    return contents(machines)


def contents(machines: Machines) -> dict[str, bytes]:
    files = (path for path in machines.data.glob("node-*/**/*") if path.is_file())
    return {str(path.relative_to(machines.data)): path.read_bytes() for path in files}


def said_since_the_start(*lines: dict[str, object]) -> str:
    read = {"event": "logs_read_again", "level": "info", "message": "All logs were read again"}
    return "\n".join(map(json.dumps, ({"event": "node_starts"}, *lines, read)))


def damaged(machines: Machines, before: dict[str, bytes]) -> list[Path]:
    """Files, as the node itself knows them."""
    after = contents(machines)
    return [machines.data / name for name in before if before[name] != after[name]]


def refusal(path: Path) -> dict[str, object]:
    cause = f"{path} is damaged: its checksum does not match. Where other voters are well"
    message = f"This node can't run (exit code 73): {cause}"
    return {"event": "node_refused", "level": "error", "message": message, "cause": cause}


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
    file = damaged(machines, before)[0]
    words = {"event": "snapshot_not_usable", "level": "warn", "message": f"{file} can't be used"}
    machines.words = said_since_the_start(words)
    told = fault.heal()
    assert told == f"node {node} is whole again by itself; it said: {words['message']}"
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
    before = with_files(machines)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = said_since_the_start(refusal(damaged(machines, before)[0]))
    refuses_once(machines, monkeypatch)
    assert "refused to start, was given an empty disk, and is whole again" in fault.heal()
    assert list(machines.folder(node).iterdir()) == [] and fault.stage.trouble == []


def test_the_last_copy_of_anything_is_not_thrown_away(machines, monkeypatch) -> None:
    """With `--at-once` above 1 another fault may keep the others behind: what only this disk has was acknowledged."""
    before = with_files(machines)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = said_since_the_start(refusal(damaged(machines, before)[0]))
    refuses_once(machines, monkeypatch)
    left = contents(machines)
    views = [PartitionView("t", 0, 1, (1, 2, 3), (1, 2, 3))]
    views.append(PartitionView("t", 1, -1, (1, 2, 3), (node,)))
    monkeypatch.setattr(asking, "partitions", lambda _addresses: views)
    monkeypatch.setattr(InSync, "wait_held_by_others", Asking.wait_held_by_others)
    monkeypatch.setattr(damage_faults, "SYNC_S", 0.01)
    with pytest.raises(TimeoutError, match=f"others that have all that node {node} has"):
        fault.heal()
    assert contents(machines) == left
    views[1] = PartitionView("t", 1, -1, (1, 2, 3), (node, *fault.system.nodes))
    fault._replace_disk(node)
    assert list(machines.folder(node).iterdir()) == []


def test_who_finds_its_damage_when_it_is_in_sync_gets_an_empty_disk_too(
    machines, monkeypatch
) -> None:
    """After a clean stop it is in sync at once, and out of it when it has read its logs again."""
    before = with_files(machines)
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    path = damaged(machines, before)[0]
    machines.words = said_since_the_start(
        {"event": "file_range_unreadable", "level": "error", "path": str(path), "position": 40}
    )
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


def warned(event: str, message: str, **fields: object) -> dict[str, object]:
    return {"event": event, "level": "warn", "message": message, **fields}


@pytest.mark.parametrize(
    "line",
    [
        {},
        warned("peer_unreachable", "Node 3 can't be reached: can't connect to 127.0.0.1:24604"),
        warned("quorum_lead_lost", "This node does not lead the metadata quorum any more"),
        warned("partition_offline", "t-1 can't be used on this node", topic="t", partition=1),
        warned("journal_torn_tail_cut", "9 torn bytes at 5 of /d/t-0/1.log were cut"),
        warned("node_refused", "/d/meta.properties: Permission denied"),
        warned("segment_not_removed", "/d/t-0/0.log could not be removed"),
    ],
    ids=lambda line: line.get("event", "nothing"),
)
def test_who_says_nothing_of_its_damage_and_gets_an_empty_disk_makes_the_run_unknown(
    machines, monkeypatch, line: dict[str, object]
) -> None:
    """A neighbour that can't be reached, another file or partition, and whatever comes of a kill are something else."""
    with_files(machines, ("t-0/0.log",))
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    machines.words = said_since_the_start(line)
    refuses_once(machines, monkeypatch)
    assert SILENT in fault.heal()
    (why,) = fault.stage.trouble
    assert why.startswith(f"damage of one: node {node} refused to start and {SILENT}; ")
    assert " bytes" in why, "which files, and where"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("meta.properties", warned("node_refused", "…", cause="D/meta.properties is not text")),
        ("meta.properties", warned("node_ends", "…", cause="D is older than what node 2 has seen")),
        ("metadata/vote", warned("quorum_vote_copy_damaged", "D/metadata/vote is damaged: its …")),
        (
            "metadata/snapshot",
            warned("node_refused", "The metadata journal in D/metadata does not"),
        ),
        ("t-0/0.log", warned("partition_offline", "…", topic="t", partition=0)),
        ("t-0/partition.metadata", warned("stray_partition", "…", folder="D/t-0")),
        ("__t_state-3/0.log", warned("coordinator_unreadable", "__t_state-3 holds a record that")),
    ],
)
def test_a_node_has_named_its_damage_by_the_file_or_its_folder_or_its_partition(
    machines, monkeypatch, file: str, line: dict[str, object]
) -> None:
    with_files(machines, (file,))
    fault = strike(Damage, machines, "one")
    fault.begin()
    (node,) = fault.nodes
    text = json.dumps(line).replace("D", str(machines.folder(node)))
    machines.words = said_since_the_start(json.loads(text))
    refuses_once(machines, monkeypatch)
    fault.heal()
    assert fault.stage.trouble == []


def test_events_that_speak_of_damage_are_those_that_the_product_logs() -> None:
    """tests/tidy/test_log_events.py has seen that each of the product's is logged somewhere. What can't be written is no damage, and a
    leader's snapshot is not on this disk."""
    assert set(EVENTS) >= DAMAGE_EVENTS
    others = {"damaged_logs_not_written", "torn_bytes_not_kept", "metadata_snapshot_unreadable"}
    named = {event for event in EVENTS if re.search("damaged|torn|unreadable|not_usable", event)}
    assert others <= named and named - others <= DAMAGE_EVENTS
