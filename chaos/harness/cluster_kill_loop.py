"""A real cluster under idempotent load whose leaders and controllers are killed, paused and stopped, then the verdict.

    python -m fencepost.chaos.harness.cluster_kill_loop --seconds 60 --seed 7

While one node is away every partition must acknowledge again before it comes back; while a majority is away none
may acknowledge. At the end all replicas must be in sync and hold the same bytes, and the checkers judge what the
clients saw. Exit code 0 says VALID, 1 a broken promise, 2 that the cluster did not come back or acknowledged nothing.
"""

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ..checkers.history import to_line
from ..checkers.verdict import Verdict, judge
from ..workloads.idempotent_stream import SPOILS, IdempotentStream, Plan
from .local_cluster import LocalCluster, wait_for
from .processes import DidNotStart

TOPIC = "stream"
SEGMENT_BYTES = "1048576"  # the smallest allowed: segments roll every few seconds
PROGRESS_S = 30.0  # for each partition to acknowledge again while one node is away
IN_SYNC_S = 60.0
QUIET_AFTER_S = 2.0  # what was on its way when the majority went has arrived
# A paused node answers nothing and closes nothing: a client learns of it by its own timeout alone.
CLIENT = {"socket.timeout.ms": 4_000, "topic.metadata.refresh.interval.ms": 1_000}


class BrokenPromise(Exception):
    """What must not be, seen by the loop itself."""


@dataclass(slots=True)
class Faults:
    """One cluster, one workload, one die. Each fault is injected, lived with, healed."""

    cluster: LocalCluster
    stream: IdempotentStream
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, seconds: float, only: Sequence[str]) -> None:
        deadline = time.monotonic() + seconds
        self._progress()
        while time.monotonic() < deadline:
            name = self.rng.choice(only)
            self.counts[name] += 1
            FAULTS[name](self, name)
            if self.rng.random() < 0.7:  # else the next meets replicas that are still behind
                wait_for("all replicas in sync", lambda: self.cluster.in_sync(TOPIC), IN_SYNC_S)
            time.sleep(self.rng.uniform(0.0, 1.0))

    # -- one node is away, the others go on --------------------------------------------------------

    def kill_leader(self, name: str) -> None:
        self._lose(name, self._leader())

    def kill_controller(self, name: str) -> None:
        self._lose(name, self._controller())

    def kill_any(self, name: str) -> None:
        self._lose(name, self.rng.choice(self.cluster.nodes))

    def stop_cleanly(self, name: str) -> None:
        node = self._leader()
        self.cluster.stop_node(node)
        self._live_without(name, node)

    def _lose(self, name: str, node: int) -> None:
        self.cluster.kill(node)
        self._live_without(name, node)

    def _live_without(self, name: str, node: int) -> None:
        if self.rng.random() < 0.8:  # else it comes back at once, perhaps as leader
            self.acknowledged_s[name].append(self._progress())
        self.cluster.start_again(node)
        self._progress()

    def pause_leader(self, name: str) -> None:
        """Long enough that another leads when it wakes up and believes that it still does."""
        self._pause(name, self._leader(), self.rng.uniform(4.0, 8.0))

    def pause_controller(self, name: str) -> None:
        self._pause(name, self._controller(), self.rng.uniform(4.0, 8.0))

    def pause_shortly(self, name: str) -> None:
        self._pause(name, self._leader(), self.rng.uniform(0.1, 2.0))

    def _pause(self, name: str, node: int, seconds: float) -> None:
        self.cluster.pause(node)
        time.sleep(seconds)
        self.cluster.resume(node)
        self.acknowledged_s[name].append(self._progress())

    # -- a majority is away, nobody may go on ------------------------------------------------------

    def kill_majority(self, name: str) -> None:
        nodes = list(self.cluster.nodes)
        self.rng.shuffle(nodes)
        self._lose_several(name, nodes[: len(nodes) // 2 + 1])

    def kill_all(self, name: str) -> None:
        self._lose_several(name, list(self.cluster.nodes))

    def _lose_several(self, name: str, nodes: Sequence[int]) -> None:
        for node in nodes:
            self.cluster.kill(node)
        time.sleep(QUIET_AFTER_S)
        before = len(self.stream.history)
        time.sleep(self.rng.uniform(0.0, 1.0))
        heard = [op for op in self.stream.history[before:] if op.f == "send" and op.type == "ok"]
        if heard:
            raise BrokenPromise(f"acknowledged while {len(nodes)} nodes were dead: {heard[0]}")
        for node in nodes:
            self.cluster.start_again(node)
        self.acknowledged_s[name].append(self._progress())

    # -- what is looked at -------------------------------------------------------------------------

    def _leader(self) -> int:
        found: list[int] = []

        def known() -> bool:
            partition = self.rng.randrange(self.stream.plan.partitions)
            found.append(self.cluster.leader_of(TOPIC, partition))
            return found[-1] in self.cluster.nodes

        wait_for("a leader", known, PROGRESS_S)
        return found[-1]

    def _controller(self) -> int:
        found: list[int] = []

        def known() -> bool:
            found.append(self.cluster.quorum_leader())
            return found[-1] in self.cluster.nodes

        wait_for("a controller", known, PROGRESS_S)
        return found[-1]

    def _progress(self) -> float:
        """Seconds until every partition has acknowledged something new."""
        history = self.stream.history
        looked_at = len(history)
        missing = {f"{TOPIC}-{number}" for number in range(self.stream.plan.partitions)}

        def all_have() -> bool:
            nonlocal looked_at
            new, looked_at = history[looked_at:], max(looked_at, len(history))
            missing.difference_update(op.key for op in new if op.f == "send" and op.type == "ok")
            return not missing

        return wait_for(f"acknowledgements of {sorted(missing)}", all_have, PROGRESS_S)


FAULTS: dict[str, Callable[[Faults, str], None]] = {
    "kill leader": Faults.kill_leader,
    "kill controller": Faults.kill_controller,
    "kill any": Faults.kill_any,
    "kill majority": Faults.kill_majority,
    "kill all": Faults.kill_all,
    "stop cleanly": Faults.stop_cleanly,
    "pause leader": Faults.pause_leader,
    "pause controller": Faults.pause_controller,
    "pause shortly": Faults.pause_shortly,
}


def replicas_differ(cluster: LocalCluster, partitions: int) -> list[str]:
    """A sentence for each partition whose stopped replicas do not hold the same bytes."""
    found = []
    for number in range(partitions):
        digests = {}
        for node in cluster.nodes:
            folder = cluster.data / f"node-{node}" / f"{TOPIC}-{number}"
            digest, size = hashlib.sha256(), 0
            for segment in sorted(folder.glob("*.log")):  # rolled where each liked
                data = segment.read_bytes()
                digest.update(data)
                size += len(data)
            digests[node] = f"{size} bytes, {digest.hexdigest()[:12]}"
            assert size > 0, f"{folder} is empty: nothing was compared"
        if len(set(digests.values())) > 1:
            found.append(f"replicas of {TOPIC}-{number} differ: {digests}")
    return found


def create_topic(bootstrap: str, partitions: int, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    small = {"segment.bytes": SEGMENT_BYTES}
    admin.create_topics([NewTopic(TOPIC, partitions, copies, config=small)])[TOPIC].result(30)


def run(chosen: argparse.Namespace, data: Path) -> tuple[Faults, Verdict, list[str]]:
    with LocalCluster(data, nodes=chosen.nodes, settings=chosen.set) as cluster:
        plan = Plan(
            bootstrap=cluster.bootstrap,
            topic=TOPIC,
            partitions=chosen.partitions,
            producers=chosen.producers,
            records_per_second=chosen.rate,
            seed=chosen.seed,
            client=CLIENT,
        )
        faults = Faults(cluster, IdempotentStream(plan), random.Random(chosen.seed))
        try:
            create_topic(cluster.bootstrap, plan.partitions, min(3, chosen.nodes))
            faults.stream.start()
            try:
                faults.run(chosen.seconds, chosen.fault or list(FAULTS))
            finally:
                faults.stream.stop()
            wait_for("all replicas in sync", lambda: cluster.in_sync(TOPIC), IN_SYNC_S)
            faults.stream.read_all()
        except (TimeoutError, DidNotStart):
            print(cluster.said(), file=sys.stderr)
            raise
        exit_code = cluster.stop()
        broken = [f"the clean stop ended with {exit_code}"] if exit_code else []
        broken += replicas_differ(cluster, plan.partitions)
    if chosen.spoil:
        SPOILS[chosen.spoil](faults.stream.history)
    return faults, judge(faults.stream.history), broken


def report(faults: Faults, verdict: Verdict, broken: Sequence[str], seed: int) -> str:
    lines = [f"{'seed':>18}  {seed}"]
    for name, count in sorted(faults.counts.items()):
        line = f"{name:>18}  {count}"
        if times := sorted(faults.acknowledged_s[name]):
            middle = times[len(times) // 2]
            line += (
                f", all acknowledge again after {middle:.2f} s (median), {times[-1]:.2f} s (worst)"
            )
        lines.append(line)
    return "\n".join([*lines, *broken, str(verdict)])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="kill and pause nodes of a cluster under load.")
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--nodes", type=int, default=3)
    made.add_argument("--producers", type=int, default=4)
    made.add_argument("--partitions", type=int, default=6)
    made.add_argument("--rate", type=int, default=300, help="records a second and producer")
    made.add_argument("--fault", action="append", choices=list(FAULTS), help="only this; repeats")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    made.add_argument(
        "--data", type=Path, help="default: a folder that is removed when all is well"
    )
    made.add_argument("--spoil", choices=sorted(SPOILS), help="spoil the history; it must be seen")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    folder = chosen.data or Path(tempfile.mkdtemp(prefix="cluster-kill-loop-")) / "data"
    where = f"the data and the logs are in {folder} and beside it"
    try:
        faults, verdict, broken = run(chosen, folder)
    except BrokenPromise as seen:
        print(f"INVALID: {seen}\n{where}")
        return 1
    except (DidNotStart, KafkaException, TimeoutError) as error:
        print(f"INVALID: {error}\n{where}")
        return 2
    print(report(faults, verdict, broken, chosen.seed))
    good = verdict.valid and not broken
    if not good and not chosen.spoil:
        history = folder.parent / "history.jsonl"
        history.write_text("".join(f"{to_line(op)}\n" for op in faults.stream.history))
        print(f"INVALID; {where}, the history in {history}")
    elif chosen.data is None:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
