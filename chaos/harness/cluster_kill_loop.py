"""A real cluster under idempotent load whose leaders and controllers are killed, paused and stopped, then the verdict.

    python -m fencepost.chaos.harness.cluster_kill_loop --seconds 60 --seed 7

While one node is away every partition must acknowledge again before it comes back; while a majority is away none
may acknowledge. At the end all replicas must be in sync and hold the same bytes, and the checkers judge what the
clients saw. Exit code 0 says VALID, 1 a broken promise (to acknowledge is one), 2 that the cluster did not come back.
"""

import argparse
import hashlib
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.transactional.kept_topics import make_topic

from ..checkers.history import to_line
from ..checkers.verdict import judge
from ..workloads.idempotent_stream import SPOILS, IdempotentStream, Plan
from . import loop_frame
from .cluster_faults import FAULTS, PROGRESS_S, Faults
from .growing import of_stream
from .kept_run import KeptRun
from .local_cluster import LocalCluster
from .loop_frame import (
    NoProgress,
    Outcome,
    lines_of,
    run_loop,
    wait_for_progress,
    wait_shown,
)
from .processes import DidNotStart

TOPIC = "stream"
SEGMENT_BYTES = "1048576"  # the smallest allowed: segments roll every few seconds
# A paused node answers nothing and closes nothing: a client learns of it by its own timeout alone.
CLIENT = {"socket.timeout.ms": 4_000, "topic.metadata.refresh.interval.ms": 1_000}
Holders = Mapping[int, Sequence[int]]  # partition -> nodes that have a copy of it


class StreamLoad:
    """Everybody is served when every partition has acknowledged something new."""

    topics = (TOPIC,)

    def __init__(self, stream: IdempotentStream) -> None:
        self.stream = stream

    def served(self) -> int:
        return self.stream.acknowledged

    def progress(self) -> float:
        history = self.stream.history
        looked_at = len(history)
        missing = {f"{TOPIC}-{number}" for number in range(self.stream.plan.partitions)}

        def all_have() -> bool:
            nonlocal looked_at
            new, looked_at = history[looked_at:], max(looked_at, len(history))
            missing.difference_update(op.key for op in new if op.f == "send" and op.type == "ok")
            return not missing

        try:
            return wait_for_progress("acknowledgements of all partitions", all_have, PROGRESS_S)
        except NoProgress as error:
            raise NoProgress(f"{error}; none of {sorted(missing)}") from error


def holders_of(cluster: LocalCluster, partitions: int, topic: str = TOPIC) -> Holders:
    """Which nodes have a copy of each partition, asked while they serve."""
    found = {each.partition: each.replicas for each in cluster.partitions(topic)}
    assert sorted(found) == [*range(partitions)], f"{topic} has partitions {sorted(found)}"
    return found


def replicas_differ(cluster: LocalCluster, holders: Holders, topic: str = TOPIC) -> list[str]:
    """A sentence for each partition whose stopped replicas do not hold the same bytes."""
    found = []
    compared = 0
    for number, nodes in sorted(holders.items()):
        digests = {}
        for node in nodes:
            folder = cluster.data / f"node-{node}" / f"{topic}-{number}"
            digest, size = hashlib.sha256(), 0
            for segment in sorted(folder.glob("*.log")):  # rolled where each liked
                data = segment.read_bytes()
                digest.update(data)
                size += len(data)
            digests[node] = f"{size} bytes, {digest.hexdigest()[:12]}"
            compared += size
        if len(set(digests.values())) > 1:
            found.append(f"replicas of {topic}-{number} differ: {digests}")
    assert compared > 0, f"{topic} is empty: nothing was compared"
    return found


def create_topic(bootstrap: str, partitions: int, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    small = {"segment.bytes": SEGMENT_BYTES}
    make_topic(admin, NewTopic(TOPIC, partitions, copies, config=small))


def run(chosen: argparse.Namespace, data: Path, kept: KeptRun) -> Outcome:
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
        stream = IdempotentStream(plan)
        faults = Faults(cluster, StreamLoad(stream), random.Random(chosen.seed), kept)
        try:
            create_topic(cluster.bootstrap, plan.partitions, min(3, chosen.nodes))
            kept.begin()
            stream.start()
            some = {name: FAULTS[name] for name in chosen.fault or FAULTS}
            with kept.growing(of_stream(stream.history)):
                try:
                    with kept.watch(cluster, [TOPIC], faults.load.served):
                        faults.run(chosen.seconds, some)
                        wait_shown(stream)
                finally:
                    stream.stop()
            faults.wait_in_sync()
            stream.read_all()
            holders = holders_of(cluster, plan.partitions)
        except (TimeoutError, DidNotStart, NoProgress):
            print(cluster.said(), file=sys.stderr)
            raise
        exit_code = cluster.stop()
        broken = [f"the clean stop ended with {exit_code}"] if exit_code else []
        broken += replicas_differ(cluster, holders)
    if chosen.spoil:
        SPOILS[chosen.spoil](stream.history)
    lines = lines_of(faults.counts, faults.took_s, "all acknowledge again")
    return Outcome(lines, judge(stream.history), map(to_line, stream.history), broken)


def parser() -> argparse.ArgumentParser:
    text = "kill and pause nodes of a cluster under load."
    made = loop_frame.options(text, producers=4, partitions=6, rate=300, spoils=SPOILS)
    made.add_argument("--nodes", type=int, default=3)
    made.add_argument("--fault", action="append", choices=list(FAULTS), help="only this; repeats")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return run_loop("cluster-kill-loop", parser().parse_args(arguments), run)


if __name__ == "__main__":
    sys.exit(main())
