"""Jobs of Spark that write exactly once, while one thing each is killed: then every output must be its input, once.

python -m fencepost.chaos.harness.spark_kill_runs --seeds 0..200
python -m fencepost.chaos.harness.spark_kill_runs --seeds 7 --point driver-sent --sink stream
python -m fencepost.chaos.harness.spark_kill_runs --seeds 1000..2000 --minutes 60 --data FOLDER

A seed chooses the point (`spark_points.py`), the batch, the partition, the sink, whether there is a shuffle before it,
whether rows have headers, whether there are so many that a task's are only summed up to be known again, and whether Spark's
executors are those of `local-cluster[2,1,1024]` or of its standalone master and workers. A job that ends
too early is started again until it has written everything; what it wrote is read with `read_committed` and compared,
record for record, with its headers. Nor may it leave a transaction open: readers must reach the end, and where only a task's
input failed they must before the job is started again. A run that did not meet what its point
is for (`MARKS`) is UNKNOWN. Exit code 0 says that all runs are VALID, 1 that one is INVALID, 2 that one is UNKNOWN.
"""

import argparse
import math
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from .local_cluster import LocalCluster
from .processes import DidNotStart
from .spark_drivers import Drivers, JobStuck, is_done
from .spark_faults import beside
from .spark_outputs import (
    OUT_PARTITIONS,
    RECORDS,
    RECORDS_LARGE,
    SOURCE,
    SOURCE_LARGE,
    Broken,
    check,
    check_nothing_open,
    create,
    fill,
)
from .spark_points import ALL_POINTS, NOTE_LOST
from .spark_run import EXECUTORS, STANDALONE, Run
from .spark_settings import BATCH, STREAM, TASK, Job
from .spark_standalone import Standalone

STARTS_MAX: Final = 5
BUSY_STARTS_MAX: Final = 20
# Spark waits 10 s for a new Python process, whatever the machine has to do meanwhile.
TOO_BUSY: Final = "Python worker failed to connect back"
JOB_S: Final = 400.0  # of one start, on a machine that has other things to do
SAID_MAX: Final = 120
TURN: Final = 60  # runs
ENDED_WITH: Final = "terminated with exception: "


class Unknown(Exception):
    """Nothing was shown, and why."""


def one_run(
    cluster: LocalCluster, admin: str, drivers: Drivers, run: Run, folder: Path
) -> list[str]:
    """What was said at the end of each start but the last. Raises Broken; Unknown when what was met was not what it is for."""
    job = job_of(cluster, admin, run, folder)
    if run.point.startswith("driver"):
        drivers.have_a_reserve()
    with ExitStack() as stack:
        stack.callback(drivers.bury)
        try:
            said, trouble = struck(cluster, drivers, run, job)
        except JobStuck as stuck:
            drivers.throw_away()
            raise Broken(str(stuck)) from None
        check(cluster.bootstrap, job.out, records=records_of(run), has_headers=run.has_headers)
    if trouble:
        raise Unknown(trouble)
    if missing := missing_marks(run, folder):
        raise Unknown(f"{run.point} never fell ({', '.join(missing)}): this run proves nothing")
    return said


def records_of(run: Run) -> int:
    return RECORDS_LARGE if run.is_large else RECORDS


def missing_marks(run: Run, folder: Path) -> list[str]:
    return [each for each in run.marks if not (folder / each).exists()]


def job_of(cluster: LocalCluster, admin: str, run: Run, folder: Path) -> Job:
    out = f"out-{run.seed}-{run.point}-{run.sink}"
    create(cluster.bootstrap, f"{out}-0", f"{out}-1", partitions=OUT_PARTITIONS)
    folder.mkdir(parents=True)
    return Job(
        bootstrap=cluster.bootstrap,
        admin=admin,
        source=SOURCE_LARGE if run.is_large else SOURCE,
        out=out,
        folder=str(folder),
        sink=run.sink,
        strike=f"{run.point},{run.batch},{run.partition},{folder}",
        per_batch=records_of(run) // run.batches,
        batches=run.batches,
        shuffled_to=run.shuffled_to,
        has_headers=run.has_headers,
        is_slow=run.is_slow,
        fails_at=run.fails_at(RECORDS),
    )


def struck(cluster: LocalCluster, drivers: Drivers, run: Run, job: Job) -> tuple[list[str], str]:
    """What was said at the end of each start but the last, and why nothing can be said, if that is so."""
    fault = beside(cluster, drivers, run, job)
    with ExitStack() as stack:
        if fault is not None:
            fault.start()
            stack.callback(fault.has_ended)
        said = run_until_done(drivers, job, lambda: check_open(cluster, run, job))
        if run.point == "commit-note-lost":
            lose_commit_note(job)
            said += run_until_done(drivers, job)
    return said, "" if fault is None else fault.trouble


def check_open(cluster: LocalCluster, run: Run, job: Job) -> None:
    """Where nothing was killed, and the others of the batch were writing when one of its tasks failed."""
    if run.point == "input-fails":
        check_nothing_open(cluster.bootstrap, job.out)


def lose_commit_note(job: Job) -> None:
    """A disk that kept `offsets/N`, and not the younger `commits/N`. A batch job has no such notes: it is done once more."""
    (Path(job.folder) / NOTE_LOST).touch()
    if job.sink == BATCH:
        return
    commits = Path(job.folder) / "checkpoint" / "commits"
    last = max(int(each.name) for each in commits.glob("[0-9]*"))
    assert (commits.parent / "offsets" / str(last)).exists(), "offsets/N is older than commits/N"
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def run_until_done(
    drivers: Drivers, job: Job, when_it_failed: Callable[[], None] = lambda: None
) -> list[str]:
    """What was said at the end of each start but the last. A machine that is too busy for Spark proves nothing."""
    heard: list[str] = []
    while len([each for each in heard if TOO_BUSY not in each]) < STARTS_MAX:
        said = drivers.do(job, JOB_S)
        if is_done(said):
            return heard
        heard.append(said or "its driver died")
        if said and TOO_BUSY not in said:
            when_it_failed()
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
    made.add_argument("--point", choices=ALL_POINTS, help="only this one")
    made.add_argument("--sink", choices=[STREAM, BATCH, TASK], help="only this one")
    made.add_argument("--minutes", type=float, default=0.0, help="begin no run after that many")
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


def campaign(chosen: argparse.Namespace, folder: Path, outcomes: Counter[str]) -> None:
    environment: Mapping[str, str] = {"FENCEPOST_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    runs = [Run.of(seed, chosen.point, chosen.sink) for seed in seeds_of(chosen.seeds)]
    last = time.monotonic() + 60.0 * chosen.minutes if chosen.minutes else math.inf
    with LocalCluster(folder / "data", nodes=chosen.nodes, environment=environment) as cluster:
        fill(cluster.bootstrap)
        for master, mine in in_turns(runs):
            if mine and time.monotonic() < last:
                on_master(cluster, master, mine, folder, last, outcomes)


def in_turns(runs: list[Run]) -> Iterator[tuple[str, list[Run]]]:
    """First those of one kind of executors, then of the other, so many at a time that neither waits for hours."""
    for first in range(0, len(runs), TURN):
        turn = runs[first : first + TURN]
        for master in (EXECUTORS, STANDALONE):
            yield master, [run for run in turn if run.master == master]


def on_master(
    cluster: LocalCluster,
    master: str,
    runs: list[Run],
    folder: Path,
    last: float,
    outcomes: Counter[str],
) -> None:
    """`last` is when the last of them may begin, on time.monotonic."""
    turn = f"{master[:5]}-{runs[0].seed}"
    with ExitStack() as stack:
        spark: Standalone | None = None
        if master == STANDALONE:
            spark = stack.enter_context(Standalone(folder / f"standalone-{turn}"))
        url = master if spark is None else spark.master
        drivers = stack.enter_context(Drivers(command_of(url), folder / f"drivers-{turn}"))
        for run in runs:
            if time.monotonic() > last:
                return
            if spark is not None:
                spark.mend()
            outcomes[one_verdict(cluster, drivers, run, folder / f"run-{run.seed}")] += 1


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
        f"{run.master}{', shuffled' if run.shuffled_to else ''}{', headers' if run.has_headers else ''}"
        f"{', large' if run.is_large else ''}: {why}, {took:.1f} s",
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # all that was started ends first
    folder = chosen.data or Path(tempfile.mkdtemp(prefix="spark-kill-runs-"))
    outcomes: Counter[str] = Counter()
    try:
        campaign(chosen, folder, outcomes)
    except (DidNotStart, KafkaException, TimeoutError) as error:
        print(f"UNKNOWN: {error}")
        outcomes["UNKNOWN"] += 1
    print(
        f"{outcomes['VALID']} runs VALID, {outcomes['INVALID']} INVALID, {outcomes['UNKNOWN']} UNKNOWN"
    )
    code = exit_code(outcomes)
    if code:
        print(f"the data and the logs are in {folder}")
    elif chosen.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def exit_code(outcomes: Mapping[str, int]) -> int:
    """A broken promise weighs more than what is unknown; no run at all says nothing."""
    if outcomes.get("INVALID"):
        return 1
    return 2 if outcomes.get("UNKNOWN") or not outcomes.get("VALID") else 0


if __name__ == "__main__":
    sys.exit(main())
