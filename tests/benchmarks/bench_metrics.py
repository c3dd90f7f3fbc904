"""What metrics cost: a scrape of thousands of partitions, and counting beside produced batches.

    .venv/bin/python tests/benchmarks/bench_metrics.py scrape [--partitions 2000] [--transactions 200] [--topics all]
    .venv/bin/python tests/benchmarks/bench_metrics.py produce [--rounds 5] [--seconds 4]

`scrape` fills a node in this process and scrapes it. It prints how long a scrape took, by the clock and by the CPU of the
loop's thread; the CPU of its longest step, between two of which the loop goes to others; and the longest that another
task of the loop had to wait, for whatever reason. On a machine that others use the CPU's are the ones to believe. The
targets: under 100 ms a scrape, never over 10 ms at a time.

`produce` runs a node with and without counting, in turns, under a producer that sends as fast as it can, and compares
the CPU that the node took for a GB; the one that counts is scraped every two seconds. The target: under 2 % more.
"""

import argparse
import asyncio
import gc
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import uvloop
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.controller.commands import CreateTopics, NewTopic
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig
from fencepost.node.metrics import scrape as scrapes
from fencepost.node.metrics.gathering import Gathering
from fencepost.replication.partition import Appended, Partition

TOPIC_PARTITIONS = 100
LOAD = pathlib.Path(__file__).resolve().parents[2] / "deploy/benchmarks/bench_load.py"
SCRAPE_S = 2.0
TICKS = os.sysconf("SC_CLK_TCK")


# -- a scrape ------------------------------------------------------------------------------------------


class Stalls:
    """The longest that the loop was away from this task."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    async def watch(self) -> None:
        while True:
            wall, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(0)
            self.wall_s = max(self.wall_s, time.monotonic() - wall)
            self.cpu_s = max(self.cpu_s, time.thread_time() - cpu)


class Steps(Gathering):
    """Of scrapes: the CPU that each took of the loop's thread without letting go."""

    cpu_s: ClassVar[list[float]] = []

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.since = time.thread_time()

    async def wait(self, what: Awaitable[Any]) -> Any:
        self.end()
        found = await super().wait(what)
        self.since = time.thread_time()
        return found

    def end(self) -> None:
        super().end()
        self.cpu_s.append(time.thread_time() - self.since)


async def fill(broker: Broker, partitions: int, transactions: int) -> None:
    names = [f"t{number}" for number in range(partitions // TOPIC_PARTITIONS)]
    for name in names:
        topic = NewTopic(name=name, num_partitions=TOPIC_PARTITIONS, replication_factor=1)
        await broker.controller.execute(CreateTopics(topics=(topic,)))
    places = [TopicPartition(name, index) for name in names for index in range(TOPIC_PARTITIONS)]
    ends = []
    for number, place in enumerate(places):
        partition = broker.replicas.partition(place)
        assert isinstance(partition, Partition)
        is_open = number < transactions
        now_ms = broker.env.clock.now_ms()
        data = build_batch(
            [Record(0, now_ms, None, b"x" * 100, ())],
            producer_id=1000 + number if is_open else -1,
            producer_epoch=0 if is_open else -1,
            base_sequence=0 if is_open else -1,
            transactional=is_open,
        )
        done = partition.append_as_leader(
            data, required_acks=-1, now_ms=now_ms, origin_client=False
        )
        assert isinstance(done, Appended), done
        ends.append((partition, done.last_offset))
    for partition, offset in ends:
        await partition.committed(offset)


async def scrape(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = [
            "listeners=PLAINTEXT://127.0.0.1:0",
            f"log.dirs={folder}",
            f"metrics.topics={arguments.topics}",
            "transaction.partition.verification.enable=false",
        ]
        config = NodeConfig.load(flags=flags, environment={}, file=None)
        async with open_env() as env:
            broker = Broker(env, config)
            scrapes.Gathering = Steps
            await broker.start()
            await fill(broker, arguments.partitions, arguments.transactions)
            gc.collect()
            gc.freeze()  # as a node does once it serves (node/process.py)
            stalls = Stalls()
            await measured(broker, 3)  # Python's caches, and when transactions began
            watching = asyncio.create_task(stalls.watch())
            await asyncio.sleep(0.2)
            idle = stalls.wall_s, stalls.cpu_s
            stalls.wall_s = stalls.cpu_s = 0.0
            Steps.cpu_s.clear()
            took = await measured(broker, arguments.scrapes)
            watching.cancel()
            size = len(await broker.metrics.scrape.text())
            await broker.stop()
    wall, cpu = [each[0] for each in took], [each[1] for each in took]
    print(
        f"{arguments.partitions} partitions, {size} bytes of text, {arguments.scrapes} scrapes, in ms"
    )
    print(f"  a scrape   clock {_of(wall)}   CPU of the loop's thread {_of(cpu)}")
    print(f"  a step     CPU {_of(Steps.cpu_s)}")
    print(f"  a stall    clock {stalls.wall_s * 1000:.1f}   CPU {stalls.cpu_s * 1000:.1f}"
          f"   (without a scrape {idle[0] * 1000:.1f}, {idle[1] * 1000:.1f})")  # fmt: skip


def _of(values: list[float]) -> str:
    return f"median {statistics.median(values) * 1000:.1f}, most {max(values) * 1000:.1f}"


async def measured(broker: Broker, count: int) -> list[tuple[float, float]]:
    took = []
    for _ in range(count):
        wall, cpu = time.monotonic(), time.thread_time()
        await broker.metrics.scrape.text()
        took.append((time.monotonic() - wall, time.thread_time() - cpu))
        await asyncio.sleep(0.02)
    return took


# -- counting beside produced batches ------------------------------------------------------------------


def count_nothing() -> None:
    """A node as if nobody had ever thought of metrics, as far as the way of a batch goes."""
    from fencepost.cluster.base.metrics import Histogram
    from fencepost.cluster.wire.api import encode_response
    from fencepost.cluster.wire.render import render
    from fencepost.node.server.dispatch import Call
    from fencepost.replication.metrics import TopicCounters

    def encode(self, fields):
        body = render(self.api.key, self.request.api_version, fields)
        version, number = self.request.api_version, self.request.correlation_id
        return encode_response(self.api.key, version, number, body)

    Call._count = lambda _self, _started, _fields: None
    Call._encode = encode
    TopicCounters.appended = lambda _self, _size, _records: None
    Histogram.observe = lambda _self, _value: None


def serve(folder: str, *, counts: bool) -> int:
    if not counts:
        count_nothing()
    from fencepost.node.main import main

    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:19391",
        "admin.listener": "127.0.0.1:19392",
        "log.dirs": folder,
        "flush.policy": "os",
    }
    return main(["serve", *(f"--set={name}={value}" for name, value in settings.items())])


def ticks_of(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def scraping(until: threading.Event) -> None:
    while not until.wait(SCRAPE_S):
        urllib.request.urlopen("http://127.0.0.1:19392/metrics", timeout=10).read()


def one_round(*, counts: bool, seconds: float) -> float:
    """CPU seconds of the node for a GB."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, __file__, "serve", "--folder", folder, "--counts", str(int(counts))]
        node = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert node.stdout is not None
        over = threading.Event()
        try:
            assert node.stdout.readline().startswith("ready")
            load(1.0)  # the topic, and Python's caches
            scraper = threading.Thread(target=scraping, args=(over,))
            if counts:
                scraper.start()
            before = ticks_of(node.pid)
            wrote = load(seconds)
            used = ticks_of(node.pid) - before
        finally:
            over.set()
            node.send_signal(signal.SIGTERM)
            node.wait(20)
            if counts and scraper.is_alive():
                scraper.join()
    return used / TICKS / (wrote * 1024 / 1e9)


def load(seconds: float) -> int:
    """Records of 1 KiB that were produced."""
    target = ["--bootstrap", "127.0.0.1:19391", "--topic", "load"]
    run = [sys.executable, str(LOAD), "produce", *target, "--seconds", str(seconds)]
    said = subprocess.run(run, check=True, capture_output=True, timeout=120)
    return int(json.loads(said.stdout)["records"])


def produce(arguments: argparse.Namespace) -> None:
    used: dict[bool, list[float]] = {True: [], False: []}
    for number in range(arguments.rounds):
        for counts in (number % 2 == 0, number % 2 == 1):  # whoever is second has a warmer disk
            used[counts].append(one_round(counts=counts, seconds=arguments.seconds))
            word = "counting" if counts else "without "
            print(f"  {word} {used[counts][-1]:.3f} CPU seconds a GB", flush=True)
    middle = {counts: statistics.median(values) for counts, values in used.items()}
    least = {counts: min(values) for counts, values in used.items()}
    print(f"metrics cost {middle[True] / middle[False] - 1:+.2%} (medians), "
          f"{least[True] / least[False] - 1:+.2%} (the best rounds of each)")  # fmt: skip


def commands() -> Iterator[tuple[str, Callable[[argparse.Namespace], object], dict[str, object]]]:
    yield (
        "scrape",
        lambda each: uvloop.run(scrape(each)),
        {"partitions": 2_000, "transactions": 200, "topics": "none", "scrapes": 50},
    )
    yield "produce", produce, {"rounds": 5, "seconds": 4.0}
    yield (
        "serve",
        lambda each: sys.exit(serve(each.folder, counts=bool(each.counts))),
        {"folder": "", "counts": 1},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(required=True)
    for name, run, options in commands():
        action = actions.add_parser(name)
        for option, value in options.items():
            action.add_argument(f"--{option}", default=value, type=type(value))
        action.set_defaults(run=run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
