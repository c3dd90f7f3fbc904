"""A small part of the kill runs: real jobs, of which the driver and an executor die by SIGKILL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.spark_kill_runs import (
    RECORDS,
    Broken,
    Run,
    admin_of,
    check,
    create,
    fill,
    one_run,
)
from fencepost.chaos.harness.spark_points import BROKER_POINTS, POINTS
from fencepost.chaos.harness.spark_settings import BATCH, STREAM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
spark_is_there = pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("kill-runs") / "data", nodes=1) as made:
        fill(made.bootstrap)
        yield made


def test_seeds_cover_every_point_with_both_sinks() -> None:
    count = len(POINTS) + len(BROKER_POINTS)
    runs = [Run.of(seed, None, None) for seed in range(2 * count)]
    covered = {(run.point, run.sink) for run in runs}
    assert covered == {(p, s) for p in (*POINTS, *BROKER_POINTS) for s in (STREAM, BATCH)}


def test_a_run_that_lost_or_doubled_a_record_is_broken(cluster: LocalCluster) -> None:
    from confluent_kafka import Producer

    create(cluster.bootstrap, "bad-0", "bad-1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in [*range(RECORDS), 7]:
        if number != 4:
            producer.produce(f"bad-{number % 2}", value=str(number).encode())
    assert producer.flush(30) == 0
    with pytest.raises(
        Broken, match=r"bad-0: 0 records are there too often .* 1 are missing \(\[4\]"
    ):
        check(cluster.bootstrap, "bad")


@spark_is_there
@pytest.mark.parametrize("point", ["driver-sent", "executor-wrote"])
def test_what_is_written_is_there_once_whoever_died(
    cluster: LocalCluster, point: str, tmp_path: Path
) -> None:
    run = Run(seed=0, point=point, sink=STREAM, batch=0, partition=1, batches=2)
    one_run(cluster, admin_of(cluster), run, tmp_path / "run")
