"""Fencepost beside a one-node Kafka, in one run on one machine: how fast, how small.

    python tests/benchmarks/bench.py [--warm-up 120] [--rounds 3] [--quick]

Prints a Markdown table; writes it with everything behind it to results/latest.{md,json}.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import bench_load  # noqa: E402
import readme_numbers  # noqa: E402
from bench_systems import (  # noqa: E402
    Fencepost,
    Kafka,
    System,
    begin_load,
    create_topics,
    delete_topic,
    end_load,
    load,
)
from bench_table import KAFKA, SYNCED, WRITTEN, report, table  # noqa: E402
from support.kafka_peer import VERSION  # noqa: E402

PARTITIONS = 6
MANY_TOPICS, MANY_EACH = 10, 1_000
SETTLE_S = 5.0


class Book:
    """Every value that was measured: measure -> system -> one a round."""

    def __init__(self) -> None:
        self.measures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(self, system: System, **values: float) -> None:
        for key, value in values.items():
            self.measures[key][system.name].append(round(value, 4))
        said = "  ".join(f"{key} {value:.2f}" for key, value in values.items())
        print(f"{time.strftime('%H:%M:%S')}  {system.name:<14} {said}", file=sys.stderr, flush=True)


def _cpu(system: System, work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """The answer, and what the node spent on it in CPU seconds a gigabyte."""
    before = system.process.cpu_seconds()
    answer = work()
    spent = system.process.cpu_seconds() - before
    return answer, spent / (answer["records"] * bench_load.RECORD_SIZE / 1e9)


def throughput(system: System, topic: str, seconds: float) -> dict[str, float]:
    """Produce for some seconds, then read all of it back; the topic is gone afterwards."""
    create_topics(system, [topic], PARTITIONS)
    wrote, wrote_cpu = _cpu(system, lambda: load(system, "produce", topic, seconds=seconds))
    if not wrote["saturated"]:
        print(f"{system.name}: the load generator was the bottleneck", file=sys.stderr)
    amount = {"partitions": PARTITIONS, "records": wrote["records"]}
    read, read_cpu = _cpu(system, lambda: load(system, "consume", topic, **amount))
    delete_topic(system, topic)
    os.sync()  # what this round left to write must not slow the next one's disk
    return {
        "produce_mb_s": wrote["mb_per_s"],
        "consume_mb_s": read["mb_per_s"],
        "produce_cpu_s_gb": wrote_cpu,
        "consume_cpu_s_gb": read_cpu,
    }


def latency(system: System, topic: str, seconds: float) -> dict[str, float]:
    create_topics(system, [topic], PARTITIONS)
    took = load(system, "latency", topic, seconds=seconds, rate=1000)
    delete_topic(system, topic)
    return {"latency_p50_ms": took["p50_ms"], "latency_p99_ms": took["p99_ms"]}


def warm_up(system: System, seconds: float) -> None:
    """Load of both kinds until the time is over."""
    deadline = time.monotonic() + seconds
    number = 0
    while (left := deadline - time.monotonic()) > 0:
        topic = f"warm-{number}"
        throughput(system, topic, min(left, 8.0))
        latency(system, f"{topic}-slow", min(left, 2.0))
        number += 1


def rounds(book: Book, systems: Sequence[System], options: argparse.Namespace) -> None:
    """The same work for each in turn, again and again, so that a bad minute hits all of them."""
    for number in range(options.rounds):
        for system in systems:
            book.note(system, **throughput(system, f"bulk-{number}", options.seconds))
            book.note(system, **latency(system, f"slow-{number}", options.latency_seconds))
    for system in systems:
        time.sleep(SETTLE_S)
        book.note(system, memory_worked_mb=system.process.resident_bytes() / 1e6)


def start_and_rest(book: Book, make: Callable[[], System]) -> None:
    """From the start on an empty folder to the first acknowledgement, and what it holds at rest."""
    system = make()
    try:
        waiting = begin_load(system, "first_acknowledgement", "first")
        time.sleep(0.5)  # the client is there and waits for the port
        system.launch()
        book.note(system, start_s=end_load(waiting)["at"] - system.process.started_at)
    finally:
        system.kill()
    system = make()
    try:
        system.launch()
        system.wait_ready()
        time.sleep(SETTLE_S)
        book.note(system, memory_empty_mb=system.process.resident_bytes() / 1e6)
        create_topics(system, [f"topic-{number}" for number in range(10)], PARTITIONS)
        time.sleep(SETTLE_S)
        book.note(system, memory_topics_mb=system.process.resident_bytes() / 1e6)
    finally:
        system.kill()


def many_partitions(book: Book, system: System, *, each: int, idle_seconds: float) -> None:
    """Ten topics with all those partitions, a record in each, a clean stop, and a start."""
    try:
        system.launch()
        system.wait_ready()
        names = [f"many-{number}" for number in range(MANY_TOPICS)]
        created = create_topics(system, names, each)
        touched = sum(load(system, "touch", name, partitions=each)["seconds"] for name in names)
        stop_from = time.monotonic()
        system.stop()
        stopped = time.monotonic() - stop_from
        system.launch()
        system.wait_ready()
        restarted = time.monotonic() - system.process.started_at
        time.sleep(SETTLE_S)
        before = system.process.cpu_seconds()
        time.sleep(idle_seconds)
        idle = (system.process.cpu_seconds() - before) / idle_seconds
        book.note(
            system,
            many_create_s=created,
            many_touch_s=touched,
            many_stop_s=stopped,
            many_restart_s=restarted,
            many_idle_cpu=idle * 100,
            many_memory_mb=system.process.resident_bytes() / 1e6,
        )
    finally:
        system.kill()


def measure(book: Book, options: argparse.Namespace, stack: ExitStack) -> None:
    def folder() -> Path:
        path = Path(tempfile.mkdtemp(prefix="fencepost-benchmark-"))
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def fencepost() -> System:
        return Fencepost(SYNCED, "ack", folder())

    def kafka() -> System:
        return Kafka(KAFKA, folder())

    for _ in range(options.rounds):
        start_and_rest(book, fencepost)
        start_and_rest(book, kafka)
    each = 100 if options.quick else MANY_EACH
    idle_seconds = 3.0 if options.quick else 20.0
    many_partitions(book, fencepost(), each=each, idle_seconds=idle_seconds)
    many_partitions(book, kafka(), each=each, idle_seconds=idle_seconds)
    systems = [fencepost(), Fencepost(WRITTEN, "os", folder()), kafka()]
    for system in systems:
        stack.callback(system.kill)
        system.launch()
        system.wait_ready()
    for system in systems:
        warm_up(system, options.warm_up if system.name == KAFKA else min(options.warm_up, 5.0))
    rounds(book, systems, options)


def _said(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=30
    )
    return (done.stdout or done.stderr).strip()


def machine() -> dict[str, Any]:
    information = Path("/proc/cpuinfo").read_text().splitlines()
    names = [
        line.partition(":")[2].strip() for line in information if line.startswith("model name")
    ]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "cpu": names[0] if names else platform.machine(),
        "memory_gb": round(pages / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    changed = "+" if _said("git", "status", "--porcelain", "-uno") else ""
    return {
        "fencepost": _said("git", "rev-parse", "--short", "HEAD") + changed,
        "kafka": VERSION,
        "librdkafka": bench_load.version(),
        "java": _said("java", "-version").splitlines()[0],
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm-up", type=float, default=120.0, help="Kafka's, in seconds (120)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of producing a round (8)")
    parser.add_argument("--latency-seconds", type=float, default=20.0, help="a round (20)")
    parser.add_argument("--quick", action="store_true", help="does it work at all? a minute")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    options = parser.parse_args(arguments)
    if options.quick:
        options.warm_up, options.rounds = min(options.warm_up, 3.0), 1
        options.seconds, options.latency_seconds = 2.0, 2.0
    return options


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Ended from outside, it still ends its nodes and removes their folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    book = Book()
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "options": {name: value for name, value in vars(options).items() if name != "out"},
        "load_average": {"before": os.getloadavg()},
    }
    with ExitStack() as stack:
        measure(book, options, stack)
    result["load_average"]["after"] = os.getloadavg()
    result["measures"] = book.measures
    print(table(book.measures))
    if options.quick:
        print("a quick look: nothing written", file=sys.stderr)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "latest.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "latest.md").write_text(report(result))
    if options.out.resolve() == readme_numbers.REPORT.parent.resolve():
        readme_numbers.main()


if __name__ == "__main__":
    main(sys.argv[1:])
