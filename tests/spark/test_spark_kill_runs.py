"""A small part of the kill runs: real jobs, of which the driver and an executor die by SIGKILL."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.spark_drivers import Driver, Drivers
from fencepost.chaos.harness.spark_kill_runs import (
    ALL_POINTS,
    BATCHES,
    EXECUTORS,
    OUT_PARTITIONS,
    RECORDS,
    STANDALONE,
    Broken,
    Run,
    admin_of,
    check,
    command_of,
    create,
    fill,
    one_run,
)
from fencepost.chaos.harness.spark_settings import BATCH, STREAM
from fencepost.chaos.harness.spark_standalone import Standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
spark_is_there = pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("kill-runs") / "data", nodes=1) as made:
        fill(made.bootstrap)
        yield made


def test_seeds_cover_every_point_with_both_sinks_and_both_kinds_of_executors() -> None:
    runs = [Run.of(seed, None, None) for seed in range(200)]
    covered = {(run.point, run.sink) for run in runs}
    assert covered == {(p, s) for p in ALL_POINTS for s in (STREAM, BATCH)}
    assert {run.master for run in runs} == {EXECUTORS, STANDALONE}
    assert {run.batch for run in runs} == set(range(BATCHES))


def test_a_run_that_lost_or_doubled_a_record_is_broken(cluster: LocalCluster) -> None:
    from confluent_kafka import Producer

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


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with Drivers(command_of(EXECUTORS), tmp_path_factory.mktemp("drivers")) as made:
        yield made


@spark_is_there
@pytest.mark.parametrize("point", ["driver-sent", "executor-wrote"])
def test_what_is_written_is_there_once_whoever_died(
    cluster: LocalCluster, drivers: Drivers, point: str, tmp_path: Path
) -> None:
    run = Run(seed=0, point=point, sink=STREAM, batch=0, partition=1, batches=2)
    one_run(cluster, admin_of(cluster), drivers, run, tmp_path / "run")


def test_nothing_of_a_driver_outlives_its_block(tmp_path: Path) -> None:
    """A driver's child in a process group of its own, as PySpark's daemon is."""
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], process_group=0)\n"
        "print('ready', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    driver = Driver([sys.executable, "-c", program], tmp_path / "driver")
    child = int(driver.process.wait_line("ready ", 20).split()[1])
    assert Path(f"/proc/{child}").exists()
    driver.end()
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()


@spark_is_there
def test_a_worker_of_spark_that_died_is_started_again(tmp_path: Path) -> None:
    with Standalone(tmp_path / "standalone") as spark:
        spark.workers[0].kill()
        spark.mend()
        assert all(each.alive for each in spark.workers)
