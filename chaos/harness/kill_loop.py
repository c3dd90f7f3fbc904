"""`kill -9` in a loop under idempotent load, then the verdict: nothing lost, nothing twice, order kept.

    python -m fencepost.chaos.harness.kill_loop --seconds 60 --seed 7

The node is killed at random moments (also while it starts), sometimes stopped cleanly, and started again at
once on the same folder; after each start an acknowledgement must come before the next blow. Exit code 0 says
VALID, 1 a broken promise (that a node which serves acknowledges is one), 2 that nothing can be said (`loop_frame.py`).
`--spoil drop` spoils the history before it is judged: the run must then fail.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.transactional.kept_topics import make_topic
from fencepost.cluster.base.exit_codes import EXIT_BROKEN

from ..checkers.history import to_line
from ..checkers.verdict import judge
from ..workloads.idempotent_stream import SPOILS, IdempotentStream, Plan
from . import loop_frame
from .growing import of_stream
from .kept_run import KeptRun
from .loop_frame import (
    NAME_WIDTH,
    BrokenPromise,
    NoProgress,
    Outcome,
    lines_of,
    patience_s,
    run_loop,
    wait_shown,
)
from .processes import DidNotStart, Node

TOPIC = "stream"
SEGMENT_BYTES = (
    "1048576"  # the smallest allowed: segments roll every few seconds, with their snapshots
)
PROGRESS_TIMEOUT_S = 30.0
LOG_TAIL = 1_500  # characters
CLEAN_EXITS = (0, -15, 143)  # 143 is how a JVM says SIGTERM
CALM_S = 2.0  # at the end, before the producers are told to stop


@dataclass(slots=True)
class Loop:
    """One node, one workload, one die."""

    node: Node
    stream: IdempotentStream
    rng: random.Random
    kept: KeptRun = field(default_factory=KeptRun)
    faults: Counter[str] = field(default_factory=Counter)
    starts_s: list[float] = field(default_factory=list)  # start to serving
    recoveries_s: list[float] = field(default_factory=list)  # start to acknowledging

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(self.rng.uniform(0.3, 3.0))
            self._strike()
        time.sleep(CALM_S)
        wait_shown(self.stream)

    def _strike(self) -> None:
        if not self.node.process.alive:
            raise ended_by_itself(self.node)
        name = "clean stop" if self.rng.random() < 0.1 else "kill -9"
        self.faults[name] += 1
        with self.kept.fault(name):
            self.kept.hit(1)
            if name == "clean stop":
                exit_code = self.node.stop()
                if exit_code not in CLEAN_EXITS:
                    raise BrokenPromise(f"a clean stop ended with {exit_code}")
            else:
                self.node.kill()
            self._stay_away()
            self._come_back()

    def _stay_away(self) -> None:
        while self.rng.random() < 0.2:
            self.faults["kill -9 while starting"] += 1
            with self.kept.fault("kill -9 while starting"):
                self.node.launch()
                time.sleep(self.rng.uniform(0.0, 0.6))
                self.kept.hit(1)
                self.node.kill()
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0.0, 1.0))

    def _come_back(self) -> None:
        before, started = self.stream.acknowledged, time.monotonic()
        self.starts_s.append(self.node.start())
        while self.stream.acknowledged == before:
            waited_s = time.monotonic() - started
            if waited_s > patience_s(PROGRESS_TIMEOUT_S):
                raise NoProgress(f"the node serves, and acknowledged nothing for {waited_s:.0f} s")
            time.sleep(0.01)
        self.recoveries_s.append(time.monotonic() - started)


def ended_by_itself(node: Node) -> Exception:
    """Whose invariant was broken has broken a promise; of all others nobody knows."""
    code, said = node.process.exit_code, node.process.said()[-LOG_TAIL:]
    why = f"the node ended by itself with {code}: {said}"
    return BrokenPromise(why) if code == EXIT_BROKEN else DidNotStart(why)


def create_topic(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    small = {"segment.bytes": SEGMENT_BYTES}
    make_topic(admin, NewTopic(TOPIC, partitions, 1, config=small))


def run(chosen: argparse.Namespace, data: Path, kept: KeptRun) -> Outcome:
    node = Node(
        data,
        port=chosen.port,
        command=chosen.command.split() if chosen.command else None,
        prints_ready=not chosen.command,
    )
    plan = Plan(
        bootstrap=node.bootstrap,
        topic=TOPIC,
        partitions=chosen.partitions,
        producers=chosen.producers,
        records_per_second=chosen.rate,
        seed=chosen.seed,
    )
    loop = Loop(node, IdempotentStream(plan), random.Random(chosen.seed), kept)
    history = loop.stream.history
    try:
        node.start()
        create_topic(node.bootstrap, plan.partitions)
        kept.begin()
        loop.stream.start()
        with kept.growing(of_stream(history)):
            try:
                loop.run(chosen.seconds)
            finally:
                loop.stream.stop()
        loop.stream.read_all()
    finally:
        node.kill()
    if chosen.spoil:
        SPOILS[chosen.spoil](history)
    lines = lines_of(loop.faults, {}, "")
    for name, times in (("serves again", loop.starts_s), ("acknowledges", loop.recoveries_s)):
        if times:
            middle = sorted(times)[len(times) // 2]
            took = f"after {middle:.2f} s (median), {max(times):.2f} s (worst)"
            lines.append(f"{name:>{NAME_WIDTH}}  {took}")
    return Outcome(lines, judge(history), map(to_line, history))


def parser() -> argparse.ArgumentParser:
    text = "kill -9 in a loop under idempotent load."
    made = loop_frame.options(text, producers=4, partitions=3, rate=500, spoils=SPOILS)
    made.add_argument("--port", type=int, help="default: a free one")
    made.add_argument("--command", help="another broker; {port} and {data} are filled in")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return run_loop("kill-loop", parser().parse_args(arguments), run)


if __name__ == "__main__":
    sys.exit(main())
