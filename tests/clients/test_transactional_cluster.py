"""Groups and half messages on three real nodes that are killed by turns."""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from brokers import AGAINST, as_variables
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from fencepost.chaos.harness.local_cluster import LocalCluster, wait_for
from fencepost.clients.transactional import (
    AdminApi,
    AdminRefused,
    DecidedBefore,
    GroupMember,
    HalfMessageProducer,
    TransactionGroup,
    Verdict,
)
from librdkafka import admin_of, consumer_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(AGAINST != "fencepost", reason="has a cluster of its own"),
]
SECONDS = 15.0
WRITERS = 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.check.interval.ms": "500",
    "transaction.check.interval.max.ms": "1000",
    "transaction.check.max": "100",
}


@contextmanager
def dying_cluster(topic: str) -> Iterator[tuple[LocalCluster, AdminApi]]:
    folder = Path(tempfile.mkdtemp(prefix="fencepost-groups-"))
    try:
        with LocalCluster(folder / "data", nodes=3, environment=as_variables(SETTINGS)) as nodes:
            new = NewTopic(topic, num_partitions=3, replication_factor=3)
            admin_of(nodes.bootstrap).create_topics([new])[topic].result(20)
            said = nodes.said()
            doors = said.partition("admin doors: ")[2].partition("\n")[0]
            yield nodes, AdminApi(doors.replace(" ", ""), timeout_s=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Killer(Thread):
    def __init__(self, nodes: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.nodes, self.over, self.kills = nodes, Event(), 0
        self.dice = random.Random(5)

    def run(self) -> None:
        while not self.over.wait(self.dice.uniform(0.5, 2.0)):
            node = self.dice.choice(list(self.nodes.nodes))
            self.nodes.kill(node)
            self.kills += 1
            time.sleep(self.dice.uniform(0.0, 1.0))
            self.nodes.start_again(node)


def read_all(bootstrap: str, topic: str, wanted: int) -> Counter[str]:
    """Until so many have come and then nothing for two seconds."""
    found: Counter[str] = Counter()
    deadline, quiet = time.monotonic() + 60, 0
    with consumer_of(bootstrap, group=f"reads-{topic}") as consumer:
        consumer.subscribe([topic])
        while (found.total() < wanted or quiet < 10) and time.monotonic() < deadline:
            came = [each for each in consumer.consume(1000, timeout=0.2) if not each.error()]
            found.update(each.value().decode() for each in came)
            quiet = 0 if came else quiet + 1
    return found


class Job:
    """A driver that makes its writers anew after every trouble, and asks what had become of its last number."""

    def __init__(self, bootstrap: str, admin: AdminApi, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.group = TransactionGroup("job", admin)
        self.members: list[GroupMember] = []
        self.committed: list[int] = []

    def start(self) -> None:
        self.members = [
            GroupMember(self.bootstrap, "job", f"w{n}", {"log_level": 0}) for n in range(WRITERS)
        ]
        for member in self.members:
            member.start()

    def one(self, number: int) -> None:
        """Commit it, however often it takes."""
        while True:
            try:
                if not self.members:
                    if self.group.decision(number).outcome == "commit":
                        break
                    self.start()
                for member in self.members:
                    member.begin()
                    member.produce(self.topic, value=f"{number}/{member.name}".encode())
                self.group.commit(number, [member.wrote() for member in self.members])
                for member in self.members:
                    member.finish("commit")
            except (KafkaException, RuntimeError, AdminRefused, TimeoutError):
                self.members = []
                continue
            except DecidedBefore as before:
                if before.decision.outcome != "commit":
                    raise
                self.members = []
            break
        self.committed.append(number)


def test_a_job_of_many_writers_commits_each_number_once_while_nodes_die(topic) -> None:
    with dying_cluster(topic) as (nodes, admin):
        killer = Killer(nodes)
        job = Job(nodes.bootstrap, admin, topic)
        killer.start()
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            job.one(number)
            number += 1
        killer.over.set()
        killer.join()
        found = read_all(nodes.bootstrap, topic, number * WRITERS)
        assert found == Counter(f"{n}/w{w}" for n in range(number) for w in range(WRITERS))
        assert killer.kills >= 3 and number >= 5, (killer.kills, number)


class Shop(HalfMessageProducer):
    database: dict[str, Verdict]

    def execute_local_transaction(self, half_id: str, argument: Any) -> Verdict:
        verdict, answer = argument
        self.database[half_id] = verdict
        return answer

    def check_local_transaction(self, half_id: str) -> Verdict:
        return self.database.get(half_id, Verdict.ROLLBACK)


def test_what_the_local_database_says_is_what_is_read_while_nodes_die(topic) -> None:
    dice = random.Random(9)
    with dying_cluster(topic) as (nodes, admin):
        killer = Killer(nodes)
        database: dict[str, Verdict] = {}
        Shop.database = database
        killer.start()
        until, number = time.monotonic() + SECONDS, 0
        with Shop(nodes.bootstrap, "shop", admin, config={"log_level": 0}) as shop:
            while time.monotonic() < until:
                number += 1
                verdict = dice.choice((Verdict.COMMIT, Verdict.ROLLBACK))
                answer = dice.choice((verdict, verdict, Verdict.UNKNOWN))
                try:
                    shop.send(
                        topic,
                        half_id=f"o{number}",
                        argument=(verdict, answer),
                        value=f"o{number}".encode(),
                    )
                except (KafkaException, RuntimeError, AdminRefused, TimeoutError):
                    pass  # not even half of it is there, or a check will find out
            killer.over.set()
            killer.join()
            wait_for("all are decided", lambda: not _open(admin), 60)
        committed = [each for each in database if database[each] is Verdict.COMMIT]
        found = read_all(nodes.bootstrap, topic, len(committed))
        assert found == Counter(committed)
        assert killer.kills >= 3 and len(committed) >= 3, (killer.kills, number)


def _open(admin: AdminApi) -> list[Any]:
    answer = admin.call("GET", "/v1/checks")
    found: list[Any] = answer["half_messages"] + answer["nodes_not_reached"]
    return found
