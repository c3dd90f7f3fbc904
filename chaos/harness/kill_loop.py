"""`kill -9` in a loop under idempotent load, then the verdict: nothing lost, nothing twice, order kept.

    python -m fencepost.chaos.harness.kill_loop --seconds 60 --seed 7

The node is killed at random moments (also while it starts), sometimes stopped cleanly, and started again at
once on the same folder; after each start an acknowledgement must come before the next blow. Exit code 0 says
VALID, 1 a broken promise, 2 that the node did not come back or acknowledged nothing.
`--spoil drop` spoils the history before it is judged: the run must then fail.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ..checkers.history import to_line
from ..checkers.verdict import Verdict, judge
from ..workloads.idempotent_stream import SPOILS, IdempotentStream, Plan
from .processes import DidNotStart, Node

TOPIC = "stream"
SEGMENT_BYTES = (
    "1048576"  # the smallest allowed: segments roll every few seconds, with their snapshots
)
PROGRESS_TIMEOUT_S = 30.0
CLEAN_EXITS = (0, -15, 143)  # 143 is how a JVM says SIGTERM
CALM_S = 2.0  # at the end, before the producers are told to stop


class NoProgress(Exception):
    """The node serves, and yet acknowledges nothing."""


@dataclass(slots=True)
class Loop:
    """One node, one workload, one die."""

    node: Node
    stream: IdempotentStream
    rng: random.Random
    faults: Counter[str] = field(default_factory=Counter)
    starts_s: list[float] = field(default_factory=list)  # start to serving
    recoveries_s: list[float] = field(default_factory=list)  # start to acknowledging

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(self.rng.uniform(0.3, 3.0))
            self._strike()
        time.sleep(CALM_S)

    def _strike(self) -> None:
        assert self.node.process.alive, "the node ended by itself"
        if self.rng.random() < 0.1:
            self.faults["clean stop"] += 1
            exit_code = self.node.stop()
            assert exit_code in CLEAN_EXITS, f"a clean stop ended with {exit_code}"
        else:
            self.faults["kill -9"] += 1
            self.node.kill()
        while self.rng.random() < 0.2:
            self.faults["kill -9 while starting"] += 1
            self.node.launch()
            time.sleep(self.rng.uniform(0.0, 0.6))
            self.node.kill()
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0.0, 1.0))
        self._come_back()

    def _come_back(self) -> None:
        before, started = self.stream.acknowledged, time.monotonic()
        self.starts_s.append(self.node.start())
        while self.stream.acknowledged == before:
            if time.monotonic() - started > PROGRESS_TIMEOUT_S:
                raise NoProgress(f"nothing was acknowledged for {PROGRESS_TIMEOUT_S:g} s")
            time.sleep(0.01)
        self.recoveries_s.append(time.monotonic() - started)


def create_topic(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    small = {"segment.bytes": SEGMENT_BYTES}
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=small)])[TOPIC].result(30)


def run(chosen: argparse.Namespace, data: Path) -> tuple[Loop, Verdict]:
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
    loop = Loop(node, IdempotentStream(plan), random.Random(chosen.seed))
    try:
        node.start()
        create_topic(node.bootstrap, plan.partitions)
        loop.stream.start()
        try:
            loop.run(chosen.seconds)
        finally:
            loop.stream.stop()
        loop.stream.read_all()
    finally:
        node.kill()
    if chosen.spoil:
        SPOILS[chosen.spoil](loop.stream.history)
    return loop, judge(loop.stream.history)


def write_history(path: Path, loop: Loop) -> None:
    with path.open("w") as file:
        file.writelines(f"{to_line(op)}\n" for op in loop.stream.history)


def report(loop: Loop, verdict: Verdict, seed: int) -> str:
    lines = [f"{'seed':>18}  {seed}"]
    lines += [f"{fault:>18}  {count}" for fault, count in sorted(loop.faults.items())]
    for name, times in (("serves again", loop.starts_s), ("acknowledges", loop.recoveries_s)):
        if times:
            middle = sorted(times)[len(times) // 2]
            lines.append(f"{name:>18}  after {middle:.2f} s (median), {max(times):.2f} s (worst)")
    return "\n".join([*lines, str(verdict)])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="kill -9 in a loop under idempotent load.")
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--producers", type=int, default=4)
    made.add_argument("--partitions", type=int, default=3)
    made.add_argument("--rate", type=int, default=500, help="records a second and producer")
    made.add_argument("--port", type=int, help="default: a free one")
    made.add_argument(
        "--data", type=Path, help="default: a folder that is removed when all is well"
    )
    made.add_argument("--history", type=Path, help="write the history there, as JSON lines")
    made.add_argument("--command", help="another broker; {port} and {data} are filled in")
    made.add_argument("--spoil", choices=sorted(SPOILS), help="spoil the history; it must be seen")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    folder = chosen.data or Path(tempfile.mkdtemp(prefix="kill-loop-")) / "data"
    try:
        loop, verdict = run(chosen, folder)
    except (DidNotStart, NoProgress, KafkaException, TimeoutError) as error:
        print(f"INVALID: {error}\nthe data and the log are beside {folder}")
        return 2
    print(report(loop, verdict, chosen.seed))
    kept = chosen.history
    if not verdict.valid and not chosen.spoil:
        kept = kept or folder.parent / "history.jsonl"
        print(f"the data is in {folder}, the log beside it, the history in {kept}")
    elif chosen.data is None:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder.parent)
    if kept is not None:
        write_history(kept, loop)
    return 0 if verdict.valid else 1


if __name__ == "__main__":
    sys.exit(main())
