"""What the kill loops make of brokers that serve and acknowledge nothing; without any broker."""

import os
import random
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from fencepost.chaos.checkers.history import Operation
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.checkers.verdict import Verdict
from fencepost.chaos.harness import (
    cluster_faults,
    cluster_kill_loop,
    kill_loop,
    local_cluster,
    loop_frame,
    transactions_kill_loop,
    txn_workers,
)
from fencepost.chaos.harness.cluster_faults import Faults
from fencepost.chaos.harness.cluster_kill_loop import StreamLoad
from fencepost.chaos.harness.kept_run import KeptRun
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.loop_frame import (
    BrokenPromise,
    NoProgress,
    Outcome,
    patience_s,
    wait_shown,
)
from fencepost.chaos.harness.transactions_kill_loop import TxnFaults
from fencepost.chaos.harness.txn_workers import Worker, Workers, is_served
from fencepost.chaos.workloads.idempotent_stream import FOLLOWER, IdempotentStream, payload
from fencepost.chaos.workloads.idempotent_stream import Plan as Stream
from support.module_clock import set_clock


@pytest.fixture
def impatient(monkeypatch):
    for module in (kill_loop, cluster_kill_loop):
        name = "PROGRESS_TIMEOUT_S" if module is kill_loop else "PROGRESS_S"
        monkeypatch.setattr(module, name, 0.05)


def chosen(tmp_path):
    options = loop_frame.options("", producers=1, partitions=1, rate=1, spoils=())
    return options.parse_args(["--out", str(tmp_path / "run"), "--data", str(tmp_path / "data")])


def exit_code(tmp_path, wait) -> int:
    def run(*_) -> Outcome:
        wait()
        return Outcome([], Verdict([], {}), [])

    return loop_frame.run_loop("kill-loop", chosen(tmp_path), run)


def test_a_loop_in_which_nothing_is_acknowledged_any_more_is_invalid(
    tmp_path, impatient, monkeypatch, capsys
) -> None:
    node = SimpleNamespace(start=lambda: 0.1)
    loop = kill_loop.Loop(node, SimpleNamespace(acknowledged=7), random.Random(1))
    assert exit_code(tmp_path, loop._come_back) == 1
    assert "INVALID: the node serves, and acknowledged nothing" in capsys.readouterr().out


def test_a_partition_that_acknowledges_nothing_while_a_node_is_away_makes_a_loop_invalid(
    tmp_path, impatient, capsys
) -> None:
    stream = SimpleNamespace(history=[], plan=SimpleNamespace(partitions=2))
    assert exit_code(tmp_path, StreamLoad(stream).progress) == 1
    assert "none of ['stream-0', 'stream-1']" in capsys.readouterr().out


def test_a_loop_whose_node_does_not_come_back_is_unknown(tmp_path) -> None:
    def wait() -> None:
        raise TimeoutError("the node did not come back")

    assert exit_code(tmp_path, wait) == 2


def test_workers_that_hang_in_their_client_prove_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fencepost.chaos.harness.txn_workers.PROGRESS_S", 0.05)
    workers = Workers(tmp_path, [])
    workers.all = [Worker("a", 0, 1, SimpleNamespace(alive=True))]
    with pytest.raises(NoProgress, match="a-0"):
        workers.progress()
    monkeypatch.setattr(Workers, "look", lambda self: setattr(self, "hung", self.hung + 1))
    with pytest.raises(TimeoutError, match="a-0"):
        workers.progress()


def test_a_worker_that_the_kernel_ended_with_pythons_lock_held_has_hung(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("fencepost.chaos.harness.txn_workers.PROGRESS_S", 0.05)
    workers = Workers(tmp_path, [])
    gone = SimpleNamespace(alive=False, exit_code=-signal.SIGALRM, said=lambda: "in in_the_library")
    back = SimpleNamespace(alive=True)
    workers.all = [Worker("a", 0, 1, back)]
    monkeypatch.setattr(Workers, "start", lambda _, worker: setattr(worker, "process", back))
    looks = iter([back, gone])
    seen = Workers.look

    def look(self) -> None:
        self.all[0].process = next(looks, back)
        seen(self)

    monkeypatch.setattr(Workers, "look", look)
    with pytest.raises(TimeoutError, match=r"a-0.*in in_the_library"):
        workers.progress()
    assert (workers.hung, workers.ended) == (1, [])


def test_a_group_whose_members_send_and_consume_nothing_makes_no_progress(
    tmp_path, monkeypatch
) -> None:
    """Who has no partition sends all the same: each had committed again, and the group had stood still for good."""
    monkeypatch.setattr(txn_workers, "PROGRESS_S", 0.3)
    workers = Workers(tmp_path, [])
    alive = SimpleNamespace(alive=True)
    workers.all = [Worker("subscriber", 0, 1, alive), Worker("appender", 1, 1, alive)]
    notes = [tmp_path / "subscriber-0.1.jsonl", tmp_path / "appender-1.1.jsonl"]
    workers._files += notes
    sends = Txn("txn", "ok", "x", 1, sends=[Sent("list-0", 64)])
    consumes = Txn(
        "txn", "ok", "x", 2, polls=[Polled("list-0", 0, 64)], offsets={"lists|list-0": 1}
    )

    def go_on(member: Txn) -> None:
        for each, op in zip(notes, (member, consumes), strict=True):
            with each.open("a") as file:
                file.write(f"{to_line(op)}\n")

    sleeps = iter([sends, sends, consumes])
    set_clock(monkeypatch, local_cluster, sleep=lambda _: go_on(next(sleeps)))
    workers.progress()
    assert next(sleeps, None) is None, "it waited for the one that consumes"
    sleeps = iter([sends] * 100_000)
    with pytest.raises(NoProgress, match="of which no member has consumed anything"):
        workers.progress()
    workers.all[0].paused = True
    sleeps = iter([sends])
    workers.progress()


def test_an_auditor_that_was_shown_nothing_has_made_no_progress() -> None:
    assert not is_served(b'{"f": "snapshot", "type": "ok"}')
    assert is_served(b'{"f": "snapshot", "type": "ok", "polls": [["bank-0", 1, 8, 1, 0]]}')
    assert is_served(b'{"f": "txn", "type": "ok"}')


def test_while_a_node_sleeps_for_long_all_are_served(monkeypatch) -> None:
    done: list[str] = []
    cluster = SimpleNamespace(
        pause=lambda _: done.append("paused"), resume=lambda _: done.append("resumed")
    )
    load = SimpleNamespace(progress=lambda: done.append("served") or 1.0)
    set_clock(monkeypatch, cluster_faults, sleep=lambda _: None)
    faults = Faults(cluster, load, random.Random(1))
    faults.pause("pause leader", 1, 20.0)
    assert done == ["paused", "served", "resumed", "served"]
    done.clear()
    faults.pause("pause leader", 1, 5.0)
    assert done == ["paused", "resumed", "served"]


def test_a_busy_machine_is_waited_for_as_much_longer_as_it_has_more_to_do(monkeypatch) -> None:
    monkeypatch.setattr(loop_frame.os, "cpu_count", lambda: 2)
    for load, seconds in ((0.5, 30.0), (4.0, 30.0), (8.0, 60.0)):
        monkeypatch.setattr(loop_frame.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert patience_s(30.0) == seconds


# -- nodes that end by themselves ------------------------------------------------------------------

BROKEN = '{"event": "broken_invariant", "cause": "an epoch went backwards"}\n'
REFUSED = '{"event": "node_refused", "cause": "meta.properties is damaged"}\n'


def a_node_ends(tmp_path, log: str) -> Faults:
    """Of three that run, the second, in the middle of a fault that strikes the first."""
    cluster = LocalCluster(tmp_path / "data", nodes=3)
    for node in cluster.nodes:
        (cluster.data / f"node-{node}").mkdir(parents=True)
        (cluster.data / f"node-{node}" / "pid").write_text(f"{os.getpid()}\n")
    served = [0.1]

    def progress() -> float:
        if served:
            return served.pop()
        (cluster.data / "node-2" / "log").write_text(log)
        (cluster.data / "node-2" / "pid").unlink()
        raise NoProgress("acknowledgements of all partitions")

    load = SimpleNamespace(topics=("stream",), progress=progress)
    return Faults(cluster, load, random.Random(1))


def nothing(faults: Faults, _name: str) -> None:
    faults.load.progress()


@pytest.mark.parametrize(("log", "code"), [(BROKEN, 1), (REFUSED, 2)])
def test_a_node_that_ended_by_itself_is_what_a_cluster_loop_ends_with(
    tmp_path, capsys, log, code
) -> None:
    """Not that somebody waited in vain for what it should have done."""
    faults = a_node_ends(tmp_path, log)
    assert exit_code(tmp_path, lambda: faults.run(9.0, {"kill leader": nothing})) == code
    printed = capsys.readouterr().out
    assert "node 2 ended by itself" in printed and ("backwards" in printed) == (code == 1)


def test_a_node_that_ended_by_itself_is_told_of_though_nobody_missed_it(tmp_path) -> None:
    faults = a_node_ends(tmp_path, BROKEN)
    (faults.cluster.data / "node-2" / "log").write_text(BROKEN)
    (faults.cluster.data / "node-2" / "pid").unlink()
    with pytest.raises(BrokenPromise, match="node 2 ended by itself"):
        faults.run(0.0, {})


def test_a_node_that_was_killed_on_purpose_has_not_ended_by_itself(tmp_path) -> None:
    faults = a_node_ends(tmp_path, BROKEN)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (faults.cluster.data / "node-2" / "pid").write_text(f"{child.pid}\n")
        threading.Thread(target=child.wait).start()
        faults.cluster.kill(2)
    assert not faults.cluster.runs(2) and faults.cluster.ended_by_themselves == []


def test_a_node_that_breaks_while_it_stops_has_broken_a_promise(tmp_path, monkeypatch) -> None:
    faults = a_node_ends(tmp_path, BROKEN)
    monkeypatch.setattr(Faults, "leader", lambda _self: 2)
    monkeypatch.setattr(Faults, "_live_without", lambda *_: None)
    monkeypatch.setattr(faults.cluster, "stop_node", lambda _: None)
    (faults.cluster.data / "node-2" / "log").write_text('{"event": "node_starts"}\n')
    faults.stop_cleanly("stop cleanly")
    (faults.cluster.data / "node-2" / "log").write_text(BROKEN)
    with pytest.raises(BrokenPromise, match="was told to stop, and ended of: an epoch"):
        faults.stop_cleanly("stop cleanly")


# -- a follower that is shown nothing --------------------------------------------------------------


def message(offset: int) -> SimpleNamespace:
    there = {"error": None, "topic": "stream", "partition": 0, "offset": offset}
    told = {name: lambda value=value: value for name, value in there.items()}
    return SimpleNamespace(**told, value=lambda: payload(1, offset, 10))


@pytest.fixture
def followed() -> IdempotentStream:
    stream = IdempotentStream(Stream(bootstrap="127.0.0.1:1", topic="stream"))
    stream._follower = SimpleNamespace(is_alive=lambda: True)
    stream._answered(1, "stream-0", 7, 0.0, None, message(7))
    stream._saw(FOLLOWER, message(6))
    return stream


def test_a_follower_that_is_not_shown_what_was_acknowledged_makes_a_loop_invalid(
    tmp_path, followed, capsys
) -> None:
    """All nodes serve, and nothing is lost in the end: who followed along has seen nothing of it."""
    assert exit_code(tmp_path, lambda: wait_shown(followed, 0.05)) == 1
    assert "is shown what was acknowledged; not of ['stream-0']" in capsys.readouterr().out
    followed._saw(FOLLOWER, message(7))
    wait_shown(followed, 0.05)


def test_a_follower_that_has_ended_is_not_waited_for(followed) -> None:
    followed._follower = SimpleNamespace(is_alive=lambda: False)
    with pytest.raises(TimeoutError, match="the follower has ended"):
        wait_shown(followed, 60.0)
    followed.history.append(Operation("die", "info", FOLLOWER, error="damage"))
    wait_shown(followed, 60.0)  # the checkers find it


# -- a second client with the id of another --------------------------------------------------------


@pytest.mark.parametrize("begins", [True, False])
def test_a_twin_that_came_to_no_transaction_has_struck_nobody(
    tmp_path, monkeypatch, begins: bool
) -> None:
    """It is ended all the same, and so is its sleep who slept meanwhile."""
    done: list[str] = []
    notes = tmp_path / "teller-63.1.jsonl"
    notes.write_text('{"f": "txn", "type": "info"}\n' if begins else '{"f": "assign"}\n')
    twin = SimpleNamespace(
        alive=True, log=notes.with_suffix(".log"), kill=lambda: done.append("killed")
    )
    load = SimpleNamespace(
        all=[SimpleNamespace(role="teller", transactional_id="teller-0")],
        pause=lambda _: done.append("paused"),
        resume=lambda _: done.append("resumed"),
        twin=lambda *_: twin,
        progress=lambda: 1.0,
    )
    monkeypatch.setattr(transactions_kill_loop, "TWIN_S", 0.05)
    set_clock(monkeypatch, transactions_kill_loop, sleep=lambda _: None)
    kept = KeptRun(tmp_path / "run")
    faults = TxnFaults(SimpleNamespace(), load, random.Random(2), kept)
    (tmp_path / "run").mkdir()
    with kept.fault("double client"):
        faults.double_client("double client")
    assert done == ["paused", "resumed", "killed"]
    assert (tmp_path / "run" / "faults.jsonl").exists() == begins
