"""What metrics cost: a scrape of thousands of partitions, and counting beside produced batches.

    .venv/bin/python tests/benchmarks/bench_metrics.py scrape [--partitions 2000] [--transactions 200] [--topics all]
    .venv/bin/python tests/benchmarks/bench_metrics.py requests [--rounds 300]
    .venv/bin/python tests/benchmarks/bench_metrics.py throughput [--turns 5] [--seconds 4]

`scrape` fills a node in this process and scrapes it. It prints how long a scrape took, by the clock and by the CPU of the
loop's thread; the CPU of its longest step, between two of which the loop goes to others; and the longest that another
task of the loop had to wait, for whatever reason. On a machine that others use the CPU's are the ones to believe. The
targets: under 100 ms a scrape, never over 10 ms at a time.

`requests` takes produce requests through a node in this process, from the frame to the bytes of the answer, in blocks with
and without all that counts, in turns, and compares the CPU: what one request costs more, be it large or small.

`throughput` is the target's: two nodes as processes of their own, one without all that counts. To each in turn librdkafka
with its defaults and acks=all writes as much as it takes; then one connection sends requests of one record of 1 KiB, the
dearest for whoever counts requests. The target: under 2 % less. What disks and the page cache do varies by more than that
from turn to turn; the CPU that a node takes for a small request does not.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import uvloop

sys.path.append(str(Path(__file__).parents[2] / "deploy/benchmarks"))
from bench_memory import PageCache
from fencepost.chaos.harness.processes import cpu_seconds_of
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.metrics import Histogram
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.controller.commands import CreateTopics, NewTopic
from fencepost.cluster.wire.api import ApiKey, encode_request, encode_response
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.cluster.wire.render import render, render_request
from fencepost.node.broker import Broker
from fencepost.node.cli.children import free_port
from fencepost.node.config import NodeConfig
from fencepost.node.main import main as fencepost
from fencepost.node.metrics import scrape as scrapes
from fencepost.node.metrics.gathering import Gathering
from fencepost.node.server.dispatch import Call, Origin
from fencepost.replication.metrics import TopicCounters
from fencepost.replication.partition import Appended, Partition

TOPIC_PARTITIONS = 100
BLOCK = 100  # requests
SMALL, IN_FLIGHT = 20_000, 5  # requests of one record


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
            # The checkpoint of all that was just written is no scrape's.
            while broker.replicas.store.shared.unsettled:
                await asyncio.sleep(0.05)
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


class Counting:
    """The way of a batch with and without what counts on it."""

    def __init__(self) -> None:
        self._with = {
            (owner, name): getattr(owner, name)
            for owner, name in (
                (Call, "_count"),
                (Call, "_encode"),
                (TopicCounters, "appended"),
                (Histogram, "observe"),
            )
        }
        self._without = {
            (Call, "_count"): _count,
            (Call, "_encode"): _encode,
            (TopicCounters, "appended"): lambda _self, _size, _records: None,
            (Histogram, "observe"): lambda _self, _value: None,
        }

    def switch(self, *, on: bool) -> None:
        for (owner, name), method in (self._with if on else self._without).items():
            setattr(owner, name, method)


def _count(call: Call, started: float, fields: dict[str, Any] | None) -> None:
    """Who follows slow requests asks for the time, too."""
    dispatcher = call.dispatcher
    took_s = dispatcher.clock.steady() - started
    if dispatcher.tracing is not None and took_s >= dispatcher.tracing.tell_from_s:
        dispatcher.tracing.answered(call, started, took_s, fields)


def _encode(call: Call, fields: dict[str, Any]) -> list[Any]:
    request = call.request
    body = render(call.api.key, request.api_version, fields)
    return encode_response(call.api.key, request.api_version, request.correlation_id, body)


def frame_of(topic: UUID | str, records: int, *, version: int = 13) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(n, now_ms, None, b"x" * 1000, ()) for n in range(records)])
    part = {"index": 0, "records": bytes(batch)}
    fields = {
        "acks": 1,
        "timeout": 10_000,
        "topic_data": [
            {"name" if isinstance(topic, str) else "topic_id": topic, "partition_data": [part]}
        ],
    }
    body = render_request(ApiKey.produce, version, fields)
    return b"".join(encode_request(ApiKey.produce, version, 1, "bench", body))[4:]


async def requests(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = [
            "listeners=PLAINTEXT://127.0.0.1:0",
            f"log.dirs={folder}",
            "log.flush.policy=os",
        ]
        config = NodeConfig.load(flags=flags, environment={}, file=None)
        async with open_env() as env:
            broker = Broker(env, config)
            await broker.start()
            topic = NewTopic(name="t", num_partitions=1, replication_factor=1)
            await broker.controller.execute(CreateTopics(topics=(topic,)))
            for records in (1, 16, 256):
                frame = frame_of(broker.image.topics["t"].topic_id, records)
                await compare(broker, frame, arguments.rounds, records)
            await broker.stop()


async def compare(broker: Broker, frame: bytes, rounds: int, records: int) -> None:
    counting = Counting()
    took: dict[bool, list[float]] = {True: [], False: []}
    gc.collect()
    gc.freeze()
    gc.disable()  # it comes to whoever's turn it is
    for number in range(rounds):
        for on in (number % 2 == 0, number % 2 == 1):
            counting.switch(on=on)
            took[on].append(send(broker, frame))
            await asyncio.sleep(0.002)
    counting.switch(on=True)
    gc.enable()
    more = statistics.median(a - b for a, b in zip(took[True], took[False], strict=True))
    usual = statistics.median(took[False])
    print(f"a request of {records} KiB takes {usual / BLOCK * 1e6:.1f} us of CPU without counting, and "
          f"{more / BLOCK * 1e6:+.2f} us with: {more / usual:+.2%}")  # fmt: skip


def send(broker: Broker, frame: bytes) -> float:
    """CPU seconds of a block of requests, from the frame to the bytes of the answer."""
    answers: list[Any] = []
    origin = Origin("127.0.0.1", 1, "PLAINTEXT")
    began = time.thread_time()
    for _ in range(BLOCK):
        broker.dispatcher.open(memoryview(bytearray(frame)), origin).begin(answers.append)
    took = time.thread_time() - began
    assert len(answers) == BLOCK and all(isinstance(each, list) for each in answers)
    return took


# -- what a whole node takes ---------------------------------------------------------------------------


def node(arguments: argparse.Namespace) -> None:
    """A node of its own, for `throughput`."""
    Counting().switch(on=arguments.counts == "yes")
    settings = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{arguments.port}",
        "log.dirs": arguments.folder,
        "log.flush.policy": "os",
        "num.partitions": "6",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    sys.exit(fencepost(["serve", *words]))


async def throughput(arguments: argparse.Namespace) -> None:
    measures = ("MB/s", "CPU seconds of the node a GB", "CPU us of the node a small request")
    took: dict[str, dict[str, list[float]]] = {name: {"yes": [], "no": []} for name in measures}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as started:
        memory = started.enter_context(contextlib.closing(PageCache()))
        nodes: dict[str, tuple[int, int]] = {}
        for counts in ("yes", "no"):
            nodes[counts] = _started(started, counts, f"{folder}/{counts}", nodes)
        for turn in range(arguments.turns + 1):  # the first one warms them up
            for counts in ("yes", "no") if turn % 2 else ("no", "yes"):
                memory.fill()
                values = (
                    *_produced(*nodes[counts], f"t{turn}", arguments.seconds),
                    _small(*nodes[counts]),
                )
                for name, value in zip(measures, values, strict=True):
                    took[name][counts] += [value] if turn else []
    for name, values in took.items():
        without, counted = statistics.median(values["no"]), statistics.median(values["yes"])
        print(f"{name} without counting {without:.4g} {_rounded(values['no'])}, with it {counted:.4g}"
              f" {_rounded(values['yes'])}: {counted / without - 1:+.1%}")  # fmt: skip


def _started(
    stack: contextlib.ExitStack, counts: str, folder: str, others: dict[str, tuple[int, int]]
) -> tuple[int, int]:
    """Its port and its process id."""
    port = free_port(each[0] for each in others.values())
    command = [sys.executable, __file__, "node", "--counts", counts, "--port", str(port)]
    process = subprocess.Popen([*command, "--folder", folder], stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready"), "the node did not start"
    return port, process.pid


def _produced(port: int, pid: int, topic: str, seconds: float) -> tuple[float, float]:
    """MB/s, and the node's CPU seconds a GB."""
    load = Path(__file__).parents[2] / "deploy/benchmarks/bench_load.py"
    command = [sys.executable, str(load), "produce", "--bootstrap", f"127.0.0.1:{port}"]
    words = [*command, "--topic", topic, "--seconds", str(seconds)]
    os.sync()  # what the turn before left to be written is not this one's to wait for
    before_s = cpu_seconds_of(pid)
    done: dict[str, float] = json.loads(subprocess.check_output(words, text=True))
    used_s = cpu_seconds_of(pid) - before_s
    return done["mb_per_s"], used_s / (done["records"] * 1024 / 1e9)


def _small(port: int, pid: int) -> float:
    """The node's CPU, in us, of a request of one record, some of them always on their way."""
    frame = frame_of("t0", 1, version=9)
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answers:
        before_s = cpu_seconds_of(pid)
        for number in range(SMALL + IN_FLIGHT):
            if number < SMALL:
                client.sendall(len(frame).to_bytes(4, "big") + frame)
            if number >= IN_FLIGHT:
                answers.read(int.from_bytes(answers.read(4), "big"))
        return (cpu_seconds_of(pid) - before_s) / SMALL * 1e6


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{each:.3g}") for each in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(required=True)
    for run, options in (
        (scrape, {"partitions": 2_000, "transactions": 200, "topics": "none", "scrapes": 50}),
        (requests, {"rounds": 300}),
        (throughput, {"turns": 5, "seconds": 4.0}),
        (node, {"counts": "yes", "port": 0, "folder": ""}),
    ):
        action = actions.add_parser(run.__name__)
        for option, value in options.items():
            action.add_argument(f"--{option}", default=value, type=type(value))
        action.set_defaults(run=run)
    arguments = parser.parse_args()
    if arguments.run is node:
        node(arguments)
    else:
        uvloop.run(arguments.run(arguments))


if __name__ == "__main__":
    main()
