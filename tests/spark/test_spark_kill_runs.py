"""A small part of the kill runs: real jobs, whose driver, executors, hosts and nodes die by SIGKILL; and their own parts."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.spark_drivers import Driver, Drivers
from fencepost.chaos.harness.spark_faults import SleeperWakes, group_of, is_given_up
from fencepost.chaos.harness.spark_kill_runs import (
    admin_of,
    command_of,
    exit_code,
    lose_commit_note,
    missing_marks,
    one_run,
)
from fencepost.chaos.harness.spark_outputs import (
    OUT_PARTITIONS,
    RECORDS,
    RECORDS_LARGE,
    Broken,
    check,
    create,
    fill,
    headers_of,
)
from fencepost.chaos.harness.spark_points import (
    ALL_POINTS,
    ASLEEP,
    DONE_ELSEWHERE,
    GIVEN_UP,
    MARKS,
    STRUCK,
    WENT_ON,
    sinks_of,
)
from fencepost.chaos.harness.spark_run import BATCHES, EXECUTORS, PARTITIONS, STANDALONE, Run
from fencepost.chaos.harness.spark_settings import BATCH, STREAM, TASK, Job
from fencepost.chaos.harness.spark_standalone import Standalone
from fencepost.chaos.harness.spark_strikes import Strike, _StruckGroup
from fencepost.clients.spark.row_marks import EXACT_ROWS, marks_of
from fencepost.clients.transactional import AdminApi, TransactionGroup

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
spark_is_there = pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow")
AT_ONCE = 14  # a seed with which a node dies as soon as the task has begun


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("kill-runs") / "data") as made:
        fill(made.bootstrap)
        yield made


def test_seeds_cover_every_point_with_every_sink_and_both_kinds_of_executors() -> None:
    runs = [Run.of(seed) for seed in range(200)]
    covered = {(run.point, run.sink) for run in runs}
    assert covered == {(p, s) for p in ALL_POINTS for s in sinks_of(p)}
    assert {s for _, s in covered} == {STREAM, BATCH, TASK}
    assert {run.master for run in runs} == {EXECUTORS, STANDALONE}
    assert {run.batch for run in runs} == set(range(BATCHES))
    assert {bool(run.shuffled_to) for run in runs} == {True, False}
    assert {(run.sink, run.has_headers, run.is_large) for run in runs} == {
        (s, h, large)
        for s in (STREAM, BATCH, TASK)
        for h in (True, False)
        for large in (True, False)
    }
    assert not any(run.is_slow and run.is_large for run in runs), "it would take an hour"
    assert RECORDS_LARGE // PARTITIONS // BATCHES > EXACT_ROWS


def test_only_a_stage_with_a_shuffle_before_it_can_run_again() -> None:
    """Without one nothing is fetched of an executor, and its death is a task's failure alone."""
    assert all(Run.of(seed, "stage-runs-again").shuffled_to for seed in range(20))


def test_a_run_that_did_not_meet_what_its_point_is_for_lacks_a_mark(tmp_path: Path) -> None:
    run = Run.of(0, "executor-sleeps")
    for mark in MARKS["executor-sleeps"]:
        assert mark in missing_marks(run, tmp_path)
        (tmp_path / mark).touch()
    assert missing_marks(run, tmp_path) == []


def test_a_broken_promise_has_another_exit_code_than_a_run_that_proves_nothing() -> None:
    outcomes = ({"VALID": 2}, {"VALID": 1, "UNKNOWN": 1}, {"INVALID": 1, "UNKNOWN": 1}, {})
    assert [exit_code(each) for each in outcomes] == [0, 2, 1, 2]


def job_in(folder: Path, sink: str = STREAM) -> Job:
    strike = f"executor-sleeps,0,0,{folder}"
    return Job(
        bootstrap="", admin="", source="", out="", folder=str(folder), sink=sink, strike=strike
    )


def test_a_sleeper_goes_on_when_its_task_is_done_and_its_executor_was_asked_to_end(
    tmp_path: Path,
) -> None:
    with (
        subprocess.Popen(["sleep", "600"]) as python,
        subprocess.Popen(["sleep", "600"]) as java,
    ):
        try:
            for each in (python, java):
                each.send_signal(signal.SIGSTOP)
            (tmp_path / ASLEEP).write_text(f"{python.pid} {java.pid}")
            wakes = SleeperWakes(Run.of(0, "executor-sleeps"), job_in(tmp_path))
            wakes.start()
            (tmp_path / DONE_ELSEWHERE).touch()
            time.sleep(0.2)
            assert not is_given_up(java.pid) and not (tmp_path / GIVEN_UP).exists()
            java.terminate()  # which it does not take while it is stopped
            assert java.wait(30) == -signal.SIGTERM
            assert (tmp_path / GIVEN_UP).exists() and is_awake(python.pid)
            (tmp_path / WENT_ON).touch()
            wakes.has_ended()
            assert wakes.trouble == ""
        finally:
            for each in (python, java):
                each.kill()


def is_awake(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while "\nState:\tT" in Path(f"/proc/{pid}/status").read_text():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    os.kill(pid, 0)
    return True


def test_a_sleeper_of_a_job_that_is_over_before_it_slept_is_not_waited_for(tmp_path: Path) -> None:
    wakes = SleeperWakes(Run.of(0, "executor-sleeps"), job_in(tmp_path))
    wakes.start()
    wakes.has_ended()
    assert wakes.trouble == "" and not (tmp_path / STRUCK).exists()


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_driver_that_dies_while_it_waits_for_the_answer_has_sent_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: int
) -> None:
    """What its cluster's kernel has of it at this moment, and no later one, is what counts."""
    there: list[bytes] = []

    class Dead(Exception): ...

    def die(_: Strike) -> None:
        with suppress(BlockingIOError):
            taken, _address = door.accept()
            with taken:
                taken.setblocking(False)
                there.append(taken.recv(65_536))
        raise Dead

    monkeypatch.setattr(Strike, "kill_driver", die)
    connection = http.client.HTTPConnection
    monkeypatch.setattr(connection, "request", connection.request)  # set back
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        api = AdminApi(f"http://127.0.0.1:{door.getsockname()[1]}", timeout_s=10)
        group = _StruckGroup("night", api)
        group.strike = Strike("driver-sent", 7, partition, str(tmp_path))
        with pytest.raises(Dead):
            group.commit(7, [])
    assert [each.split()[:2] for each in there] == [[b"POST", b"/v1/transaction-groups/night/end"]]
    assert there[0].endswith(b'"members": {}}')
    assert missing_marks(Run.of(0, "driver-sent"), tmp_path) == []


def test_the_note_that_is_lost_is_the_last_commits_alone(tmp_path: Path) -> None:
    for notes in ("offsets", "commits"):
        (tmp_path / "checkpoint" / notes).mkdir(parents=True)
        for number in (8, 9, 10):
            for name in (str(number), f".{number}.crc"):
                (tmp_path / "checkpoint" / notes / name).touch()
    lose_commit_note(job_in(tmp_path))
    left = {
        notes: sorted(each.name for each in (tmp_path / "checkpoint" / notes).iterdir())
        for notes in ("offsets", "commits")
    }
    assert "10" in left["offsets"]
    assert left["commits"] == [".8.crc", ".9.crc", "8", "9"]


def test_a_run_that_lost_or_doubled_a_record_is_broken(cluster: LocalCluster) -> None:
    create(cluster.bootstrap, "bad-0", "bad-1", partitions=OUT_PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in [*range(RECORDS), 7]:
        if number != 4:
            producer.produce(f"bad-{number % 2}", value=str(number).encode())
    assert producer.flush(30) == 0
    with pytest.raises(
        Broken, match=r"bad-0: 0 records are there too often .* 1 are missing \(\[4\]"
    ):
        check(cluster.bootstrap, "bad")


def test_a_run_that_lost_a_header_is_broken(cluster: LocalCluster) -> None:
    create(cluster.bootstrap, "bare-0", "bare-1", partitions=OUT_PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        headers = None if number == 7 else headers_of(number)
        producer.produce(f"bare-{number % 2}", value=str(number).encode(), headers=headers)
    assert producer.flush(30) == 0
    with pytest.raises(Broken, match=r"bare-1: 1 records have other headers .* \(\[7\]"):
        check(cluster.bootstrap, "bare", has_headers=True)
    with pytest.raises(Broken, match="bare-0: 120 records have other headers"):
        check(cluster.bootstrap, "bare")


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with Drivers(command_of(EXECUTORS), tmp_path_factory.mktemp("drivers")) as made:
        yield made


@spark_is_there
@pytest.mark.parametrize(
    "run",
    [
        Run(
            seed=0,
            point="driver-decided",
            sink=STREAM,
            batch=0,
            partition=1,
            batches=2,
            has_headers=True,
        ),
        *(
            pytest.param(run, marks=pytest.mark.long)
            for run in (
                Run(seed=0, point="executor-wrote", sink=BATCH, batch=0, partition=1, batches=2),
                Run(
                    seed=AT_ONCE,
                    point="coordinator-dies",
                    sink=STREAM,
                    batch=0,
                    partition=1,
                    batches=2,
                ),
                Run(seed=0, point="commit-note-lost", sink=TASK, batch=0, partition=1, batches=2),
            )
        ),
    ],
    ids=lambda run: f"{run.point}-{run.sink}",
)
def test_what_is_written_is_there_once_whoever_died(
    cluster: LocalCluster, drivers: Drivers, run: Run, tmp_path: Path
) -> None:
    one_run(cluster, admin_of(cluster), drivers, run, tmp_path / "run")


@pytest.mark.long
@spark_is_there
def test_so_many_rows_that_they_are_only_summed_up_are_known_again(
    cluster: LocalCluster, drivers: Drivers, tmp_path: Path
) -> None:
    """Of a task with more than EXACT_ROWS no row is looked at by itself."""
    run = Run(
        seed=1,
        point="commit-note-lost",
        sink=STREAM,
        batch=1,
        partition=1,
        batches=2,
        is_large=True,
    )
    one_run(cluster, admin_of(cluster), drivers, run, tmp_path / "run")
    group = TransactionGroup(group_of(tmp_path / "run"), AdminApi(admin_of(cluster)))
    marks = [marks_of(each.note) for each in group.decisions()]
    assert [(each.rows, each.exact) for each in marks if each] == [(RECORDS_LARGE // 2, None)] * 2


def test_nothing_of_a_driver_outlives_its_block(tmp_path: Path) -> None:
    """A driver's child in a process group of its own, as PySpark's daemon is."""
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], process_group=0)\n"
        "print('ready', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    driver = Driver([sys.executable, "-c", program], tmp_path / "driver")
    child = int(driver.process.wait_line("ready ", 60).split()[1])
    assert Path(f"/proc/{child}").exists()
    driver.end()
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()


@pytest.mark.long
@spark_is_there
def test_what_is_written_is_there_once_when_a_worker_of_spark_died_and_it_is_started_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    run = Run(seed=0, point="host-wrote", sink=BATCH, batch=0, partition=1, batches=2)
    with (
        Standalone(tmp_path / "standalone") as spark,
        Drivers(command_of(spark.master), tmp_path / "drivers") as drivers,
    ):
        one_run(cluster, admin_of(cluster), drivers, run, tmp_path / "run")
        assert [each.alive for each in spark.workers].count(False) == 1
        spark.mend()
        assert all(each.alive for each in spark.workers)
