"""Client processes that end, are crashed, and are replaced; a stand-in that knows no broker."""

import json
import os
import signal
import sys
import time

import pytest
from fencepost.chaos.checkers.txn_history import Txn, to_line
from fencepost.chaos.runs import clients
from fencepost.chaos.runs.clients import Clients
from fencepost.chaos.runs.folder import HISTORY, RunFolder

pytestmark = pytest.mark.slow
STAND_IN = """
import json, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
process = f"queue-{words['--slot']}.{words['--life']}"
line = {"f": "txn", "type": "info", "process": process, "number": int(words["--life"]),
        "sends": [["t3-1", 8, None, 0]], "began_s": time.monotonic(), "ended_s": 0.0}
with open(words["--notes"], "a") as notes:
    notes.write(json.dumps(line) + "\\n")
time.sleep(60)
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    found = Clients(
        folder,
        count=1,
        module="stand_in",
        words=lambda _, keys: ["--known", ",".join(keys)],
        seed=1,
        life_s=0.0,
    )
    found.start()
    yield found
    found.kill()


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun(made) -> None:
    client = made.all[0]
    until(lambda: client.notes.file.exists() and client.notes.file.stat().st_size > 0)


def history(made) -> list[dict]:
    return [json.loads(line) for line in (made.folder.path / HISTORY).read_text().splitlines()]


def test_a_client_that_was_killed_is_followed_by_another_one(made) -> None:
    begun(made)
    made.all[0].crash_at_s = 0.0
    made.tick()
    assert [(op["f"], op["type"], op["process"]) for op in history(made)] == [
        ("txn", "info", "queue-0.1"),
        ("crash", "info", "queue-0.1"),
    ]
    begun(made)
    assert (made.crashes, made.all[0].life) == (1, 2)
    # The next one goes on with the keys that are in use.
    assert made.known.keys == {"t3-1": 0}
    assert "--known t3-1" in " ".join(made.all[0].process.command)


def test_a_client_that_never_came_to_the_end_of_anything_is_named(made) -> None:
    """Three of five hung before they had written anything, and the run was valid."""
    begun(made)
    made.tick()
    assert made.idle() == [0], "it has begun something, and that is all"
    done = Txn("read", "ok", "queue-0.1", began_s=time.monotonic(), ended_s=time.monotonic())
    with made.all[0].notes.file.open("a") as notes:
        notes.write(f"{to_line(done)}\n")
    made.tick()
    assert made.idle() == []


def test_a_client_that_ended_by_itself_is_replaced_and_told_of(made) -> None:
    begun(made)
    made.all[0].process._child.send_signal(6)
    until(lambda: not made.all[0].process.alive)
    made.tick()
    assert made.all[0].process.alive
    assert "client 0 ended with -6" in made.ended[0]


def ends(made, how: str) -> None:
    """The process in the first place, by itself."""
    begun(made)
    client = made.all[0]
    client.process.kill()
    client.process.command = [sys.executable, "-c", f"import os; {how}"]
    client.process.start()
    client.process._child.wait()


def test_a_client_that_somebody_else_has_killed_has_ended_by_itself(made) -> None:
    """The kernel does, when there is no memory left."""
    ends(made, "os.kill(os.getpid(), 9)")
    made.tick()
    assert "client 0 ended with -9" in made.ended[0]
    ends(made, "os.kill(os.getpid(), 9)")
    made.stop()
    assert len(made.ended) == 2


def test_a_client_whose_library_hung_is_counted_and_replaced(made) -> None:
    ends(made, "os._exit(75)")
    made.tick()
    assert (made.hung, made.ended) == (1, [])
    assert made.all[0].process.alive


def test_whom_we_have_killed_has_not_ended_by_itself(made, monkeypatch) -> None:
    monkeypatch.setattr(clients, "STOP_S", 0.2)
    begun(made)
    os.kill(made.all[0].process.pid, signal.SIGSTOP)  # so that it hears of nothing
    are_gone = made.retire(lambda place: place == 0)
    until(lambda: made.tick() or are_gone())
    made.all[0].leaving = False
    made._start(made.all[0])
    begun(made)
    os.kill(made.all[0].process.pid, signal.SIGSTOP)
    made.all[0].paused = True
    monkeypatch.setattr(made, "wake_all", lambda: None)
    made.stop()
    assert made.ended == []


def test_whoever_read_in_a_process_that_was_killed_reads_no_more(made) -> None:
    """A place may have several readers, and one of them may have nothing under way."""
    begun(made)
    file = made.all[0].notes.file
    given = Txn("assign", "ok", "follower-0.1", began_s=1.0, ended_s=time.monotonic())
    given.positions = {"t3-1": 0}
    with file.open("a") as notes:
        notes.write(f"{to_line(given)}\n")
    made.all[0].crash_at_s = 0.0
    made.tick()
    crashed = [op["process"] for op in history(made) if op["f"] == "crash"]
    assert sorted(crashed) == ["follower-0.1", "queue-0.1"]


def test_clients_that_are_stopped_leave_what_they_were_at(made) -> None:
    begun(made)
    made.stop()
    assert not made.all[0].process.alive
    assert [op["type"] for op in history(made)] == ["info"]


def test_who_retires_ends_what_it_is_at_and_is_followed_by_nobody(made) -> None:
    begun(made)
    are_gone = made.retire(lambda place: place == 0)
    until(lambda: made.tick() or are_gone())
    assert made.all[0].process is None
    assert [op["type"] for op in history(made)] == ["info"]
    made.tick()
    made.stop()
    assert (made.all[0].life, made.ended) == (1, [])


def test_while_some_retire_the_others_go_on_and_nobody_is_crashed(made) -> None:
    begun(made)
    are_gone = made.retire(lambda place: place == 1)
    assert are_gone()
    made.all[0].crash_at_s = 0.0
    made.tick()
    assert made.all[0].process.alive and made.crashes == 0
