"""Three real nodes of an older build of this repository, upgraded one by one while producers write."""

import sys
from collections.abc import Callable

import pytest
from fencepost.chaos.checkers.verdict import judge
from fencepost.chaos.faults import trial, upgrade_faults
from fencepost.chaos.faults.containers import Containers
from fencepost.chaos.faults.exits import Watched
from fencepost.chaos.faults.fault import Clients, Stage
from fencepost.chaos.faults.plan import Strike
from fencepost.chaos.faults.processes import Processes
from fencepost.chaos.faults.targets import Asking
from fencepost.chaos.faults.upgrade_faults import Upgrade
from fencepost.chaos.workloads.idempotent_stream import IdempotentStream, Plan
from fencepost.node.cli.supervisor import node_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.needs("history"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and needs prctl"),
]


def programs(system: Processes) -> set[str]:
    """What the nodes are, to the kernel."""
    found = set()
    for node in system.nodes:
        with open(f"/proc/{system.pid(node)}/cmdline") as file:
            found.add(" ".join(file.read().split("\0")[:4]).partition(" --")[0])
    return found


def entries(system: Containers) -> set[str]:
    """What their containers run, to the engine."""
    return {system._inspect(node)["Config"]["Entrypoint"][-1] for node in system.nodes}


def upgrade(system: Processes | Containers, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Under load; the rest is to be called when the caller has looked at what the nodes are now."""
    monkeypatch.setattr(upgrade_faults, "BREATH_S", (0.0, 0.5))
    trial.create_topic(system, 3)
    load = Plan(
        bootstrap=system.bootstrap,
        topic=trial.TOPIC,
        partitions=3,
        producers=2,
        records_per_second=50,
        seed=3,
        client=trial.CLIENT,
    )
    stream = IdempotentStream(load, excuse=lambda: upgrade_faults.excuse(system))
    watched = Watched(system)
    asked = Asking(system, topics=[trial.TOPIC])
    stage = Stage(watched, asked, Clients(), was_to_end=watched.was_to_end)
    fault = Upgrade(stage, Strike(1, "upgrade", "all", 0.0, 1.0, "dice"))
    stream.start()
    try:
        said = fault.begin()
        written = stream.acknowledged
        fault.heal()
    finally:
        stream.stop()

    def is_well() -> None:
        stream.read_all()
        codes = watched.stop()
        assert "raised group.version to 1, transaction.version to 2; node " in said
        assert "was refused on the older build: Unable to register because the broker does" in said
        (early,) = stage.seen
        assert "levels could not be raised yet" in early
        assert "only supports versions 0-0" in early
        assert stage.broken == stage.trouble == watched.exits == []
        assert codes == {1: 0, 2: 0, 3: 0}
        verdict = judge(stream.history)
        assert verdict.valid and written > 0, verdict

    return is_well


def test_nodes_of_an_older_build_are_upgraded_under_load_and_none_of_it_comes_back(
    tmp_path, monkeypatch
) -> None:
    with Processes(tmp_path / "nodes", nodes=3, begins_older=True) as system:
        older = f"{sys.executable} {tmp_path}/nodes/older/older_node.py serve"
        assert programs(system) == {older}
        is_well = upgrade(system, monkeypatch)
        assert programs(system) == {" ".join(node_command())}
        is_well()


@pytest.mark.needs("docker")
@pytest.mark.timeout(400)  # an image may have to be built first
def test_containers_of_an_older_build_are_upgraded_as_well(tmp_path, monkeypatch) -> None:
    with Containers(tmp_path / "nodes", nodes=3, begins_older=True) as system:
        assert entries(system) == {"/opt/older/older_node.py"}
        is_well = upgrade(system, monkeypatch)
        assert entries(system) == {"fencepost"}
        is_well()
        system.close()
        for node in system.nodes:  # what the containers have said that are no more
            log = (tmp_path / "nodes" / f"node-{node}.log").read_text()
            assert log.count('"event": "node_starts"') >= 2, log[:2000]
