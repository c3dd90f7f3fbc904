"""Jobs as a cluster is given them: spark-submit to a standalone master, and Spark's own connector beside ours."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import kafka_connector
import pytest
from fencepost.chaos.harness.processes import Process
from fencepost.chaos.harness.spark_drivers import end_session
from fencepost.chaos.harness.spark_job import JAVA
from fencepost.chaos.harness.spark_standalone import Standalone
from spark_topics import Served
from support.kafka_peer import NotFetched
from support.needs import give_up, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(600),  # JVMs on a machine that has other things to do
]
HERE = Path(__file__).parent
JOB_S = 400.0


class Submitted:
    """A driver of its own: what it says, and its end."""

    def __init__(self, folder: Path, job: str, *arguments: str, flags: list[str]) -> None:
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        home = Path(spec.origin).parent
        small = ["--driver-memory", "512m", "--driver-java-options", JAVA]
        confs = ["spark.ui.enabled=false", "spark.python.authenticate.socketTimeout=120s"]
        confs += [f"spark.executor.extraJavaOptions={JAVA}"]
        self.process = Process(
            [
                *[str(home / "bin" / "spark-submit"), *small, *flags],
                *[part for each in confs for part in ("--conf", each)],
                *[str(HERE / job), *arguments],
            ],
            log=folder / f"{job}.log",
            environment={
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,  # else the first python3 on the PATH
            },
        )
        self.process.start()

    def wait(self) -> str:
        assert self.process._child is not None
        try:
            code = self.process._child.wait(JOB_S)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, f"{code}: {self.process.said()[-4000:]}"
        return self.process.said()

    def end(self) -> None:
        self.process.kill()
        end_session(self.process.pid)


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Callable[..., Submitted]]:
    with ExitStack() as stack:

        def one(name: str, job: str, *arguments: str, flags: list[str]) -> Submitted:
            made = Submitted(tmp_path / name, job, *arguments, flags=flags)
            stack.callback(made.end)
            return made

        yield one


def test_sparks_own_connector_reads_and_writes_unmodified(
    node: Served,
    topic: str,
    fresh: Callable[[str], str],
    tmp_path: Path,
    submit: Callable[..., Submitted],
) -> None:
    if reason := missing("kafka"):  # Maven fetches it
        give_up(reason)
    try:
        jars = ",".join(map(str, kafka_connector.jars()))
    except NotFetched as why:
        give_up(str(why))
    out = fresh("out")
    node.create(out, partitions=2)
    arguments = [node.bootstrap, topic, out, str(tmp_path / "checkpoint")]
    job = submit(
        "job", "connector_job.py", *arguments, flags=["--jars", jars, "--master", "local[2]"]
    )
    line = next(each for each in job.wait().splitlines() if each.startswith("found "))
    found = json.loads(line.removeprefix("found "))
    assert found == {
        "columns": [
            "key",
            "value",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            "headers",
        ],
        "values": sorted(f"row {n}" for n in range(200)),
        "headers": 200,
        "late": 6,
        "batches": 3,
        "written": 200,
    }
    assert node.committed(out) == sorted(f"row {n}" for n in range(200))


def test_jobs_that_are_submitted_to_a_cluster_write_at_once_and_each_exactly_once(
    node: Served,
    topic: str,
    fresh: Callable[[str], str],
    tmp_path: Path,
    submit: Callable[..., Submitted],
) -> None:
    out = fresh("out")
    node.create(out, partitions=2)
    node.write(topic, [f"{n:03}" for n in range(100)])
    with Standalone(tmp_path / "standalone") as spark:
        flags = [
            "--master",
            spark.master,
            "--total-executor-cores",
            "1",
            "--executor-memory",
            "512m",
        ]
        jobs = []
        for number in range(2):
            arguments = [node.bootstrap, node.admin_url, topic, out, str(tmp_path / f"c{number}")]
            jobs.append(submit(f"job-{number}", "submitted_job.py", *arguments, flags=flags))
        for each in jobs:
            each.wait()
    assert node.committed(out) == sorted(f"{n:03}" for n in range(100) for _ in jobs)
