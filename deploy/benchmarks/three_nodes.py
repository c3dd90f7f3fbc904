"""Three Fencepost nodes beside three Kafka nodes, in one run on one machine: how fast, and how long without an answer.

    python deploy/benchmarks/three_nodes.py [--warm-up 120] [--rounds 3] [--quick] [--only start,idle]

Factor 3, min.insync.replicas 2. Prints a Markdown table; writes it with everything behind it to
results/three_nodes.{md,json,svg}.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench_commands import commands_per_second
from bench_load import LoadFailed
from bench_rounds import PARTITIONS, SETTLE_S, rounds, warm_up
from bench_rows import THREE_NODES
from bench_run import Book, benchmark, folders, options_of, say
from bench_systems import (
    FencepostCluster,
    Kafka,
    System,
    addresses,
    begin_load,
    cpu_seconds,
    create_topics,
    delete_topic,
    end_load,
    resident_mb,
    wait_in_sync,
)
from bench_table import KAFKA, SYNCED, WRITTEN
from bench_transactions import transactions
from fencepost.chaos.harness import asking
from fencepost.chaos.harness.local_cluster import wait_for

NODES = 3
PARTS = ("start", "idle", "failover", "rounds", "gaps", "commands", "transactions")
RATE = 1_000
GAP_S = {KAFKA: 25.0}  # how long the load goes on: longer than the longest gap
GAP_OURS_S = 10.0
KILL_AFTER_S = 4.0
IDLE_TOPICS, FAILOVER_TOPICS, EACH = 3, 10, 1_000
COMMANDS_S = 5.0
FAILOVER_LIMIT_S = 120.0

Make = Callable[[], System]


def start(book: Book, make: Make) -> None:
    """From the first process to three nodes that know each other and serve."""
    system = make()
    try:
        system.launch()
        system.wait_ready()
        wait_for("three brokers", lambda: _all_there(system), 120.0)
        book.note(system.name, start_s=time.monotonic() - system.started_at)
    finally:
        system.kill()


def _all_there(system: System) -> bool:
    return asking.brokers(addresses(system)) == list(system.nodes)


def idle(book: Book, make: Make, *, each: int, seconds: float) -> None:
    """What partitions cost that nobody writes to, on the node that pays most."""
    system = make()
    try:
        system.launch()
        system.wait_ready()
        names = [f"idle-{number}" for number in range(IDLE_TOPICS)]
        create_topics(system, names, each)
        for name in names:
            wait_in_sync(system, name)
        time.sleep(SETTLE_S * 2)
        before = {node: cpu_seconds(system, node) for node in system.nodes}
        time.sleep(seconds)
        spent = max(cpu_seconds(system, node) - before[node] for node in system.nodes)
        book.note(system.name, idle_cpu=spent / seconds * 100, idle_memory_mb=resident_mb(system))
    finally:
        system.kill()


def failover(book: Book, make: Make, *, each: int) -> None:
    """The quorum's leader is killed: until every partition that it led has another leader."""
    system = make()
    try:
        system.launch()
        system.wait_ready()
        names = [f"many-{number}" for number in range(FAILOVER_TOPICS)]
        create_topics(system, names, each)
        for name in names:
            wait_in_sync(system, name, 300.0)
        time.sleep(SETTLE_S)
        dead = _controller(system)
        system.kill_node(dead)
        killed = time.monotonic()
        left = addresses(system, without=dead)

        def led(name: str) -> bool:
            return all(each.leader not in (-1, dead) for each in asking.partitions(left, name))

        for name in names:
            wait_for(f"leaders of {name}", lambda name=name: led(name), FAILOVER_LIMIT_S)
        book.note(system.name, failover_s=time.monotonic() - killed)
    finally:
        system.kill()


def _controller(system: System) -> int:
    found: list[int] = []

    def known() -> bool:
        found.append(asking.quorum_leader(addresses(system)))
        return found[-1] in system.nodes

    wait_for("a controller", known, 60.0)
    return found[-1]


def longest_gap(system: System, topic: str, *, leads_quorum: bool) -> float:
    """In the acknowledgements of one partition whose leader is killed under a steady load."""
    create_topics(system, [topic], PARTITIONS)
    wait_in_sync(system, topic)
    controller = _controller(system)
    chosen = [
        each
        for each in asking.partitions(addresses(system), topic)
        if (each.leader == controller) == leads_quorum
    ]
    if not chosen:
        raise LoadFailed(f"no partition of {topic} is led as it should be (quorum: {controller})")
    target = chosen[0]
    seconds = GAP_S.get(system.name, GAP_OURS_S)
    load = {"partition": target.partition, "seconds": seconds, "rate": RATE}
    waiting = begin_load(system, "gap", topic, **load)
    time.sleep(KILL_AFTER_S)
    system.kill_node(target.leader)
    try:
        longest = float(end_load(waiting)["longest_s"])
    finally:
        system.start_node(target.leader)
    wait_in_sync(system, topic)
    delete_topic(system, topic)
    return longest


def gaps(book: Book, systems: Sequence[System], times: int) -> None:
    for number in range(times):
        for system in systems:
            one = longest_gap(system, f"gap-{number}", leads_quorum=False)
            book.note(system.name, gap_leader_s=one)
            both = longest_gap(system, f"gap-both-{number}", leads_quorum=True)
            book.note(system.name, gap_both_s=both)


def commands(book: Book, systems: Sequence[System], times: int, seconds: float) -> None:
    for number in range(times):
        for system in systems:
            rate = commands_per_second(system, f"commands-{number}", seconds)
            book.note(system.name, commands_s=rate)


def measure(book: Book, options: argparse.Namespace, stack: ExitStack) -> None:
    folder = folders(stack)
    parts = options.only.split(",") if options.only else PARTS

    def fencepost() -> System:
        return FencepostCluster(SYNCED, "ack", folder(), NODES)

    def kafka() -> System:
        return Kafka(KAFKA, folder(), NODES)

    makes = (fencepost,) if options.without_kafka else (fencepost, kafka)
    each = 100 if options.quick else EACH
    if "start" in parts:
        for _ in range(options.rounds):
            for make in makes:
                start(book, make)
    for make in makes:
        if "idle" in parts:
            idle(book, make, each=each, seconds=3.0 if options.quick else 30.0)
        if "failover" in parts:
            failover(book, make, each=each)
    if not {"rounds", "gaps", "commands", "transactions"} & set(parts):
        return
    systems = [fencepost(), FencepostCluster(WRITTEN, "os", folder(), NODES)]
    if not options.without_kafka:
        systems.append(kafka())
    for system in systems:
        stack.callback(system.kill)
        system.launch()
        system.wait_ready()
    for system in systems:
        say(f"{system.name} warms up")
        warm_up(system, options.warm_up if system.name == KAFKA else min(options.warm_up, 5.0))
    if "rounds" in parts:
        rounds(book, systems, options)
    if "commands" in parts:
        commands(book, systems, options.rounds, 2.0 if options.quick else COMMANDS_S)
    if "transactions" in parts:
        transactions(book, systems, options)
    if "gaps" in parts:
        gaps(book, systems, options.rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"some parts: {','.join(PARTS)}; writes nothing")
    parser.add_argument("--without-kafka", action="store_true", help="writes nothing")
    chosen = options_of(parser, sys.argv[1:])
    benchmark(
        "three_nodes", THREE_NODES, measure, chosen, write=not (chosen.only or chosen.without_kafka)
    )
