"""Transactions one after another until SIGTERM; a line of JSON for each. librdkafka's defaults, but for what is named.

    python txn_load.py BOOTSTRAP TOPIC TRANSACTIONAL_ID [NAME=VALUE …]

It imports nothing but the client, so that it runs the same on a machine and in a container. Each record says which of
which transaction it is. What may have been committed without an answer is `unknown`, until an abort works: only that
proves that no commit did. An error is one that the application is told of, also if the next call works.
"""

import json
import signal
import sys
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

RECORDS = 10
CALL_S = 30.0
PAUSE_S = 0.02  # between transactions: work, and no contest for the processor


class Load:
    def __init__(self, bootstrap: str, topic: str, name: str, *settings: str) -> None:
        self.settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        self.settings |= dict(each.split("=", 1) for each in settings)
        self.topic = topic
        self.name = name
        self.number = 0
        self.errors: list[str] = []
        self.slowest = 0.0
        self.running = True
        self.producer = self.new_producer()

    def stop(self, *_: object) -> None:
        self.running = False

    def new_producer(self) -> Producer:
        producer = Producer(self.settings)
        producer.init_transactions(CALL_S)
        return producer

    def run(self) -> None:
        while self.running:
            self.number += 1
            self.errors, self.slowest = [], 0.0
            began = time.monotonic()
            state = self.transact()
            took = time.monotonic() - began
            said = {
                "transaction": f"{self.name}/{self.number}",
                "state": state,
                "at": round(time.time(), 3),
                "took": round(took, 4),
                "slowest": round(self.slowest, 4),
                "errors": self.errors,
            }
            print(json.dumps(said), flush=True)
            time.sleep(PAUSE_S)

    def transact(self) -> str:
        try:
            self.producer.begin_transaction()
            for place in range(RECORDS):
                self.send(place)
            self.producer.flush(CALL_S)
        except KafkaException as failed:
            self.errors.append(str(failed.args[0]))
            self.give_up()
            return "aborted"
        while True:
            began = time.monotonic()
            try:
                self.producer.commit_transaction(CALL_S)
            except KafkaException as failed:
                error = failed.args[0]
                self.errors.append(f"commit: {error}")
                if error.retriable():
                    continue
                if error.txn_requires_abort():
                    return "aborted" if self.give_up() else "unknown"
                self.producer = self.new_producer()
                return "unknown"
            self.slowest = max(self.slowest, time.monotonic() - began)
            return "committed"

    def send(self, place: int) -> None:
        began = time.monotonic()

        def acknowledged(error: KafkaError | None, _: Any) -> None:
            self.slowest = max(self.slowest, time.monotonic() - began)
            if error is not None:
                self.errors.append(f"record: {error}")

        value = f"{self.name}/{self.number}/{place}"
        self.producer.produce(self.topic, value, key=f"{place}", on_delivery=acknowledged)
        self.producer.poll(0)

    def give_up(self) -> bool:
        """Whether the abort worked. A new producer aborts what may still be open, and not what is committed."""
        try:
            self.producer.abort_transaction(CALL_S)
        except KafkaException as failed:
            self.errors.append(f"abort: {failed.args[0]}")
            self.producer = self.new_producer()
            return False
        return True


if __name__ == "__main__":
    load = Load(*sys.argv[1:])
    signal.signal(signal.SIGTERM, load.stop)
    load.run()
