"""From a database's binary log to two topics, exactly once, while everything on the way is killed.

    python examples/pipeline/run.py --seconds 30 --seed 7          (make pipeline)
    python examples/pipeline/run.py --without-faults
    python examples/pipeline/run.py --runs 20
    python examples/pipeline/run.py --seconds 5 --kinds driver

MariaDB's orders -> topic `orders` -> Spark -> topics `revenue` and `alerts`, read back and compared with SQL over the database.
Exit code 0: all equal, and every kind of fault fell; 1: something was not equal; 2: nothing could be said, or a fault that was to
be met never fell. README.md has what runs where.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pipeline_faults as faults
import read_back
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.chaos.harness import mariadb
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.mariadb import Mariadb
from fencepost.chaos.harness.processes import DidNotStart, Process
from fencepost.chaos.harness.spark_settings import scratch
from fencepost.clients.binlog.kept_positions import COMPACT, KeptPositions
from fencepost.clients.binlog.reading import NotReadable
from fencepost.clients.transactional.kept_topics import ensure_topic, make_topic
from orders_database import ALERT_FROM, WINDOW_S, Customers, Shop
from pipeline_job import PIDS, STOP
from pipeline_report import Report, exit_code

TOPICS = ("orders", "revenue", "alerts")
PARTITIONS = 3
SOURCE = "shop"
POSITIONS = "fencepost-binlog-positions"
STARTS_MAX = 30
BEGIN_S, DRAIN_S = 300.0, 900.0  # on a machine that has other things to do
LATE_S = 600.0  # then faults that wait for Spark are left out
POLL_S = 0.05


class DidNotEnd(Exception):
    """Nothing can be said of such a run."""


class Restarted:
    """A process that is started again whenever it ends, until it has done what it is there for."""

    def __init__(
        self, name: str, command: list[str], log: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.name, self.starts = name, 0
        self.process = Process(command, log=log, environment=environment)
        self._sessions: list[
            int
        ] = []  # of all that were ever started: an executor may outlive its driver

    def keep(self) -> bool:
        """Whether it has ended as it should."""
        if self.process.alive:
            return False
        if self.starts and self.process.exit_code == 0:
            return True
        if self.starts >= STARTS_MAX:
            raise DidNotEnd(f"the {self.name} was started {self.starts} times: {self.process.log}")
        self.process.start()
        self._sessions.append(self.process.pid)
        self.starts += 1
        return False

    def strike(self) -> None:
        """The process and all beneath it: a JVM does not see that its Python is gone."""
        self.process.kill()
        for session in self._sessions:
            for pid in faults.in_session(session):
                faults.kill(pid)


class Pipeline:
    """One run. What is started is ended with its block, whatever ends that."""

    def __init__(
        self, folder: Path, chosen: argparse.Namespace, seed: int, stack: ExitStack
    ) -> None:
        self.folder, self.chosen, self.seed = folder, chosen, seed
        self.report = Report(seed=seed, seconds=chosen.seconds, asked=chosen.kinds)
        self.database = stack.enter_context(Mariadb(folder / "database"))
        self.shop = Shop(self.database.login)
        self.shop.create(seed)
        self.cluster = stack.enter_context(LocalCluster(folder / "cluster"))
        self.bootstrap = self.cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for each in TOPICS:
            make_topic(admin, NewTopic(each, PARTITIONS, 3))
        self.job = Restarted("job", self._job(), folder / "job.log", scratch(folder / "spark"))
        self.source = Restarted("source", self._source(), folder / "source.log")
        self._starts, self._batches_before = (
            0,
            0,
        )  # of the job; what it had done when it started last
        stack.callback(self.job.strike)
        stack.callback(self.source.strike)

    def _source(self, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", "fencepost.clients.binlog", "--source", SOURCE),
            *("--port", str(self.database.port), "--bootstrap", self.bootstrap),
            *("--tables", "shop.orders", "--map", "shop.orders=orders"),
            *("--position-topic", POSITIONS, *more),
        ]

    def _job(self) -> list[str]:
        doors = [f"http://{host}:{port + 1000}" for host, port in self.cluster.addresses]
        told: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "admin": ",".join(doors),
            "folder": str(self.folder),
            "master": self.chosen.master,
            "window_s": WINDOW_S,
            "alert_from": str(ALERT_FROM),
        }
        return [sys.executable, str(Path(__file__).with_name("pipeline_job.py")), json.dumps(told)]

    # -- a run -----------------------------------------------------------------------------------

    def run(self) -> Report:
        began = time.monotonic()
        self.source.keep()
        self.job.keep()
        positions = KeptPositions({"bootstrap.servers": self.bootstrap}, POSITIONS)
        ensure_topic({"bootstrap.servers": self.bootstrap}, POSITIONS, 1, config=COMPACT)
        # A row that changed before the snapshot was taken would be one change in the topic, and two in SQL.
        self._until("the snapshot is taken", BEGIN_S, lambda: positions.find(SOURCE, 0) is not None)
        done = [self.folder / f"checkpoint-{topic}/commits/0" for topic in TOPICS[1:]]
        self._until("Spark has done a batch", BEGIN_S, lambda: all(each.exists() for each in done))
        self.report.began = time.time()
        customers = Customers(self.database.login, seed=self.seed, rate=self.chosen.rate)
        customers.start()
        try:
            self._faults()
        finally:
            customers.end()
        self._drain()
        self._compare(customers)
        self.report.starts = {each.name: each.starts for each in (self.source, self.job)}
        self.report.took_s = time.monotonic() - began
        return self.report

    def _until(self, what: str, seconds: float, condition: Any) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise DidNotEnd(f"waited {seconds:g} s in vain until {what}")
            self.source.keep()
            self.job.keep()
            time.sleep(POLL_S)

    def _faults(self) -> None:
        """While customers order. What ends is started again all the while. Drivers and executors are struck when they have done
        something since they were started: on a slow machine that takes longer, and the gaps between faults stay."""
        kinds = self.chosen.kinds
        left = faults.schedule(self.seed, self.chosen.seconds, kinds) if kinds else []
        began, late_s = time.monotonic(), 0.0
        back: list[tuple[float, int]] = []  # when a broker is to be started again, which
        while (now_s := time.monotonic() - began) < self.chosen.seconds or left or back:
            self.source.keep()
            self.job.keep()
            if self.job.starts != self._starts:
                self._starts, self._batches_before = self.job.starts, self._batches()
            if back and now_s >= back[0][0]:
                self.cluster.start_again(back.pop(0)[1])
            if left and not back and now_s >= left[0].at_s + late_s and self._may_fall(left[0]):
                fault = left.pop(0)
                late_s = now_s - fault.at_s
                said = self._strike(fault)
                self.report.faults.append((time.time() - self.report.began, said))
                if fault.kind == "broker":
                    node = int(said.rpartition(" ")[2])
                    back.append((now_s + fault.back_after_s, node))
            if now_s > self.chosen.seconds + LATE_S:
                self.report.left_out, left = len(left), []
            time.sleep(POLL_S)

    def _batches(self) -> int:
        """That Spark has noted as done, of both queries."""
        done = [self.folder / f"checkpoint-{topic}/commits" for topic in TOPICS[1:]]
        return sum(max(int(n.name) for n in each.glob("[0-9]*")) for each in done)

    def _may_fall(self, fault: faults.Fault) -> bool:
        if fault.kind in ("broker", "source"):
            return True
        is_at_work = self.job.process.alive and self._batches() > self._batches_before
        return is_at_work and (fault.kind == "driver" or bool(self._executors()))

    def _executors(self) -> list[int]:
        return faults.executors(self.job.process.pid)

    def _strike(self, fault: faults.Fault) -> str:
        """What was struck, in words."""
        if fault.kind == "broker":
            node = self.cluster.nodes[fault.which % len(self.cluster.nodes)]
            self.cluster.kill(node)
            return f"broker {node}"
        if fault.kind == "source":
            self.source.strike()
            return "source"
        found = self._executors()
        if fault.kind == "executor" and found:
            faults.kill(found[fault.which % len(found)])
            return f"executor {fault.which % len(found) + 1} of {len(found)}"
        for pid in (self.folder / PIDS).read_text().split():
            faults.kill(int(pid))  # executors see by themselves that it is gone
        return "driver"

    def _drain(self) -> None:
        """Nothing is killed any more: the source ends when it has all, then the job when it has."""
        self.source.strike()
        self.source.process = Process(
            self._source("--stop-when-caught-up"), log=self.source.process.log
        )
        self._until_ended(self.source)
        (self.folder / STOP).touch()
        self._until_ended(self.job)

    def _until_ended(self, waited: Restarted) -> None:
        deadline = time.monotonic() + DRAIN_S
        while not waited.keep():
            if waited is self.source:
                self.job.keep()
            if time.monotonic() > deadline:
                raise DidNotEnd(
                    f"the {waited.name} does not end; {waited.process.log} ends:\n{waited.process.said()[-2_000:]}"
                )
            time.sleep(POLL_S)

    def _compare(self, customers: Customers) -> None:
        shop = self.shop.use()
        found = {topic: read_back.committed(self.bootstrap, topic) for topic in TOPICS}
        self.report.wrong = [
            *read_back.wrong_orders(found["orders"], shop, customers),
            *read_back.wrong_revenue(found["revenue"], shop),
            *read_back.wrong_alerts(found["alerts"], shop),
        ]
        self.report.times = {
            "database": customers.wrote_at,
            **{topic: [each.time_s for each in found[topic]] for topic in TOPICS},
        }


def options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    made.add_argument("--seconds", type=float, default=30.0, help="how long customers order (30)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument(
        "--runs", type=int, default=1, help="with this many seeds, one after the other"
    )
    made.add_argument("--rate", type=float, default=60.0, help="statements a second (60)")
    made.add_argument(
        "--kinds", default=",".join(faults.KINDS), help="of faults, all of which must fall (all)"
    )
    made.add_argument("--without-faults", action="store_true")
    made.add_argument("--master", default="local-cluster[2,1,1024]", help="Spark's")
    made.add_argument("--out", type=Path, default=Path("build/pipeline"), help="reports go there")
    chosen = made.parse_args()
    chosen.kinds = () if chosen.without_faults else tuple(chosen.kinds.split(","))
    if unknown := sorted(set(chosen.kinds) - set(faults.KINDS)):
        made.error(f"--kinds {unknown[0]}: there are {', '.join(faults.KINDS)}")
    return chosen


def missing() -> str | None:
    if program := mariadb.missing():
        return f"there is no {program}: install Debian's package mariadb-server, or MariaDB from elsewhere"
    return None if shutil.which("java") else "there is no java: Spark needs Java 17"


def one_run(chosen: argparse.Namespace, seed: int) -> Report | None:
    """None when nothing can be said; its folder is kept then, and when something is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="fencepost-pipeline-"))
    folder.chmod(0o755)  # MariaDB may run as another user
    is_good = False
    try:
        with ExitStack() as stack:
            pipeline = Pipeline(folder, chosen, seed, stack)
            report = pipeline.run()
        is_good = report.verdict == "EQUAL"
        return report
    except (DidNotEnd, DidNotStart, KafkaException, NotReadable, TimeoutError) as trouble:
        print(f"UNKNOWN seed {seed}: {trouble}", flush=True)
        return None
    finally:
        if is_good:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"data and logs are kept in {folder}", flush=True)


def main() -> int:
    chosen = options()
    if reason := missing():
        print(reason)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # all that was started ends first
    outcomes = []
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        report = one_run(chosen, seed)
        outcomes.append(report.verdict if report else "UNKNOWN")
        if report is None:
            continue
        kinds = f" --kinds {','.join(chosen.kinds)}" if chosen.kinds != faults.KINDS else ""
        faultless = " --without-faults" if chosen.without_faults else kinds
        load = f"--seconds {chosen.seconds:g} --rate {chosen.rate:g} --master '{chosen.master}'"
        report.command = f"python examples/pipeline/run.py --seed {seed} {load}{faultless}"
        page = chosen.out / f"seed-{seed}.html"
        report.write_page(page)
        print("\n".join([*report.lines(), f"  {page}"]), flush=True)
    if chosen.runs > 1:
        print(
            f"{outcomes.count('EQUAL')} runs EQUAL, {outcomes.count('WRONG')} WRONG, {outcomes.count('UNKNOWN')} UNKNOWN"
        )
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
