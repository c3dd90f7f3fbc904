"""The work that is the same for every system: as much as it takes, and a steady trickle; in turn, again and again."""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import bench_load
from bench_memory import PageCache
from bench_run import Book, say
from bench_systems import System, cpu_seconds, create_topics, delete_topic, load, resident_mb

PARTITIONS = 6
SETTLE_S = 5.0


def _cpu(system: System, work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """The answer, and what its nodes spent on it in CPU seconds a gigabyte."""
    before = cpu_seconds(system)
    answer = work()
    spent = cpu_seconds(system) - before
    return answer, spent / (answer["records"] * bench_load.RECORD_SIZE / 1e9)


def throughput(system: System, topic: str, seconds: float) -> dict[str, float]:
    """Produce for some seconds, then read all of it back; the topic is gone afterwards."""
    create_topics(system, [topic], PARTITIONS)
    wrote, wrote_cpu = _cpu(system, lambda: load(system, "produce", topic, seconds=seconds))
    if not wrote["saturated"]:
        say(f"{system.name}: the load generator was the bottleneck")
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
    with closing(PageCache()) as memory:
        for number in range(options.rounds):
            for system in systems:
                memory.fill()
                book.note(system.name, **throughput(system, f"bulk-{number}", options.seconds))
                book.note(system.name, **latency(system, f"slow-{number}", options.latency_seconds))
    for system in systems:
        time.sleep(SETTLE_S)
        book.note(system.name, memory_worked_mb=resident_mb(system))
