"""Transactional clients on the machine and in containers, and what has become of their transactions."""

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from containers import Cluster, archive
from fencepost.clients.transactional.kept_topics import make_topic
from txn_load import RECORDS

SCRIPT = Path(__file__).with_name("txn_load.py")
READ_S = 60.0
ENDS_S = 90.0


@dataclass(frozen=True)
class Transaction:
    name: str
    state: str  # committed, aborted, unknown
    at: float
    took: float
    slowest: float
    errors: tuple[str, ...]


def transactions(text: str) -> list[Transaction]:
    found = []
    for line in text.splitlines():
        said: dict[str, Any] = json.loads(line)
        name = said.pop("transaction")
        found.append(Transaction(name=name, **said | {"errors": tuple(said["errors"])}))
    return found


class HostLoad:
    """A client outside of the containers' network."""

    def __init__(
        self, cluster: Cluster, topic: str, name: str, folder: Path, settings: Sequence[str] = ()
    ) -> None:
        self.notes = folder / f"{name}.jsonl"
        with self.notes.open("wb") as notes:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), cluster.outside_bootstrap, topic, name, *settings],
                stdout=notes,
                stderr=subprocess.PIPE,
            )

    @property
    def done(self) -> list[Transaction]:
        return transactions(self.notes.read_text().rpartition("\n")[0])

    def finish(self) -> list[Transaction]:
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=ENDS_S)
        assert self.process.returncode == 0, said.decode()
        return self.done

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class ContainerLoad:
    """The same client in the containers' network."""

    def __init__(
        self, cluster: Cluster, topic: str, name: str, settings: Sequence[str] = ()
    ) -> None:
        words = [cluster.inside_bootstrap, topic, name, *settings]
        self.container = cluster.lab.container(
            name,
            entrypoint=["python", f"/tmp/{SCRIPT.name}", *words],
            init=True,
        )
        assert self.container.put_archive("/tmp", archive(SCRIPT))
        self.container.start()

    @property
    def done(self) -> list[Transaction]:
        text = self.container.logs(stderr=False).decode()
        return transactions(text.rpartition("\n")[0])

    def finish(self) -> list[Transaction]:
        self.container.kill("SIGTERM")
        code = self.container.wait(timeout=ENDS_S)["StatusCode"]
        assert code == 0, self.container.logs().decode()[-3_000:]
        return self.done

    def kill(self) -> None:
        """The lab removes it."""


def create_topic(bootstrap: str, topic: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert make_topic(admin, NewTopic(topic, partitions, 3))


def read_committed(bootstrap: str, topic: str) -> dict[int, list[str]]:
    """Each partition's values from its beginning to where it ends now, as far as they are committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        found: dict[int, list[str]] = {each: [] for each in partitions}
        open_ones, deadline = set(partitions), time.monotonic() + READ_S
        while open_ones:
            assert time.monotonic() < deadline, f"partitions {sorted(open_ones)} don't end"
            for message in consumer.consume(1000, timeout=1.0):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message.value().decode())
                elif error.name() == "_PARTITION_EOF":
                    open_ones.discard(message.partition())
                elif not error.retriable() and error.name() != "_TRANSPORT":
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def check(found: dict[int, list[str]], done: Sequence[Transaction]) -> None:
    """Whole or not at all, once, and in the order in which each client sent them."""
    seen: dict[str, list[int]] = defaultdict(list)
    for partition, values in found.items():
        last: dict[str, tuple[int, int]] = {}
        for value in values:
            transaction, _, place = value.rpartition("/")
            client, _, number = transaction.rpartition("/")
            seen[transaction].append(int(place))
            now = (int(number), int(place))
            assert last.get(client, (0, 0)) < now or client not in last, (
                f"{partition}: {value} comes late"
            )
            last[client] = now
    whole = list(range(RECORDS))
    for each in done:
        places = sorted(seen.pop(each.name, []))
        if each.state == "committed":
            assert places == whole, f"{each} was acknowledged, and there is {places}"
        elif each.state == "aborted":
            assert places == [], f"{each} was aborted, and there is {places}"
        else:
            assert places in ([], whole), f"{each} is torn: {places}"
    assert seen == {}, "records of transactions that nobody has sent"


def summary(done: Iterable[Transaction]) -> str:
    rows = list(done)
    slow = sorted(each.slowest for each in rows)
    errors = [error for each in rows for error in each.errors]
    return (
        f"{len(rows)} transactions, {sum(each.state == 'committed' for each in rows)} committed, "
        f"{len(errors)} errors {sorted(set(errors))}; slowest acknowledgement {slow[-1]:.3f} s, "
        f"99 % under {slow[int(len(slow) * 0.99)]:.3f} s"
    )
