"""Nodes as containers: what their harness makes goes with it, however it goes, and nothing of anybody else's."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fencepost.chaos.faults import container_labels
from fencepost.chaos.faults.container_image import docker, freeze
from fencepost.chaos.faults.containers import LABEL, Containers, remove_what_dead_runs_left

GONE_S = 30.0
# An engine as a folder: KIND/NAME holds the value of the label. It lists by label, and removes by name.
ENGINE = """#!/bin/sh
cd {folder}
case "$1 $2" in
"ps "*) kind=container; shift ;;
"rm -fv") kind=container; shift 2; removes=yes ;;
*" ls") kind=$1; shift 2 ;;
"network rm") kind=$1; shift 2; removes=yes ;;
"volume rm") kind=$1; shift 3; removes=yes ;;
*) exit 1 ;;
esac
if [ "$removes" ]; then cd $kind && exec rm "$@"; fi
for word; do
    case "$word" in
    label={label}=*) wanted=${{word#label={label}=}} ;;
    '{{{{.Label "{label}"}}}}') labels=yes ;;
    esac
done
for name in $(ls $kind); do
    value=$(cat $kind/$name)
    [ -n "$wanted" ] && [ "$wanted" != "$value" ] && continue
    [ "$labels" ] && echo "$value" || echo "$name"
done
"""
KINDS = ("container", "network", "volume")


class Engine:
    """The `docker` on the PATH, for as long as a test goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for kind in KINDS:
            (folder / kind).mkdir(parents=True)
        command = folder / "docker"
        command.write_text(ENGINE.format(folder=folder, label=LABEL))
        command.chmod(0o755)

    def has(self, lab: str, *kinds: str) -> None:
        for kind in kinds:
            (self.folder / kind / f"{len(self.left())}-of-{lab}").write_text(lab)

    def left(self) -> list[str]:
        return [file.read_text() for kind in KINDS for file in (self.folder / kind).iterdir()]


@pytest.fixture
def engine(tmp_path, monkeypatch) -> Engine:
    made = Engine(tmp_path / "engine")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    return made


def lab_of(process: int) -> str:
    return f"{container_labels.namespace()}-{process}-{container_labels._started(process)}-1"


@pytest.mark.slow
def test_only_what_dead_runs_of_this_namespace_left_is_removed(engine) -> None:
    with subprocess.Popen(["sleep", "60"]) as child, contextlib.ExitStack() as stack:
        stack.callback(child.kill)
        lab = lab_of(child.pid)
        here, process, started, _ = lab.split("-")
        kept = [
            lab,
            container_labels.new_lab(),
            f"{'0' * len(here)}-{process}-1-1",  # of another kernel, or of a container of its own
            process,  # as older builds had it: nobody knows where it was
        ]
        for each in kept:
            engine.has(each, *KINDS)
        # A process number that is in use again; and runs of which only this was left.
        engine.has(f"{here}-{process}-{int(started) - 1}-1", *KINDS)
        engine.has(f"{here}-{process}-{int(started) - 2}-1", "network")
        engine.has(f"{here}-{process}-{int(started) - 3}-1", "volume")
        remove_what_dead_runs_left()
        assert sorted(engine.left()) == sorted(kept * len(KINDS))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        remove_what_dead_runs_left()  # dead, though nobody has waited for it yet
        assert sorted(engine.left()) == sorted(kept[1:] * len(KINDS))


BUSY = "OCI runtime pause failed: unable to freeze: unknown"


@pytest.mark.parametrize(
    ("busy_for", "says", "tries", "fails"),
    [(4, BUSY, 5, False), (5, BUSY, 5, True), (1, "No such container", 1, True)],
)
def test_a_container_that_is_inside_a_sync_is_paused_a_little_later(
    tmp_path, monkeypatch, busy_for: int, says: str, tries: int, fails: bool
) -> None:
    command, asked = tmp_path / "docker", tmp_path / "asked"
    command.write_text(
        f'#!/bin/sh\necho "$@" >>{asked}\n'
        f'[ $(wc -l <{asked}) -gt {busy_for} ] || {{ echo "{says}" >&2; exit 1; }}\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OSError, match=says) if fails else contextlib.nullcontext():
        freeze("node-1")
    assert asked.read_text().splitlines() == ["pause node-1"] * tries


def test_two_labs_of_one_process_do_not_share_a_label(tmp_path) -> None:
    one, other = (Containers(tmp_path, nodes=1, image="none") for _ in range(2))
    assert one.label != other.label
    assert one.lab != other.lab


def test_processes_of_one_number_in_two_places_have_other_labels(tmp_path, monkeypatch) -> None:
    here = Containers(tmp_path, nodes=1, image="none")
    monkeypatch.setattr(container_labels, "namespace", lambda: "elsewhere")
    there = Containers(tmp_path, nodes=1, image="none")
    assert here.label.split("-")[1:3] == there.label.split("-")[1:3], "the same process"
    assert here.label.split("-")[0] != there.label.split("-")[0]
    assert here.lab != there.lab, "names of one engine are shared, too"


@pytest.mark.slow
@pytest.mark.needs("docker")
def test_a_harness_that_is_killed_leaves_no_container_behind(tmp_path) -> None:
    """The guard is not told: it sees the end of its stdin. Networks and volumes stand for all that it removes."""
    script = """
        import sys, time
        from pathlib import Path
        from fencepost.chaos.faults.container_image import docker, freeze
        from fencepost.chaos.faults.containers import Containers
        system = Containers(Path(sys.argv[1]), nodes=1, image="none")
        system.start_guard()
        docker("volume", "create", "--label", system.label, f"{system.lab}-1")
        docker("network", "create", "--label", system.label, f"{system.lab}-peers")
        print(system.label, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    harness = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    label = harness.stdout.readline().strip()
    assert label.startswith(f"{LABEL}=")
    assert f"-{harness.pid}-" in label

    def left() -> list[str]:
        mine = ("--filter", f"label={label}")
        return (
            docker("network", "ls", "-q", *mine).split()
            + docker("volume", "ls", "-q", *mine).split()
        )

    assert len(left()) == 2
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    deadline = time.monotonic() + GONE_S
    while left():
        assert time.monotonic() < deadline, f"{left()} are still there"
        time.sleep(0.1)


HEARS = """
import socket, sys
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, 9192), 1.0).close()
        print(host)
    except OSError:
        pass
"""


@pytest.mark.slow
@pytest.mark.needs("docker")
@pytest.mark.timeout(300)
def test_nodes_that_are_cut_off_do_not_reach_each_other_by_any_name(tmp_path) -> None:
    """A host's name led to the clients' network, where nothing was cut: cuts between containers were none."""

    def heard(system: Containers) -> set[str]:
        names = ["peer-1", "fencepost-1"]
        command = ["docker", "exec", f"{system.lab}-node-2", "python", "-c", HEARS, *names]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        return set(done.stdout.split())

    with Containers(tmp_path, nodes=2) as system:
        if "cut" not in system.can:
            pytest.skip(system.wants["cut"])
        assert heard(system) == {"peer-1", "fencepost-1"}
        system.cut([(1, 2), (2, 1)])
        assert heard(system) == set()
        system.heal()
        assert heard(system) == {"peer-1", "fencepost-1"}
