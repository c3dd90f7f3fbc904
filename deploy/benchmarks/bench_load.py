"""The load generator: drives librdkafka's C interface, so that Python never touches a record.

INVARIANT  Python does work for a batch of records, never for one, except where a latency is measured.
PREVENTS   a benchmark of the interpreter that produces (about 100 MB/s) instead of the node.
PROVED BY  tests/benchmarks/test_bench.py::test_a_second_of_load_reaches_a_node_and_comes_back_whole

Each command runs in its own process and prints one line of JSON:

    python deploy/benchmarks/bench_load.py produce --bootstrap 127.0.0.1:9092 --topic t --seconds 10
"""

import argparse
import ctypes
import ctypes.util
import importlib.util
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from fencepost.chaos.harness.processes import answers

RECORD_SIZE = 1024
BATCH = 2_000
QUEUE_LIMIT = 100_000  # librdkafka's queue.buffering.max.messages
CONFIG_OK = 0
PRODUCER, CONSUMER = 0, 1
ANY_PARTITION = -1
FROM_BEGINNING = -2
PARTITION_EOF = -191
STALLED_S = 60.0
DEFAULTS = {"isolation": "read_committed"}  # of options; librdkafka's
# A consumer whose queue is full asks again after so many ms. With librdkafka's 1,000 it stands still for most of them: then the
# faster the nodes fill the queue, the lower the rate.
EAGER = {"fetch.queue.backoff.ms": "10"}
DURABLE = {"acks": "all", "enable.idempotence": "true"}


class Message(ctypes.Structure):
    """rd_kafka_message_t, from rdkafka.h."""

    _fields_: ClassVar = [
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", ctypes.c_void_p),
    ]


MessagePointer = ctypes.POINTER(Message)
DeliveredFromC = ctypes.CFUNCTYPE(None, ctypes.c_void_p, MessagePointer, ctypes.c_void_p)

POINTER, INT, TEXT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_version_str": (TEXT, []),
    "rd_kafka_err2str": (TEXT, [INT]),
    "rd_kafka_conf_new": (POINTER, []),
    "rd_kafka_conf_set": (INT, [POINTER, TEXT, TEXT, TEXT, SIZE]),
    "rd_kafka_conf_set_dr_msg_cb": (None, [POINTER, DeliveredFromC]),
    "rd_kafka_new": (POINTER, [INT, POINTER, TEXT, SIZE]),
    "rd_kafka_topic_new": (POINTER, [POINTER, TEXT, POINTER]),
    "rd_kafka_poll": (INT, [POINTER, INT]),
    "rd_kafka_outq_len": (INT, [POINTER]),
    "rd_kafka_produce": (
        INT,
        [POINTER, ctypes.c_int32, INT, POINTER, SIZE, POINTER, SIZE, POINTER],
    ),
    "rd_kafka_produce_batch": (INT, [POINTER, ctypes.c_int32, INT, POINTER, INT]),
    "rd_kafka_message_latency": (ctypes.c_int64, [MessagePointer]),
    "rd_kafka_queue_new": (POINTER, [POINTER]),
    "rd_kafka_consume_start_queue": (
        INT,
        [POINTER, ctypes.c_int32, ctypes.c_int64, POINTER],
    ),
    "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, [POINTER, INT, POINTER, SIZE]),
}


class LoadFailed(Exception):
    """The node refused a record, or stopped to answer."""


def library_file() -> str:
    """The shared library that confluent-kafka's wheel carries, or the system's own."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parents[1] / "confluent_kafka.libs"
        for file in sorted(folder.glob("librdkafka*.so*")):
            return str(file)
    file_of_system = ctypes.util.find_library("rdkafka")
    if file_of_system is None:
        raise LoadFailed(
            "no librdkafka: install confluent-kafka's wheel, or the system's librdkafka"
        )
    return file_of_system


def load_library() -> ctypes.CDLL:
    library = ctypes.CDLL(library_file())
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


C = load_library()
# Frees one consumed record. It never blocks, so the interpreter's lock need not be released for it.
free_message = ctypes.PyDLL(C._name).rd_kafka_message_destroy
free_message.restype, free_message.argtypes = None, [POINTER]
# A delivery callback that does nothing, in C: it is handed three arguments, which it does not look at. Without any callback
# `rd_kafka_flush`, and so each commit, looks only every 10 ms whether all is acknowledged; a report wakes it.
NOTHING_TO_DO = ctypes.cast(C.rd_kafka_version, DeliveredFromC)


def version() -> str:
    return str(C.rd_kafka_version_str().decode())


class Client:
    """One librdkafka handle and one topic. It ends with the process."""

    def __init__(
        self, kind: int, settings: Mapping[str, str], topic: str, delivered: Any = None
    ) -> None:
        complaint = ctypes.create_string_buffer(512)
        configuration = C.rd_kafka_conf_new()
        for name, value in settings.items():
            arguments = (name.encode(), value.encode(), complaint, len(complaint))
            if C.rd_kafka_conf_set(configuration, *arguments) != CONFIG_OK:
                raise LoadFailed(complaint.value.decode())
        if delivered is not None and not isinstance(delivered, DeliveredFromC):
            delivered = DeliveredFromC(delivered)
        self._delivered = delivered  # kept from the collector
        if self._delivered is not None:
            C.rd_kafka_conf_set_dr_msg_cb(configuration, self._delivered)
        self.handle = C.rd_kafka_new(kind, configuration, complaint, len(complaint))
        if not self.handle:
            raise LoadFailed(complaint.value.decode())
        self.topic = C.rd_kafka_topic_new(self.handle, topic.encode(), None)
        self.payload = ctypes.create_string_buffer(os.urandom(RECORD_SIZE), RECORD_SIZE)

    def poll(self, milliseconds: int) -> None:
        C.rd_kafka_poll(self.handle, milliseconds)

    def waiting(self) -> int:
        """Records that are not acknowledged yet."""
        return int(C.rd_kafka_outq_len(self.handle))

    def send(self, partition: int = ANY_PARTITION) -> None:
        """One record, not copied: the payload lives as long as the client."""
        none_of_it = (None, 0, None)
        C.rd_kafka_produce(self.topic, partition, 0, self.payload, RECORD_SIZE, *none_of_it)

    def drain(self) -> None:
        """Until everything is acknowledged."""
        progress_at, before = time.monotonic(), self.waiting()
        while (now := self.waiting()) > 0:
            if now != before:
                progress_at, before = time.monotonic(), now
            if time.monotonic() - progress_at > STALLED_S:
                raise LoadFailed(f"{now} records wait for an acknowledgement for {STALLED_S:g} s")
            self.poll(1)


class Failures:
    """A delivery callback that is told of failures only, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def __call__(self, _handle: int, message: Any, _opaque: int) -> None:
        if message.contents.err and not self.count:
            self.first = C.rd_kafka_err2str(message.contents.err).decode()
        self.count += bool(message.contents.err)

    def check(self) -> None:
        if self.count:
            raise LoadFailed(f"{self.count} records were refused, the first with: {self.first}")


def producer(
    bootstrap: str, topic: str, failures: Failures, extra: Mapping[str, str] | None = None
) -> Client:
    settings = {"bootstrap.servers": bootstrap, "delivery.report.only.error": "true"}
    return Client(PRODUCER, settings | DURABLE | dict(extra or {}), topic, failures)


def produce(bootstrap: str, topic: str, seconds: float) -> dict[str, float]:
    """As much as the node takes, acks=all and idempotent, librdkafka's defaults otherwise."""
    failures = Failures()
    client = producer(bootstrap, topic, failures)
    batch = (Message * BATCH)()
    for message in batch:
        message.payload, message.len = ctypes.addressof(client.payload), RECORD_SIZE
    client.send()  # learn the topic and take a producer id before the clock runs
    client.drain()
    sent, full_rounds = 1, 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        if client.waiting() + BATCH > QUEUE_LIMIT:
            full_rounds += 1
            client.poll(1)
        else:
            sent += C.rd_kafka_produce_batch(client.topic, ANY_PARTITION, 0, batch, BATCH)
    client.drain()
    elapsed = time.perf_counter() - start
    failures.check()
    # The queue was full at least once: it was the node that could not go faster, not this process.
    return _rate(sent, elapsed) | {"saturated": float(full_rounds > 0)}


def consume(
    bootstrap: str, topic: str, partitions: int, records: int, isolation: str
) -> dict[str, float]:
    """Every record of the topic from its beginning, without a group; the time runs from the first ones on."""
    settings = {"bootstrap.servers": bootstrap, "isolation.level": isolation, **EAGER}
    client = Client(CONSUMER, settings, topic)
    queue = C.rd_kafka_queue_new(client.handle)
    pointers = (POINTER * BATCH)()
    seen = size = 0
    start = last = time.perf_counter()
    for partition in range(partitions):
        if C.rd_kafka_consume_start_queue(client.topic, partition, FROM_BEGINNING, queue):
            raise LoadFailed(f"cannot consume partition {partition} of {topic}")
    while seen < records:
        count = C.rd_kafka_consume_batch_queue(queue, 20, pointers, BATCH)
        if count <= 0:
            if time.perf_counter() - last > STALLED_S:
                raise LoadFailed(f"{seen} of {records} records came, then none for {STALLED_S:g} s")
            continue
        if not seen:
            start = time.perf_counter()
        taken = pointers[:count]
        first, final = (Message.from_address(taken[0]), Message.from_address(taken[-1]))
        for message in (first, final):  # an error comes as a message: look at the ends, not at all
            if message.err not in (0, PARTITION_EOF):
                raise LoadFailed(C.rd_kafka_err2str(message.err).decode())
        size += final.len * count
        deque(map(free_message, taken), maxlen=0)
        seen += count
        last = time.perf_counter()
    if size != seen * RECORD_SIZE:
        raise LoadFailed(f"{seen} records have about {size} bytes, not {seen * RECORD_SIZE}")
    return _rate(seen, last - start)


def _rate(records: int, seconds: float) -> dict[str, float]:
    megabytes = records * RECORD_SIZE / 1e6
    return {"records": records, "seconds": seconds, "mb_per_s": megabytes / seconds}


def latency(bootstrap: str, topic: str, seconds: float, rate: int) -> dict[str, float]:
    """From produce() to the delivery report, at a steady rate, without linger, in microseconds."""
    taken: list[int] = []

    def delivered(_handle: int, message: Any, _opaque: int) -> None:
        taken.append(-1 if message.contents.err else C.rd_kafka_message_latency(message))

    settings = {"bootstrap.servers": bootstrap, "linger.ms": "0"} | DURABLE
    client = Client(PRODUCER, settings, topic, delivered)
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            client.poll(100)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    warm = rate * 2  # connections, the producer id and the first batch of each partition
    start = time.perf_counter()
    for number in range(warm + int(rate * seconds)):
        pause = start + number / rate - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        client.send()
    client.drain()
    over.set()
    poller.join()
    if -1 in taken:
        raise LoadFailed(f"{taken.count(-1)} records were refused")
    counted = sorted(taken[warm:])
    percentiles = {
        f"p{name}_ms": counted[int(len(counted) * share)] / 1000
        for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }
    return percentiles | {"max_ms": counted[-1] / 1000, "records": len(counted)}


def gap(bootstrap: str, topic: str, partition: int, seconds: float, rate: int) -> dict[str, float]:
    """The longest time without an acknowledgement of one partition, at a steady rate that never waits for one."""
    times: list[float] = []
    refused = 0

    def delivered(_handle: int, message: Any, _opaque: int) -> None:
        nonlocal refused
        if message.contents.err:
            refused += 1
        else:
            times.append(time.perf_counter())

    settings = {"bootstrap.servers": bootstrap, "linger.ms": "0", "log_level": "0"} | DURABLE
    client = Client(PRODUCER, settings, topic, delivered)
    client.send(partition)  # the clock runs from the first acknowledgement
    client.drain()
    start = time.perf_counter()
    for number in range(int(rate * seconds)):
        while (pause := start + number / rate - time.perf_counter()) > 0:
            client.poll(max(1, int(pause * 1000)) if pause > 0.001 else 0)
        client.send(partition)
        client.poll(0)
    client.drain()
    if refused:
        raise LoadFailed(f"{refused} records were refused")
    longest = max(later - earlier for earlier, later in pairwise(times))
    return {"longest_s": longest, "records": len(times)}


def first_acknowledgement(bootstrap: str, topic: str) -> dict[str, float]:
    """When the first record was acknowledged, on time.monotonic; the node may not have started yet.

    What librdkafka waits for by itself is no node's doing: it looks for a broker that was away only every
    500 ms, whatever its back-off, and as rarely for a producer id. So it begins when the port answers,
    and is not idempotent.
    """
    failures = Failures()
    port = int(bootstrap.rpartition(":")[2])
    deadline = time.monotonic() + STALLED_S
    while not answers(port):
        if time.monotonic() > deadline:
            raise LoadFailed(f"nothing answers on {bootstrap} for {STALLED_S:g} s")
        time.sleep(0.002)
    client = producer(bootstrap, topic, failures, {"enable.idempotence": "false", "linger.ms": "0"})
    client.send()
    client.drain()
    failures.check()
    return {"at": time.monotonic()}


def touch(bootstrap: str, topic: str, partitions: int) -> dict[str, float]:
    """One record into each partition."""
    failures = Failures()
    client = producer(bootstrap, topic, failures)
    client.send(0)  # the producer id takes librdkafka half a second
    client.drain()
    start = time.perf_counter()
    for partition in range(1, partitions):
        client.send(partition)
    client.drain()
    failures.check()
    return _rate(partitions, time.perf_counter() - start)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Load for one node; one line of JSON.")
    commands = parser.add_subparsers(dest="command", required=True)
    options = {
        "produce": {"seconds": float},
        "consume": {"partitions": int, "records": int, "isolation": str},
        "latency": {"seconds": float, "rate": int},
        "gap": {"partition": int, "seconds": float, "rate": int},
        "first_acknowledgement": {},
        "touch": {"partitions": int},
    }
    for name, kinds in options.items():
        command = commands.add_parser(name)
        for option, kind in ({"bootstrap": str, "topic": str} | kinds).items():
            default = DEFAULTS.get(option)
            command.add_argument(
                f"--{option}", type=kind, required=default is None, default=default
            )
    chosen = vars(parser.parse_args(arguments))
    work = globals()[chosen.pop("command")]
    print(json.dumps(work(**chosen)), flush=True)
    os._exit(0)  # librdkafka's threads have nothing left to do, and a tidy end would take seconds


if __name__ == "__main__":
    main(sys.argv[1:])
