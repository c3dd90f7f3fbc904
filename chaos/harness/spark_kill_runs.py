"""Jobs of Spark that write exactly once, while one thing each is killed: then every output must be its input, once.

python -m fencepost.chaos.harness.spark_kill_runs --seeds 0..200
python -m fencepost.chaos.harness.spark_kill_runs --seeds 7 --point driver-sent --sink stream

A seed chooses the point (`spark_strikes.py`, or a broker), the batch, the partition and the sink. A job that ends is
started again until it has written everything; what it wrote is read with `read_committed` and compared, record for
record. Nor may it leave a transaction open: readers must reach the end. Exit codes as in `loop_frame.py`.
"""

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .local_cluster import LocalCluster
from .processes import DidNotStart, Process
from .spark_points import BROKER_POINTS, POINTS
from .spark_settings import BATCH, STREAM, Job

RECORDS: Final = 800
PARTITIONS: Final = 4
BATCHES: Final = 4
STARTS_MAX: Final = 5
JOB_S: Final = 480.0  # of one start, on a machine that has other things to do
READ_S: Final = 30.0
EXECUTORS: Final = "local-cluster[2,1,1024]"
LOCAL: Final = "local[2,4]"
SOURCE: Final = "source"
SAID_MAX: Final = 300


class Broken(Exception):
    """A promise, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a seed stands for."""

    seed: int
    point: str
    sink: str
    batch: int
    partition: int
    batches: int = BATCHES

    @classmethod
    def of(cls, seed: int, point: str | None, sink: str | None) -> "Run":
        rng = random.Random(seed)
        points = [*sorted(POINTS), *sorted(BROKER_POINTS)]
        # Every point comes in turn; what is drawn is when and where.
        made = cls(
            seed=seed,
            point=points[seed % len(points)],
            sink=STREAM if seed // len(points) % 2 == 0 else BATCH,
            batch=rng.randrange(1, BATCHES - 1),
            partition=rng.randrange(PARTITIONS),
        )
        return replace(made, point=point or made.point, sink=sink or made.sink)

    @property
    def master(self) -> str:
        return EXECUTORS if self.point.startswith(("executor", "twin")) else LOCAL


def fill(bootstrap: str) -> None:
    """The input of all runs."""
    create(bootstrap, SOURCE)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        text = str(number).encode()
        producer.produce(SOURCE, key=text, value=text, partition=number % PARTITIONS)
    assert producer.flush(60) == 0, "the input could not be written"


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(each, PARTITIONS) for each in topics])
    for each in made.values():
        each.result(30)


def check(bootstrap: str, out: str) -> None:
    for rest in range(2):
        topic = f"{out}-{rest}"
        found = Counter(read(bootstrap, topic))
        wanted = Counter(range(rest, RECORDS, 2))
        twice = sorted(number for number in found if found[number] > wanted[number])
        lost = sorted(wanted - found)
        if twice or lost:
            raise Broken(
                f"{topic}: {len(twice)} records are there too often ({twice[:5]}…), {len(lost)} are missing "
                f"({lost[:5]}…)"
            )


def read(bootstrap: str, topic: str) -> Iterator[int]:
    """All that is committed; TimeoutError when an open transaction is in the way of the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "spark-kill-runs",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    plain = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "spark-kill-runs",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        places = [TopicPartition(topic, each, 0) for each in range(PARTITIONS)]
        ends = {each.partition: plain.get_watermark_offsets(each, 20)[1] for each in places}
        consumer.assign(places)
        left = {number for number in ends if ends[number] > 0}
        deadline = time.monotonic() + READ_S
        while left:
            if time.monotonic() > deadline:
                raise Broken(f"{topic}: readers do not reach the end of {sorted(left)}")
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    yield int(message.value())
                    if message.offset() >= ends[message.partition()] - 1:
                        left.discard(message.partition())
                elif (
                    error.code() == KafkaError._PARTITION_EOF
                    and message.offset() >= ends[message.partition()]
                ):
                    left.discard(message.partition())
    finally:
        consumer.close()
        plain.close()


class BrokerDies(threading.Thread):
    """One of them, once, somewhere in the middle of a job; it comes back."""

    def __init__(self, cluster: LocalCluster, run: Run, job: Job) -> None:
        super().__init__(name="a broker dies", daemon=True)
        self._cluster, self._run, self._job = cluster, run, job
        self._over = threading.Event()
        self._rng = random.Random(run.seed)

    def run(self) -> None:
        checkpoint = Path(self._job.folder) / "checkpoint" / "offsets" / str(self._run.batch)
        while self._run.sink == STREAM and not checkpoint.exists():
            if self._over.wait(0.02):
                return
        if self._over.wait(self._rng.uniform(0.0, 0.4 if self._run.sink == STREAM else 12.0)):
            return
        node = self._rng.choice(self._cluster.awake)
        if self._run.point == "coordinator-dies":
            group = self._group()
            node = self._cluster.coordinator_of(f"{group}::any") if group else node
        if node > 0:
            self._cluster.kill(node)
            time.sleep(self._rng.uniform(0.2, 1.5))
            self._cluster.start_again(node)

    def _group(self) -> str:
        if self._run.sink == BATCH:
            return self._job.out
        metadata = Path(self._job.folder) / "checkpoint" / "metadata"
        found = metadata.read_text().partition('"id":"')[2].partition('"')[0]
        return f"spark-{found}"

    def end(self) -> None:
        self._over.set()
        self.join()


def one_run(cluster: LocalCluster, admin: str, run: Run, folder: Path) -> int:
    """How often the job was started. Raises Broken."""
    out = f"out-{run.seed}-{run.point}"
    create(cluster.bootstrap, f"{out}-0", f"{out}-1")
    folder.mkdir(parents=True)
    strike = f"{run.point},{run.batch},{run.partition},{folder}"
    job = Job(
        bootstrap=cluster.bootstrap,
        admin=admin,
        source=SOURCE,
        out=out,
        folder=str(folder),
        sink=run.sink,
        master=run.master,
        strike="" if run.point in BROKER_POINTS else strike,
        per_batch=RECORDS // run.batches,
        batches=run.batches,
        speculation=run.point.startswith("twin"),
    )
    fault = BrokerDies(cluster, run, job) if run.point in BROKER_POINTS else None
    with ExitStack() as stack:
        if fault is not None:
            fault.start()
            stack.callback(fault.end)
        starts = run_until_done(job, folder)
    if fault is None and not (folder / "struck-0").exists():
        raise Broken(f"{run.point} never fell: this run proves nothing")
    check(cluster.bootstrap, out)
    return starts


def run_until_done(job: Job, folder: Path) -> int:
    for start in range(1, STARTS_MAX + 1):
        process = Process(job.command(), log=folder / "job.log")
        process.start()
        deadline = time.monotonic() + JOB_S
        try:
            while process.alive:
                if time.monotonic() > deadline:
                    raise Broken(
                        f"the job does not end; {process.log} ends:\n{process.said()[-3000:]}"
                    )
                time.sleep(0.05)
        finally:
            process.kill()
        if process.exit_code == 0:
            return start
    raise Broken(f"{STARTS_MAX} starts did not do; {process.log} ends:\n{process.said()[-3000:]}")


def why_failed(folder: Path) -> str:
    """What Spark said when it gave up a start by itself: nobody killed that one."""
    text = (folder / "job.log").read_text(errors="replace")
    lines = [each for each in text.splitlines() if each.startswith("failed: ")]
    return "".join(f" ({each[:SAID_MAX]}…)" for each in lines)


def options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--seeds", default="0..18", help="A, or A..B without B")
    made.add_argument("--point", choices=[*POINTS, *BROKER_POINTS], help="only this one")
    made.add_argument("--sink", choices=[STREAM, BATCH], help="only this one")
    made.add_argument("--nodes", type=int, default=3)
    made.add_argument(
        "--data", type=Path, help="default: a folder that is removed when all is well"
    )
    return made.parse_args()


def seeds_of(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last) if dots else int(first) + 1)


def campaign(chosen: argparse.Namespace, folder: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    environment: Mapping[str, str] = {"FENCEPOST_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with LocalCluster(folder / "data", nodes=chosen.nodes, environment=environment) as cluster:
        admin = admin_of(cluster)
        fill(cluster.bootstrap)
        for seed in seeds_of(chosen.seeds):
            run = Run.of(seed, chosen.point, chosen.sink)
            started = time.monotonic()
            where = folder / f"run-{seed}"
            try:
                starts = one_run(cluster, admin, run, where)
                said, verdict = f"{starts} starts{why_failed(where)}", "VALID"
                shutil.rmtree(where, ignore_errors=True)
            except Broken as broken:
                said, verdict = str(broken), "INVALID"
            outcomes[verdict] += 1
            took = time.monotonic() - started
            print(
                f"{verdict} seed {seed}: {run.point} in batch {run.batch}, partition {run.partition}, {run.sink}: "
                f"{said}, {took:.1f} s",
                flush=True,
            )
    return outcomes


def admin_of(cluster: LocalCluster) -> str:
    """`fencepost dev` has its admin doors 1000 ports above."""
    return ",".join(f"http://{host}:{port + 1000}" for host, port in cluster.addresses)


def main() -> int:
    chosen = options()
    folder = chosen.data or Path(tempfile.mkdtemp(prefix="spark-kill-runs-"))
    try:
        outcomes = campaign(chosen, folder)
    except (DidNotStart, KafkaException, TimeoutError) as error:
        print(f"INVALID: {error}\nthe data and the logs are in {folder}")
        return 2
    bad = outcomes["INVALID"]
    print(f"{outcomes['VALID']} runs VALID, {bad} INVALID")
    if bad:
        print(f"the data and the logs are in {folder}")
        return 1
    if chosen.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
