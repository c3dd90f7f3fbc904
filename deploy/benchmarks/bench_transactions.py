"""Transactions: small ones of one producer and of many, a stream in them, readers of both levels, and a coordinator's death."""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_load import LoadFailed
from bench_rounds import PARTITIONS
from bench_run import Book, say
from bench_systems import (
    System,
    addresses,
    begin_load,
    create_topics,
    delete_topic,
    end_load,
    load,
    wait_in_sync,
)
from bench_table import KAFKA
from fencepost.chaos.harness import asking

PROGRAM = Path(__file__).with_name("bench_txn_load.py")
MANY = 50
ANY_PARTITION = -1
KILL_AFTER_S = 4.0
DEATH_S = 12.0
DEATH_KAFKA_S = 25.0  # longer than it takes its nodes to notice


def transactions(book: Book, systems: Sequence[System], options: argparse.Namespace) -> None:
    for number in range(options.rounds):
        for system in systems:
            book.note(system.name, **small(system, f"small-{number}", options.latency_seconds / 2))
            book.note(system.name, **many(system, f"many-{number}", options.latency_seconds / 2))
            book.note(system.name, **streams(system, f"stream-{number}", options.seconds))
    for number in range(options.rounds):
        for system in systems:
            took = coordinators_death(system, f"death-{number}")
            book.note(system.name, txn_coordinator_s=took)


def _small(system: System, topic: str, seconds: float, producers: int) -> dict[str, Any]:
    create_topics(system, [topic], PARTITIONS)
    wait_in_sync(system, topic)
    flags = {"seconds": seconds, "producers": producers, "partition": ANY_PARTITION, "name": topic}
    took = load(system, "transactions", topic, program=PROGRAM, **flags)
    delete_topic(system, topic)
    if took["aborted"]:
        say(f"{system.name}: {took['aborted']} transactions of {topic} were aborted")
    return took


def small(system: System, topic: str, seconds: float) -> dict[str, float]:
    took = _small(system, topic, seconds, 1)
    return {"txn_s": took["per_s"], "txn_p50_ms": took["p50_ms"], "txn_p99_ms": took["p99_ms"]}


def many(system: System, topic: str, seconds: float) -> dict[str, float]:
    took = _small(system, topic, seconds, MANY)
    return {
        "txn_many_s": took["per_s"],
        "txn_many_p50_ms": took["p50_ms"],
        "txn_many_p99_ms": took["p99_ms"],
    }


def streams(system: System, topic: str, seconds: float) -> dict[str, float]:
    """The same stream with and without transactions; what the first has written, read at both levels."""
    names = [topic, f"{topic}-plain"]
    create_topics(system, names, PARTITIONS)
    rates = []
    records = 0
    for name, transactional in zip(names, (1, 0), strict=True):
        wait_in_sync(system, name)
        flags = {"seconds": seconds, "transactional": transactional, "name": name}
        wrote = load(system, "stream", name, program=PROGRAM, **flags)
        records = records or wrote["records"]
        rates.append(wrote["mb_per_s"])
    read = {}
    for level in ("read_uncommitted", "read_committed"):
        amount = {"partitions": PARTITIONS, "records": records}
        read[level] = load(system, "consume", topic, isolation=level, **amount)["mb_per_s"]
    for name in names:
        delete_topic(system, name)
    os.sync()
    return {
        "txn_produce_mb_s": rates[0],
        "txn_produce_share": rates[0] / rates[1],
        "txn_consume_mb_s": read["read_committed"],
        "txn_consume_share": read["read_committed"] / read["read_uncommitted"],
    }


def coordinators_death(system: System, topic: str) -> float:
    """The longest transaction of one producer whose coordinator is killed; it leads none of its partitions."""
    create_topics(system, [topic], PARTITIONS)
    wait_in_sync(system, topic)
    coordinator = asking.coordinator_of(addresses(system), f"{topic}-0")
    others = [
        each for each in asking.partitions(addresses(system), topic) if each.leader != coordinator
    ]
    if coordinator not in system.nodes or not others:
        raise LoadFailed(f"{topic}: coordinated by {coordinator}, which leads everything")
    seconds = DEATH_KAFKA_S if system.name == KAFKA else DEATH_S
    flags = {"seconds": seconds, "producers": 1, "partition": others[0].partition, "name": topic}
    working = begin_load(system, "transactions", topic, program=PROGRAM, **flags)
    time.sleep(KILL_AFTER_S)
    system.kill_node(coordinator)
    try:
        longest = float(end_load(working)["longest_s"])
    finally:
        system.start_node(coordinator)
    wait_in_sync(system, topic)
    delete_topic(system, topic)
    return longest
