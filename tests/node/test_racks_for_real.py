"""KIP-392 with librdkafka: a consumer in a rack gets its records from the replica there."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.chaos.harness.processes import Process, fencepost_command, free_port
from fencepost.clients.transactional.kept_topics import make_topic
from fencepost.node.read_replica_policy import RACK_AWARE

RECORDS = 1000


def node(node_id: int, ports: list[int], peers: list[int], folder: Path) -> Process:
    voters = ",".join(f"{at}@127.0.0.1:{port}" for at, port in enumerate(peers, 1))
    settings = [
        f"node.id={node_id}",
        f"broker.rack=rack-{node_id}",
        f"listeners=PLAINTEXT://127.0.0.1:{ports[node_id - 1]}",
        f"peer.listener=127.0.0.1:{peers[node_id - 1]}",
        f"controller.quorum.voters={voters}",
        f"replica.selector.class={RACK_AWARE}",
        f"log.dirs={folder / str(node_id)}",
    ]
    flags = [part for setting in settings for part in ("--set", setting)]
    return Process([*fencepost_command(), "serve", *flags], log=folder / f"{node_id}.log")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_consumer_in_a_followers_rack_reads_from_that_follower(tmp_path: Path) -> None:
    ports, peers = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
    nodes = [node(node_id, ports, peers, tmp_path) for node_id in (1, 2, 3)]
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    with contextlib.ExitStack() as started:
        for each in nodes:
            each.start()
            started.callback(each.kill)
        for each in nodes:
            each.wait_line("ready ", 60)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        assert make_topic(admin, NewTopic("t", 1, 3))
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("t", str(number).encode().rjust(500))
        assert producer.flush(30) == 0
        leader = admin.list_topics("t").topics["t"].partitions[0].leader
        follower = leader % 3 + 1
        values, received = read_all(bootstrap, f"rack-{follower}")
        assert values == [str(number).encode().rjust(500) for number in range(RECORDS)]
        assert received[follower] > RECORDS * 500
        assert received[leader] < 10_000, "the leader only says who else to ask"


def read_all(bootstrap: str, rack: str) -> tuple[list[bytes], dict[int, int]]:
    """The values of all records, and how many bytes came from each node."""
    received: dict[int, int] = {}

    def statistics(text: str) -> None:
        for each in json.loads(text)["brokers"].values():
            if each["nodeid"] > 0:
                received[each["nodeid"]] = each["rxbytes"]

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "client.rack": rack,
        "statistics.interval.ms": 200,
        "stats_cb": statistics,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(values) < RECORDS and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(RECORDS, 0.5)]
        received.clear()
        while not received and time.monotonic() < deadline:
            consumer.poll(0.1)
        return values, received
    finally:
        consumer.close()
