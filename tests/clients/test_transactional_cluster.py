"""Groups and half messages on three real nodes that are killed by turns."""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
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
from fencepost.clients.transactional.kept_topics import make_topic
from librdkafka import admin_of, consumer_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(AGAINST != "fencepost", reason="has a cluster of its own"),
]
KILLS = 4
WRITERS = 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.check.interval.ms": "500",
    "transaction.check.interval.max.ms": "1000",
    "transaction.check.max": "100",
}


class Killer(Thread):
    """Lives until it has killed so many."""

    def __init__(self, nodes: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.nodes, self.kills = nodes, 0
        self.dice = random.Random(5)

    def run(self) -> None:
        while self.kills < KILLS:
            time.sleep(self.dice.uniform(0.5, 2.0))
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
                decided = self.group.commit(number, [member.wrote() for member in self.members])
                for member in self.members:
                    member.finish(decided)
            except (KafkaException, RuntimeError, AdminRefused, TimeoutError):
                self.members = []
                continue
            except DecidedBefore as before:
                if before.decision.outcome != "commit":
                    raise
                self.members = []
            break
        self.committed.append(number)

    def work(self, killer: Killer) -> int:
        """How many numbers were committed."""
        number = 0
        while killer.is_alive():
            self.one(number)
            number += 1
        return number


class Shop(HalfMessageProducer):
    def __init__(self, *args: Any, **options: Any) -> None:
        self.database: dict[str, Verdict] = {}
        super().__init__(*args, **options)

    def execute_local_transaction(self, half_id: str, argument: Any) -> Verdict:
        verdict, answer = argument
        self.database[half_id] = verdict
        return answer

    def check_local_transaction(self, half_id: str) -> Verdict:
        return self.database.get(half_id, Verdict.ROLLBACK)

    def work(self, topic: str, killer: Killer) -> None:
        dice = random.Random(9)
        number = 0
        while killer.is_alive():
            number += 1
            verdict = dice.choice((Verdict.COMMIT, Verdict.ROLLBACK))
            answer = dice.choice((verdict, verdict, Verdict.UNKNOWN))
            try:
                self.send(
                    topic,
                    half_id=f"o{number}",
                    argument=(verdict, answer),
                    value=f"o{number}".encode(),
                )
            except (KafkaException, RuntimeError, AdminRefused, TimeoutError):
                pass  # not even half of it is there, or a check will find out


@dataclass
class Lived:
    """What a job and a shop did on three nodes that were killed by turns, and where it can be read."""

    bootstrap: str
    kills: int
    numbers: Future[int]
    orders: Future[dict[str, Verdict]]


JOB, SHOP = "numbers-of-a-job", "orders-of-a-shop"


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    folder = Path(tempfile.mkdtemp(prefix="fencepost-groups-"))
    try:
        with LocalCluster(folder / "data", nodes=3, environment=as_variables(SETTINGS)) as nodes:
            for topic in (JOB, SHOP):
                new = NewTopic(topic, num_partitions=3, replication_factor=3)
                assert make_topic(admin_of(nodes.bootstrap), new)
            doors = nodes.said().partition("admin doors: ")[2].partition("\n")[0]
            yield live(nodes, AdminApi(doors.replace(" ", ""), timeout_s=60))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def live(nodes: LocalCluster, admin: AdminApi) -> Lived:
    """Both at once: they mostly wait, for nodes that come back."""
    killer = Killer(nodes)

    def keep_shop() -> dict[str, Verdict]:
        with Shop(nodes.bootstrap, "shop", admin, config={"log_level": 0}) as shop:
            shop.work(SHOP, killer)
            wait_for("all are decided", lambda: not _open(admin), 60)
            return shop.database

    killer.start()
    with ThreadPoolExecutor(2) as pool:
        numbers = pool.submit(Job(nodes.bootstrap, admin, JOB).work, killer)
        orders = pool.submit(keep_shop)
    return Lived(nodes.bootstrap, killer.kills, numbers, orders)


def test_a_job_of_many_writers_commits_each_number_once_while_nodes_die(lived) -> None:
    number = lived.numbers.result()
    found = read_all(lived.bootstrap, JOB, number * WRITERS)
    assert found == Counter(f"{n}/w{w}" for n in range(number) for w in range(WRITERS))
    assert lived.kills == KILLS and number >= 5, (lived.kills, number)


def test_what_the_local_database_says_is_what_is_read_while_nodes_die(lived) -> None:
    database = lived.orders.result()
    committed = [each for each in database if database[each] is Verdict.COMMIT]
    found = read_all(lived.bootstrap, SHOP, len(committed))
    assert found == Counter(committed)
    assert lived.kills == KILLS and len(committed) >= 3, (lived.kills, len(database))


def _open(admin: AdminApi) -> list[Any]:
    answer = admin.call("GET", "/v1/checks")
    found: list[Any] = answer["half_messages"] + answer["nodes_not_reached"]
    return found
