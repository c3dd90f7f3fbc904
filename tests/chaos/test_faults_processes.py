"""Three real nodes behind doors of ours: cut off, paused, killed; and nothing of them left."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.chaos.faults.kafka_processes import LIBS
from fencepost.chaos.faults.lasting import lasting
from fencepost.chaos.faults.network_faults import isolated
from fencepost.chaos.faults.processes import Processes
from fencepost.chaos.faults.targets import Asking
from fencepost.chaos.harness.local_cluster import wait_for
from fencepost.chaos.harness.processes import Process
from fencepost.clients.transactional.kept_topics import make_topic
from support.kafka_peer import NotFetched, jars
from support.needs import give_up

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and needs prctl")
SEEN_S = 40.0


def there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_a_thread_starts_outlives_that_thread(tmp_path) -> None:
    process = Process(["sleep", "60"], log=tmp_path / "log")
    thread = threading.Thread(target=lambda: lasting(process.start))
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        process._child.wait(0.1)
    process.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_it_is_back(tmp_path) -> None:
    """Seen from outside: its clients reach it all the while, the other nodes do not."""
    with Processes(tmp_path / "nodes", nodes=3) as system:
        client = {"bootstrap.servers": system.bootstrap, "log_level": 0}
        admin = AdminClient(client)
        assert make_topic(admin, NewTopic("t", 1, 3))
        asked = Asking(system, topics=["t"])
        wait_for("all in sync", asked.in_sync, SEEN_S)
        old = asked.leaders()["t-0"]
        others = [node for node in system.nodes if node != old]
        system.cut(isolated([old], others))
        asked_others = Asking(system, topics=["t"])
        asked_others.addresses = lambda: [system.doors[node] for node in others]
        wait_for("another leads", lambda: asked_others.leaders()["t-0"] in others, SEEN_S)
        wait_for("without it", lambda: asked_others.isr()["t-0"] == others, SEEN_S)
        assert all(system.is_up(node) for node in system.nodes)

        # Who asks the old leader is told that it leads: it can't know better.
        at = system.bootstrap.split(",")[others[0] - 1]
        producer = Producer({**client, "bootstrap.servers": at, "acks": "all"})
        done: list[object] = []
        producer.produce("t", b"x", on_delivery=lambda error, _: done.append(error))
        producer.flush(SEEN_S)
        assert done == [None]
        system.heal()
        wait_for("it is in sync again", asked.in_sync, SEEN_S)
        assert set(system.stop().values()) == {0}


# A harness that says who belongs to it, and waits to be killed.
HARNESS = """
    import sys, time
    from pathlib import Path
    from fencepost.chaos.faults.systems import KafkaProcesses, Processes
    system = {"processes": Processes, "kafka": KafkaProcesses}[sys.argv[2]](Path(sys.argv[1]), nodes=1)
    system.begin()
    system.pause(1)
    print(system.pid(1), system.proxy.pid, flush=True)
    time.sleep(60)
"""


def killed_harness(folder: Path, target: str) -> list[int]:
    """Its processes, that were there before it was killed."""
    command = [sys.executable, "-c", textwrap.dedent(HARNESS), str(folder), target]
    harness = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    pids = [int(pid) for pid in harness.stdout.readline().split()]
    try:
        assert len(pids) == 2 and all(map(there, pids))
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
        harness.stdout.close()
    return pids


def names_it(folder: Path) -> list[str]:
    """Commands of this machine that have the folder in their words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [words for words in found if str(folder) in words]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_nothing_outlives_a_harness_that_was_killed(tmp_path) -> None:
    pids = killed_harness(tmp_path / "nodes", "processes")
    wait_for("all are gone", lambda: not any(map(there, pids)), SEEN_S)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.needs("kafka")
def test_no_jvm_outlives_a_harness_that_was_killed(tmp_path, monkeypatch) -> None:
    """Kafka's nodes take half a gigabyte each: what a killed run leaves, the next one lacks."""
    try:
        monkeypatch.setenv(LIBS, str(jars()))
    except NotFetched as why:
        give_up(str(why))
    folder = tmp_path / "nodes"
    pids = killed_harness(folder, "kafka")
    wait_for("all are gone", lambda: not any(map(there, pids)), SEEN_S)
    wait_for("no JVM has its folder", lambda: not names_it(folder), SEEN_S)
