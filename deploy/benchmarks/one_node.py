"""Fencepost beside a one-node Kafka, in one run on one machine: how fast, how small.

    python deploy/benchmarks/one_node.py [--warm-up 120] [--rounds 3] [--quick]

Prints a Markdown table; writes it with everything behind it to results/one_node.{md,json,svg}.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench_rounds import PARTITIONS, SETTLE_S, rounds, warm_up
from bench_rows import ONE_NODE
from bench_run import Book, benchmark, folders, options_of
from bench_systems import (
    Fencepost,
    Kafka,
    System,
    begin_load,
    cpu_seconds,
    create_topics,
    end_load,
    load,
    resident_mb,
)
from bench_table import KAFKA, SYNCED, WRITTEN

MANY_TOPICS, MANY_EACH = 10, 1_000


def start_and_rest(book: Book, make: Callable[[], System]) -> None:
    """From the start on an empty folder to the first acknowledgement, and what it holds at rest."""
    system = make()
    try:
        waiting = begin_load(system, "first_acknowledgement", "first")
        time.sleep(0.5)  # the client is there and waits for the port
        system.launch()
        book.note(system.name, start_s=end_load(waiting)["at"] - system.started_at)
    finally:
        system.kill()
    system = make()
    try:
        system.launch()
        system.wait_ready()
        time.sleep(SETTLE_S)
        book.note(system.name, memory_empty_mb=resident_mb(system))
        create_topics(system, [f"topic-{number}" for number in range(10)], PARTITIONS)
        time.sleep(SETTLE_S)
        book.note(system.name, memory_topics_mb=resident_mb(system))
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
        restarted = time.monotonic() - system.started_at
        time.sleep(SETTLE_S)
        before = cpu_seconds(system)
        time.sleep(idle_seconds)
        idle = (cpu_seconds(system) - before) / idle_seconds
        book.note(
            system.name,
            many_create_s=created,
            many_touch_s=touched,
            many_stop_s=stopped,
            many_restart_s=restarted,
            many_idle_cpu=idle * 100,
            many_memory_mb=resident_mb(system),
        )
    finally:
        system.kill()


def measure(book: Book, options: argparse.Namespace, stack: ExitStack) -> None:
    folder = folders(stack)

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    benchmark("one_node", ONE_NODE, measure, options_of(parser, sys.argv[1:]))
