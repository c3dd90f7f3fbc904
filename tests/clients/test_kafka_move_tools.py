"""Kafka's own tools that move partitions and leaders, while an idempotent producer goes on writing."""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from fencepost.chaos.harness.local_cluster import LocalCluster, wait_for
from fencepost.clients.transactional.kept_topics import make_topic
from fencepost.node.main import main
from kafka_tools import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka"), pytest.mark.timeout(400)]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPIC = "moving"
PARTITIONS = 6
MOVES_S = 60.0
SETTLES_S = 20.0
PACE_S = 0.0005


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("move-tools") / "data", nodes=4) as made:
        placed = [[1, 2, 3]] * PARTITIONS
        setting = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=placed, config=setting)
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        assert make_topic(admin, topic)
        yield made


class Writer:
    """Numbers, one after the other; what was refused is an error of the test."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = 0
        self.refused: list[str] = []

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))

    def _run(self) -> None:
        while not self._stop.is_set():
            place = {"partition": self.written % PARTITIONS, "on_delivery": self._told}
            self._producer.produce(TOPIC, f"{self.written}", **place)
            self.written += 1
            self._producer.poll(0)
            time.sleep(PACE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(SETTLES_S) == 0


@contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """Nothing is refused meanwhile, and all of it is there once, and in order."""
    before = [len(each) for each in everything(bootstrap)]
    with Writer(bootstrap) as writer:
        yield
    assert writer.refused == []
    for partition, values in enumerate(everything(bootstrap)):
        assert values[before[partition] :] == list(range(partition, writer.written, PARTITIONS))


def everything(bootstrap: str) -> list[list[int]]:
    """Each partition's values, from its beginning to its end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    deadline = time.monotonic() + SETTLES_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {sorted(ended)} end"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found[message.partition()].append(int(message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def partitions(bootstrap: str) -> Mapping[int, PartitionMetadata]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, SETTLES_S)
    return found.topics[TOPIC].partitions


def leaders(bootstrap: str) -> set[int]:
    return {each.leader for each in partitions(bootstrap).values()}


def plan(folder: Path, replicas: Sequence[int]) -> str:
    rows = [
        {"topic": TOPIC, "partition": number, "replicas": list(replicas)}
        for number in range(PARTITIONS)
    ]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def test_kafka_reassign_partitions_moves_a_topic_under_load(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    def reassign(*words: str) -> str:
        return run_tool(REASSIGN, "--bootstrap-server", cluster.bootstrap, *words)

    wanted = ["--reassignment-json-file", plan(tmp_path, (2, 3, 4))]
    with writing(cluster.bootstrap):
        said = reassign(*wanted, "--execute", "--throttle", "50000000")
        assert "Successfully started partition reassignments" in said
        deadline = time.monotonic() + MOVES_S
        while (done := reassign(*wanted, "--verify")).count("is completed") < PARTITIONS:
            assert "no active reassignment" not in done, done
            assert time.monotonic() < deadline, done
        assert "Clearing broker-level throttles" in done
        assert "No partition reassignments found" in reassign("--list")
    found = partitions(cluster.bootstrap).values()
    assert {tuple(each.replicas) for each in found} == {(2, 3, 4)}


@pytest.mark.long
def test_kafka_leader_election_gives_partitions_back_to_the_preferred_under_load(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    bootstrap = cluster.bootstrap
    first = partitions(bootstrap)[0].replicas[0]

    def is_in_sync() -> bool:
        return all(first in each.isrs for each in partitions(bootstrap).values())

    with writing(bootstrap):
        cluster.kill(first)
        wait_for("others lead", lambda: not {first, -1} & leaders(bootstrap), MOVES_S)
        cluster.start_again(first)
        wait_for("it is in sync", is_in_sync, MOVES_S)
        elect = ["--election-type", "preferred", "--all-topic-partitions"]
        run_tool(ELECT, "--bootstrap-server", bootstrap, *elect)
        wait_for("it leads", lambda: leaders(bootstrap) == {first}, MOVES_S)


@pytest.mark.long
def test_a_node_is_drained_and_gets_its_share_again_under_load(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", cluster.bootstrap)
    for words, has_it in (("drain 3", False), ("add 3", True), ("rebalance", True)):
        with writing(cluster.bootstrap):
            assert main(["node", *words.split(), "--yes"]) == 0, capsys.readouterr().err
        found = partitions(cluster.bootstrap).values()
        kept = {node for each in found for node in each.replicas}
        assert (3 in kept) is has_it, words


def test_kafka_features_describes_what_is_in_force(cluster: LocalCluster) -> None:
    said = run_tool(FEATURES, "--bootstrap-server", cluster.bootstrap, "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: \S+", said)
    assert re.search(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2\b", said)
