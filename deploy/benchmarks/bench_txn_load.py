"""The load generator's transactions, through the same C interface of librdkafka as `bench_load.py`.

    python deploy/benchmarks/bench_txn_load.py transactions --bootstrap 127.0.0.1:9092 --topic t --seconds 10 …

Each command runs in its own process and prints one line of JSON. A transaction takes from `begin` until `commit` has
returned; one that librdkafka has to abort is begun anew, and its time goes on.
"""

import argparse
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from bench_load import (
    BATCH,
    DURABLE,
    INT,
    NOTHING_TO_DO,
    POINTER,
    PRODUCER,
    RECORD_SIZE,
    TEXT,
    C,
    Client,
    LoadFailed,
    Message,
)

RECORDS = 10  # of a small transaction
CALL_MS = 60_000
TRANSACTION_S = 0.1
# Of a stream with commits: what is sent and not acknowledged when a commit begins is what it has to wait for.
UNACKNOWLEDGED_MAX = 8_000

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_init_transactions": (POINTER, [POINTER, INT]),
    "rd_kafka_begin_transaction": (POINTER, [POINTER]),
    "rd_kafka_commit_transaction": (POINTER, [POINTER, INT]),
    "rd_kafka_abort_transaction": (POINTER, [POINTER, INT]),
    "rd_kafka_error_string": (TEXT, [POINTER]),
    "rd_kafka_error_is_retriable": (INT, [POINTER]),
    "rd_kafka_error_txn_requires_abort": (INT, [POINTER]),
    "rd_kafka_error_destroy": (None, [POINTER]),
}
for _name, (_result, _arguments) in SIGNATURES.items():
    _function = getattr(C, _name)
    _function.restype, _function.argtypes = _result, _arguments


class MustAbort(Exception):
    """The transaction can only be aborted; the producer goes on."""


def _done(error: int | None) -> bool:
    """Whether it is: what may be called again is not."""
    if not error:
        return True
    words = C.rd_kafka_error_string(error).decode()
    again = bool(C.rd_kafka_error_is_retriable(error))
    abort = bool(C.rd_kafka_error_txn_requires_abort(error))
    C.rd_kafka_error_destroy(error)
    if abort:
        raise MustAbort(words)
    if not again:
        raise LoadFailed(words)
    return False


class Transactional(Client):
    """librdkafka's defaults, but for what transactions need."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "log_level": "0"} | DURABLE
        settings["transactional.id"] = transactional_id
        super().__init__(PRODUCER, settings, topic, NOTHING_TO_DO)
        while not _done(C.rd_kafka_init_transactions(self.handle, CALL_MS)):
            pass

    def begin(self) -> None:
        _done(C.rd_kafka_begin_transaction(self.handle))

    def commit(self) -> None:
        while not _done(C.rd_kafka_commit_transaction(self.handle, CALL_MS)):
            pass

    def abort(self) -> None:
        while not _done(C.rd_kafka_abort_transaction(self.handle, CALL_MS)):
            pass

    def transact(self, partition: int) -> int:
        """One of some records; how often it was aborted first."""
        aborted = 0
        while True:
            self.begin()
            try:
                for _ in range(RECORDS):
                    self.send(partition)
                self.commit()
                return aborted
            except MustAbort:
                self.abort()
                aborted += 1


def transactions(
    bootstrap: str, topic: str, seconds: float, producers: int, partition: int, name: str
) -> dict[str, float]:
    """One small transaction after another, of each of the producers."""
    clients = [Transactional(bootstrap, topic, f"{name}-{n}") for n in range(producers)]
    took: list[float] = []
    failures: list[BaseException] = []
    aborted = 0
    for client in clients:
        client.transact(partition)  # learns the topic
    start = time.perf_counter()

    def work(client: Transactional) -> None:
        nonlocal aborted
        try:
            while (begin := time.perf_counter()) - start < seconds:
                aborted += client.transact(partition)
                took.append(time.perf_counter() - begin)
        except LoadFailed as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    if failures:
        raise failures[0]
    ordered = sorted(took)
    return {
        "transactions": len(took),
        "per_s": len(took) / elapsed,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "longest_s": ordered[-1],
        "aborted": aborted,
    }


def stream(
    bootstrap: str, topic: str, seconds: float, transactional: int, name: str
) -> dict[str, float]:
    """As much as the node takes; in transactions of a tenth of a second, or in none."""
    if transactional:
        client: Client = Transactional(bootstrap, topic, name)
    else:
        settings = {"bootstrap.servers": bootstrap} | DURABLE
        client = Client(PRODUCER, settings, topic, NOTHING_TO_DO)
    batch = (Message * BATCH)()
    for message in batch:
        message.payload, message.len = ctypes.addressof(client.payload), RECORD_SIZE
    sent = 0

    def fill(until: float) -> None:
        nonlocal sent
        while time.perf_counter() < until:
            if client.waiting() + BATCH > UNACKNOWLEDGED_MAX:
                client.poll(1)
            else:
                sent += C.rd_kafka_produce_batch(client.topic, -1, 0, batch, BATCH)

    def work(seconds: float) -> None:
        over = time.perf_counter() + seconds
        while (now := time.perf_counter()) < over:
            if isinstance(client, Transactional):
                client.begin()
                fill(now + TRANSACTION_S)
                client.commit()
            else:
                fill(over)
                client.drain()

    work(1.0)  # connections, the topic, the producer id
    warm, start = sent, time.perf_counter()
    work(seconds)
    elapsed = time.perf_counter() - start
    written = (sent - warm) * RECORD_SIZE / 1e6
    return {"records": sent, "seconds": elapsed, "mb_per_s": written / elapsed}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Transactions for one node; one line of JSON.")
    commands = parser.add_subparsers(dest="command", required=True)
    common = {"bootstrap": str, "topic": str, "seconds": float, "name": str}
    options = {
        "transactions": {"producers": int, "partition": int},
        "stream": {"transactional": int},
    }
    for command_name, kinds in options.items():
        command = commands.add_parser(command_name)
        for option, kind in (common | kinds).items():
            command.add_argument(f"--{option}", type=kind, required=True)
    chosen = vars(parser.parse_args(arguments))
    work = globals()[chosen.pop("command")]
    print(json.dumps(work(**chosen)), flush=True)
    os._exit(0)  # as in bench_load.py


if __name__ == "__main__":
    main(sys.argv[1:])
