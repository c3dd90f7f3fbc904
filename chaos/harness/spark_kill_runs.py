"""Jobs of Spark that write exactly once, while one thing each is killed: then every output must be its input, once.

python -m fencepost.chaos.harness.spark_kill_runs --seeds 0..200
python -m fencepost.chaos.harness.spark_kill_runs --seeds 7 --point driver-sent --sink stream

A seed chooses the point (`spark_points.py`), the batch, the partition, the sink, and whether Spark's executors are those
of `local-cluster[2,1,1024]` or of its standalone master and workers. A job that ends too early is started again until
it has written everything; what it wrote is read with `read_committed` and compared, record for record. Nor may it
leave a transaction open: readers must reach the end. Exit codes as in `loop_frame.py`.
"""

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .asking import NobodyAnswers
from .local_cluster import LocalCluster
from .processes import DidNotStart
from .spark_drivers import Drivers, JobStuck, is_done
from .spark_points import BROKER_POINTS, POINTS
from .spark_settings import BATCH, STREAM, Job
from .spark_standalone import Standalone

RECORDS: Final = 240
PARTITIONS: Final = 3
OUT_PARTITIONS: Final = 2
BATCHES: Final = 3
STARTS_MAX: Final = 5
BUSY_STARTS_MAX: Final = 20
# Spark waits 10 s for a new Python process, whatever the machine has to do meanwhile.
TOO_BUSY: Final = "Python worker failed to connect back"
JOB_S: Final = 400.0  # of one start, on a machine that has other things to do
READ_S: Final = 30.0
EXECUTORS: Final = "local-cluster[2,1,1024]"
STANDALONE: Final = "standalone"
STANDALONE_EACH: Final = 4  # one round of the points in so many
SOURCE: Final = "source"
SAID_MAX: Final = 120
ENDED_WITH: Final = "terminated with exception: "


ALL_POINTS: Final = (*sorted(POINTS), *sorted(BROKER_POINTS))


class Broken(Exception):
    """A promise, in a sentence."""


class Unknown(Exception):
    """Nothing was shown, and why."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a seed stands for."""

    seed: int
    point: str
    sink: str
    batch: int
    partition: int
    is_standalone: bool = False
    batches: int = BATCHES

    @classmethod
    def of(cls, seed: int, point: str | None, sink: str | None) -> "Run":
        rng = random.Random(seed)
        # Every point comes in turn, with either sink; what is drawn is when and where.
        rounds = seed // len(ALL_POINTS)
        made = cls(
            seed=seed,
            point=point_at(seed),
            sink=STREAM if rounds % 2 == 0 else BATCH,
            # A node's death must meet a job that is still at work: not in its last batch.
            batch=rng.randrange(BATCHES - 1 if point_at(seed) in BROKER_POINTS else BATCHES),
            partition=rng.randrange(PARTITIONS),
            is_standalone=rounds % STANDALONE_EACH == STANDALONE_EACH - 1,
        )
        return replace(made, point=point or made.point, sink=sink or made.sink)

    @property
    def master(self) -> str:
        """Workers of their own can only die where there are some."""
        return STANDALONE if self.is_standalone or self.point.startswith("host") else EXECUTORS


def point_at(seed: int) -> str:
    return ALL_POINTS[seed % len(ALL_POINTS)]


def fill(bootstrap: str) -> None:
    """The input of all runs."""
    create(bootstrap, SOURCE, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        text = str(number).encode()
        producer.produce(SOURCE, key=text, value=text, partition=number % PARTITIONS)
    assert producer.flush(60) == 0, "the input could not be written"


def create(bootstrap: str, *topics: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(each, partitions) for each in topics])
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
        places = [TopicPartition(topic, each, 0) for each in range(OUT_PARTITIONS)]
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
        self.has_struck = False
        self.trouble = ""

    def run(self) -> None:
        """Once the task that the seed names has begun."""
        begun = Path(self._job.folder) / "struck-0"
        while not begun.exists():
            if self._over.wait(0.01):
                return
        if self._over.wait(self._rng.uniform(0.0, 1.0)):
            return
        try:
            self._strike()
        except (DidNotStart, TimeoutError, NobodyAnswers) as trouble:
            self.trouble = str(trouble)

    def _strike(self) -> None:
        node = self._rng.choice(self._cluster.awake)
        if self._run.point == "coordinator-dies":
            known = self._cluster.coordinator_of(f"{self._group()}::any")
            node = known if known > 0 else node
        self._cluster.kill(node)
        self.has_struck = True
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


def one_run(
    cluster: LocalCluster, admin: str, drivers: Drivers, run: Run, folder: Path
) -> list[str]:
    """What was said at the end of each start but the last. Raises Broken."""
    out = f"out-{run.seed}-{run.point}-{run.sink}"
    create(cluster.bootstrap, f"{out}-0", f"{out}-1", partitions=OUT_PARTITIONS)
    folder.mkdir(parents=True)
    job = Job(
        bootstrap=cluster.bootstrap,
        admin=admin,
        source=SOURCE,
        out=out,
        folder=str(folder),
        sink=run.sink,
        strike=f"{run.point},{run.batch},{run.partition},{folder}",
        per_batch=RECORDS // run.batches,
        batches=run.batches,
    )
    fault = BrokerDies(cluster, run, job) if run.point in BROKER_POINTS else None
    if run.point.startswith("driver"):
        drivers.have_a_reserve()
    with ExitStack() as stack:
        stack.callback(drivers.bury)
        try:
            with ExitStack() as struck:
                if fault is not None:
                    fault.start()
                    struck.callback(fault.end)
                said = run_until_done(drivers, job)
        except JobStuck as stuck:
            drivers.throw_away()
            raise Broken(str(stuck)) from None
        if fault is not None and fault.trouble:
            raise Unknown(f"node: {fault.trouble}")
        has_struck = (folder / "struck-0").exists() if fault is None else fault.has_struck
        if not has_struck:
            raise Unknown(f"{run.point} never fell: this run proves nothing")
        check(cluster.bootstrap, out)
    return said


def run_until_done(drivers: Drivers, job: Job) -> list[str]:
    """What was said at the end of each start but the last. A machine that is too busy for Spark proves nothing."""
    heard: list[str] = []
    while len([each for each in heard if TOO_BUSY not in each]) < STARTS_MAX:
        said = drivers.do(job, JOB_S)
        if is_done(said):
            return heard
        heard.append(said or "its driver died")
        if len(heard) > BUSY_STARTS_MAX:
            raise Unknown(f"{len(heard)} starts did not do, and Spark said: {heard[-1]}")
    raise Broken(
        f"{STARTS_MAX} starts did not do: {heard}; its driver's log ends:\n{drivers.log()}"
    )


def options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument(
        "--seeds", default="0..24", help="A, or A..B without B, or several with commas"
    )
    made.add_argument("--point", choices=[*POINTS, *BROKER_POINTS], help="only this one")
    made.add_argument("--sink", choices=[STREAM, BATCH], help="only this one")
    made.add_argument("--nodes", type=int, default=3)
    made.add_argument(
        "--data", type=Path, help="default: a folder that is removed when all is well"
    )
    return made.parse_args()


def seeds_of(text: str) -> list[int]:
    found: list[int] = []
    for each in text.split(","):
        first, dots, last = each.partition("..")
        found += range(int(first), int(last) if dots else int(first) + 1)
    return found


def campaign(chosen: argparse.Namespace, folder: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    environment: Mapping[str, str] = {"FENCEPOST_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    runs = [Run.of(seed, chosen.point, chosen.sink) for seed in seeds_of(chosen.seeds)]
    with LocalCluster(folder / "data", nodes=chosen.nodes, environment=environment) as cluster:
        fill(cluster.bootstrap)
        for master in (EXECUTORS, STANDALONE):
            mine = [run for run in runs if run.master == master]
            if mine:
                outcomes += on_master(cluster, master, mine, folder)
    return outcomes


def on_master(cluster: LocalCluster, master: str, runs: list[Run], folder: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    with ExitStack() as stack:
        spark: Standalone | None = None
        if master == STANDALONE:
            spark = stack.enter_context(Standalone(folder / "standalone"))
        url = master if spark is None else spark.master
        drivers = stack.enter_context(Drivers(command_of(url), folder / f"drivers-{master[:5]}"))
        for run in runs:
            if spark is not None:
                spark.mend()
            outcomes[one_verdict(cluster, drivers, run, folder / f"run-{run.seed}")] += 1
    return outcomes


def command_of(master: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", "fencepost.chaos.harness.spark_job", master]


def one_verdict(cluster: LocalCluster, drivers: Drivers, run: Run, where: Path) -> str:
    """VALID, INVALID or UNKNOWN; it is printed, and what one left behind that is not valid is kept."""
    started = time.monotonic()
    try:
        said = one_run(cluster, admin_of(cluster), drivers, run, where)
        why, verdict = f"{len(said) + 1} starts{why_failed(said)}", "VALID"
        shutil.rmtree(where, ignore_errors=True)
    except Broken as broken:
        why, verdict = str(broken), "INVALID"
    except (Unknown, DidNotStart, KafkaException, TimeoutError) as unknown:
        why, verdict = str(unknown), "UNKNOWN"
    took = time.monotonic() - started
    print(
        f"{verdict} seed {run.seed}: {run.point} in batch {run.batch}, partition {run.partition}, {run.sink}, "
        f"{run.master}: {why}, {took:.1f} s",
        flush=True,
    )
    return verdict


def why_failed(said: list[str]) -> str:
    """What Spark said when it gave up starts by itself: nobody killed those."""
    why = Counter(
        (each.partition(ENDED_WITH)[2] or each)[:SAID_MAX]
        for each in said
        if each.startswith("failed")
    )
    return "".join(f" ({count} × {each}…)" for each, count in why.items())


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
    bad = outcomes["INVALID"] + outcomes["UNKNOWN"]
    print(
        f"{outcomes['VALID']} runs VALID, {outcomes['INVALID']} INVALID, {outcomes['UNKNOWN']} UNKNOWN"
    )
    if bad:
        print(f"the data and the logs are in {folder}")
        return 1
    if chosen.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
