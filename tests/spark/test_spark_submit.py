"""Jobs as a cluster is given them: spark-submit to a standalone master, and Spark's own connector beside ours."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
CLIENTS = HERE.parents[1] / "clients"
ZIP = re.compile(r"python -m zipfile -c (\S+) (\w+)")
OURS = ("fencepost", "__editable__")
JOB_S = 400.0


def bare_python(folder: Path) -> str:
    """This one's packages, but without fencepost: a worker of somebody's cluster."""
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(OURS) and each.suffix != ".pth":
            (site / each.name).symlink_to(each)
    return str(folder / "bin" / "python")


def py_files(folder: Path) -> str:
    """As the README makes the file, of what pip would have installed."""
    said = ZIP.search((CLIENTS / "spark" / "README.md").read_text())
    assert said is not None, "the README says how it is made"
    file, package = said.groups()
    shutil.copytree(CLIENTS, folder / package / "clients")
    command = [sys.executable, "-m", "zipfile", "-c", file, package]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / file)


class Submitted:
    """A driver of its own: what it says, and its end."""

    def __init__(
        self,
        folder: Path,
        job: str,
        *arguments: str,
        flags: list[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
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
                **(environment or {}),
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

        def one(name: str, job: str, *arguments: str, **how: Any) -> Submitted:
            made = Submitted(tmp_path / name, job, *arguments, **how)
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


@pytest.mark.long
def test_jobs_that_are_submitted_to_a_cluster_write_at_once_and_each_exactly_once(
    node: Served,
    topic: str,
    fresh: Callable[[str], str],
    tmp_path: Path,
    submit: Callable[..., Submitted],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On workers that have the binary packages and not fencepost: it goes along with the job."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = bare_python(tmp_path / "bare")
    found = subprocess.run(
        [python, "-c", "import pyarrow, fencepost"], check=False, capture_output=True
    )
    assert b"No module named 'fencepost'" in found.stderr, found.stderr
    zipped = py_files(tmp_path)
    here = {"PYSPARK_PYTHON": python, "PYTHONPATH": zipped}
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
            "--py-files",
            zipped,
        ]
        jobs = []
        for number in range(2):
            arguments = [node.bootstrap, node.admin_url, topic, out, str(tmp_path / f"c{number}")]
            job = submit(
                f"job-{number}", "submitted_job.py", *arguments, flags=flags, environment=here
            )
            jobs.append(job)
        for each in jobs:
            each.wait()
    assert node.committed(out) == sorted(f"{n:03}" for n in range(100) for _ in jobs)
