"""Spark's standalone master and workers, from the package PySpark: a small cluster of this machine.

    with Standalone(folder, workers=2) as spark:
        session(spark.master)

A worker that was killed is started again by `mend`.
"""

import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .processes import DidNotStart, Process, free_port
from .spark_drivers import end_session
from .spark_settings import scratch

START_S: Final = 120.0
REGISTERED: Final = "Successfully registered with master"
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Standalone:
    def __init__(self, folder: Path, workers: int = 2) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        here = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._master = self._daemon("master.Master", "master", *here, "--port", str(port))
        self.workers = [
            self._daemon(
                "worker.Worker",
                f"worker-{number}",
                *[*here, "--port", "0", "--cores", "1", "--memory", "1100m"],
                *["--work-dir", str(folder / f"work-{number}"), self.master],
            )
            for number in range(workers)
        ]
        self._port = port

    def _daemon(self, kind: str, name: str, *arguments: str) -> Process:
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None, (
            "PySpark is there: its extra is installed"
        )
        home = Path(spec.origin).parent
        return Process(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
            log=self._folder / f"{name}.log",
            environment={
                **scratch(self._folder / "scratch"),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": JAVA,
                "PYSPARK_PYTHON": sys.executable,
            },
        )

    def mend(self) -> None:
        """Have all workers run, and be known to the master."""
        for each in self.workers:
            if not each.alive:
                each.start()
        deadline = time.monotonic() + START_S
        for each in self.workers:
            while REGISTERED not in each.said():
                if not each.alive or time.monotonic() > deadline:
                    raise DidNotStart(f"a worker of Spark did not start:\n{each.said()[-3000:]}")
                time.sleep(0.05)

    def close(self) -> None:
        """With the executors that they started."""
        for each in [*self.workers, self._master]:
            if each.exit_code is not None or each.alive:
                each.kill()
                end_session(each.pid)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.close)
            self._master.start()
            self._master.wait_port(self._port, START_S)
            self.mend()
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
