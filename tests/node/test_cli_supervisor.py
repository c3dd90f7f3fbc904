"""The supervisor with nodes of straw: programs that print `ready`, so that only the supervisor is on trial."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fencepost.chaos.harness.processes import Process
from fencepost.node.cli import start_again
from fencepost.node.cli.supervisor import TWICE_S, Child
from fencepost.node.main import main

# Ends as soon as it is told to; STRAW says what else it does: `late 2` never serves as node 2, and so on.
STRAW = """
import os, signal, socket, sys, threading, time
sets = dict(word.split("=", 1) for word in sys.argv if "=" in word)
number, address = sets["node.id"], sets["listeners"].partition("://")[2]
what, _, who = os.environ.get("STRAW", "").partition(" ")
is_me = who in (number, "all")
if what == "refuse" and is_me:
    print("fencepost: unknown setting x", file=sys.stderr)
    sys.exit(2)
if what == "fail" and is_me:
    print("noise", file=sys.stderr)
    print("fencepost: the journal is damaged", file=sys.stderr)
    sys.exit(1)
if what in ("deaf", "mute") and is_me:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
def answer(door):
    while True:
        with door.accept()[0] as asked:
            asked.recv(64)
            asked.sendall(b"any")
host, _, port = address.rpartition(":")
if what == "hang" and is_me:
    door = socket.create_server((host, int(port)))
else:
    threading.Thread(target=answer, args=(socket.create_server((host, int(port))),), daemon=True).start()
if what != "late" or not is_me:
    print("ready", address, flush=True)
while True:
    time.sleep(10)
"""
SUPERVISOR = """
import asyncio, os, sys
from fencepost.node.cli import supervisor
from fencepost.node.cli.dev_folder import DevFolder
if os.environ["STRAW"].startswith("deaf"):  # waited for in vain; the others have all the time that they need
    supervisor.STOP_S = 1.0
with DevFolder(sys.argv[1]) as folder:
    layout = folder.layout(int(sys.argv[2]), 0)
    command = [sys.executable, "-I", "-S", sys.argv[3]]
    sys.exit(asyncio.run(supervisor.Supervisor(folder, layout, command=command).run()))
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and needs prctl"),
]


class Straw:
    def __init__(self, folder: Path, nodes: int, straw: str) -> None:
        self.data = folder / "data"
        program = folder / "straw.py"
        program.write_text(STRAW)
        command = [sys.executable, "-c", SUPERVISOR, str(self.data), str(nodes), str(program)]
        self.process = Process(command, log=folder / "said", environment={"STRAW": straw})

    def pid(self, number: int) -> int:
        return int((self.data / f"node-{number}" / "pid").read_text())

    def start_again(self, number: int) -> int:
        return main(["dev", "--data", str(self.data), "--start", str(number)])

    def wait_ready(self) -> str:
        return self.process.wait_line("ready ", 30)


Make = Callable[..., Straw]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Straw] = []

    def make(nodes: int = 3, straw: str = "") -> Straw:
        made.append(Straw(tmp_path, nodes, straw))
        made[-1].process.start()
        return made[-1]

    yield make
    for each in made:
        each.process.kill()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool], wait_s: float = 30.0) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_ready_is_said_once_when_all_serve_and_ctrl_c_stops_all(make: Make) -> None:
    cluster = make()
    line = cluster.wait_ready()
    assert line.count("127.0.0.1:") == 3 and line.count(",") == 2
    pids = [cluster.pid(number) for number in (1, 2, 3)]
    assert all(map(running, pids))
    os.kill(cluster.process.pid, signal.SIGINT)
    until(lambda: not cluster.process.alive)
    assert cluster.process.exit_code == 0
    assert not any(map(running, pids))
    first, doors = cluster.process.said().splitlines()
    assert (first, doors.count("http://127.0.0.1:")) == (line, 3)
    left = {path.name for path in cluster.data.iterdir()}
    assert left == {"cluster.json", "peer.secret", "supervisor.lock", "node-1", "node-2", "node-3"}
    assert not (cluster.data / "node-1" / "pid").exists()


def test_a_node_that_was_killed_stays_down_until_it_is_asked_for(make: Make, capsys) -> None:
    cluster = make()
    cluster.wait_ready()
    address = cluster.wait_ready().removeprefix("ready ").split(",")[1]
    before = cluster.pid(2)
    os.kill(before, signal.SIGKILL)
    sentence = f"fencepost dev --data {cluster.data} --start 2"
    until(lambda: sentence in cluster.process.said())
    assert "node 2 was ended by SIGKILL" in cluster.process.said()
    assert not (cluster.data / "node-2" / "pid").exists()
    assert cluster.start_again(2) == 0
    assert capsys.readouterr() == (f"ready {address}\n", "")
    assert running(cluster.pid(2)) and cluster.pid(2) != before
    assert cluster.start_again(2) == 0
    assert "node 2 runs already, as process" in capsys.readouterr().err
    assert cluster.start_again(4) == 1
    assert "there is no node 4; there are 1 to 3" in capsys.readouterr().err


def test_a_node_that_is_stopped_does_not_run_already(make: Make, capsys) -> None:
    cluster = make()
    cluster.wait_ready()
    pid = cluster.pid(2)
    os.kill(pid, signal.SIGSTOP)
    assert cluster.start_again(2) == 1
    said = capsys.readouterr()
    assert (said.out, "runs already" in said.err) == ("", True)
    assert f"process {pid} is stopped (SIGSTOP). `kill -CONT {pid}` lets it go on" in said.err
    os.kill(pid, signal.SIGCONT)
    assert cluster.start_again(2) == 0


def test_a_node_that_hangs_is_told_with_its_process_and_log(
    make: Make, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(start_again, "ANSWER_S", 0.2)
    cluster = make(straw="hang 2")
    cluster.wait_ready()
    assert cluster.start_again(2) == 1
    said = capsys.readouterr().err
    assert "does not answer at 127.0.0.1:" in said and f"`kill -9 {cluster.pid(2)}`" in said
    assert str(cluster.data / "node-2" / "log") in said


def test_all_nodes_killed_come_back_one_after_the_other(make: Make, capsys) -> None:
    """A first that waited for its majority would wait for ever, and the second never be asked for."""
    cluster = make()
    cluster.wait_ready()
    for number in (1, 2, 3):
        os.kill(cluster.pid(number), signal.SIGKILL)
    until(lambda: cluster.process.said().count("SIGKILL") == 3)
    assert cluster.start_again(1) == 0
    said = capsys.readouterr()
    assert said.out == "" and "once a majority of the voters (1 to 3) does" in said.err
    assert cluster.start_again(2) == 0
    assert capsys.readouterr().out.startswith("ready ")


def test_a_folder_deep_down_is_reached_from_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A socket's path may have 107 bytes, and a process may stand in a folder that was removed."""
    deep = tmp_path.joinpath(*["folder"] * 20)
    deep.mkdir(parents=True)
    cluster = Straw(deep, 1, "")
    cluster.process.start()
    try:
        cluster.wait_ready()
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert cluster.start_again(1) == 0
        assert "runs already" in capsys.readouterr().err
    finally:
        cluster.process.kill()


def test_nodes_end_with_a_supervisor_that_was_killed(make: Make) -> None:
    cluster = make()
    cluster.wait_ready()
    pids = [cluster.pid(number) for number in (1, 2, 3)]
    cluster.process.kill()
    until(lambda: not any(map(running, pids)))


def test_the_next_supervisor_goes_on_where_one_was_killed(make: Make) -> None:
    cluster = make()
    first = cluster.wait_ready()
    cluster.process.kill()
    cluster.process.start()
    assert cluster.wait_ready() == first


def test_a_setting_that_can_not_be_stops_all_with_one_sentence(make: Make) -> None:
    cluster = make(straw="refuse all")
    until(lambda: not cluster.process.alive)
    assert cluster.process.exit_code == 2
    assert cluster.process.said() == "fencepost: unknown setting x\n"


def test_the_others_go_on_without_a_node_that_refuses_its_folder(make: Make) -> None:
    cluster = make(straw="fail 2")
    assert cluster.wait_ready().count("127.0.0.1:") == 2
    assert "node 2 ended with exit code 1: the journal is damaged" in cluster.process.said()
    assert cluster.process.stop() == 0


def test_too_few_voters_are_no_cluster(make: Make) -> None:
    cluster = make(straw="fail all")
    until(lambda: not cluster.process.alive)
    assert cluster.process.exit_code == 1
    assert "too few nodes are left to serve" in cluster.process.said()


def test_a_stop_before_all_serve_is_a_clean_one(make: Make) -> None:
    cluster = make(straw="late 3")
    until((cluster.data / "node-3" / "pid").exists)
    assert cluster.process.stop() == 0, cluster.process.said()
    assert "ready" not in cluster.process.said()


def test_a_node_that_was_paused_is_stopped_with_the_others(make: Make) -> None:
    cluster = make()
    cluster.wait_ready()
    os.kill(cluster.pid(2), signal.SIGSTOP)
    assert cluster.process.stop() == 0
    assert "did not stop in time" not in cluster.process.said()


def test_a_node_that_does_not_stop_is_killed_and_named(make: Make) -> None:
    cluster = make(straw="deaf 2")
    cluster.wait_ready()
    pid = cluster.pid(2)
    assert cluster.process.stop() == 0
    assert "node 2 did not stop in time and is killed" in cluster.process.said()
    assert not running(pid)


def test_a_signal_that_comes_twice_at_once_is_one_and_a_later_one_means_haste(make: Make) -> None:
    """timeout(1) tells its child and its group, and the child is in that."""
    cluster = make(straw="mute 2")
    cluster.wait_ready()
    other, pid, began = cluster.pid(1), cluster.pid(2), time.monotonic()
    for _ in range(2):
        os.kill(cluster.process.pid, signal.SIGTERM)
    until(lambda: not running(other))
    until(lambda: time.monotonic() - began > TWICE_S + 0.1)
    assert running(pid)
    os.kill(cluster.process.pid, signal.SIGTERM)
    until(lambda: not cluster.process.alive)
    assert "node 2 had no time to stop and is killed" in cluster.process.said()
    assert not running(pid)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"event": "node_refused", "cause": "it is full"}\n', "it is full"),
        ('{"event": "node_ends", "cause": "a"}\n{"event": "x"}\n', "a"),
        ("fencepost: no such setting\n", "no such setting"),
        ("Killed\n", "Killed; its log is"),
    ],
)
def test_what_a_node_said_at_its_end_is_read_from_its_log(
    tmp_path: Path, lines: str, said: str
) -> None:
    child = Child(1, tmp_path, [], {})
    child.log.write_text('{"event": "node_starts", "cause": "no"}\n' + lines)
    assert child.last_words().startswith(said)
