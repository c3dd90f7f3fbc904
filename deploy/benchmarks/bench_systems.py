"""What is measured: a Fencepost or a Kafka on this machine, and the load process beside it."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bench_load import LoadFailed
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.chaos.harness import asking
from fencepost.chaos.harness.asking import Address
from fencepost.chaos.harness.local_cluster import LocalCluster, wait_for
from fencepost.chaos.harness.processes import (
    Node,
    cpu_seconds_of,
    fencepost_dev,
    resident_bytes_of,
)

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from support.kafka_peer import KafkaPeer

LOAD = Path(__file__).with_name("bench_load.py")
HEAP = "1g"  # what Kafka's own start script gives a broker
LIMIT_S = 600.0
STOP_S = 120.0
BROKER_DEFAULT = -1  # of a new topic's replication factor


class System(Protocol):
    """Brokers that can be started, stopped and started again on the same folder. `nodes` count from 1."""

    name: str
    nodes: Sequence[int]

    @property
    def bootstrap(self) -> str: ...

    @property
    def started_at(self) -> float:
        """When it was launched, on time.monotonic."""

    def pid(self, node: int) -> int: ...

    def launch(self) -> None: ...

    def wait_ready(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def kill_node(self, node: int) -> None: ...

    def start_node(self, node: int) -> None: ...


class Fencepost:
    """One process that is the node."""

    nodes = (1,)

    def __init__(self, name: str, policy: str, folder: Path) -> None:
        self.name = name
        command = [*fencepost_dev(), "--set", f"flush.policy={policy}"]
        self.data = folder / "data"
        self._node = Node(self.data, command=command)

    @property
    def bootstrap(self) -> str:
        return self._node.bootstrap

    @property
    def started_at(self) -> float:
        return self._node.process.started_at

    def pid(self, node: int) -> int:
        return self._node.process.pid

    def launch(self) -> None:
        self._node.launch()

    def wait_ready(self) -> None:
        self._node.wait_ready()

    def stop(self) -> None:
        self._node.stop(STOP_S)

    def kill(self) -> None:
        self._node.kill()

    def kill_node(self, node: int) -> None:
        self._node.kill()

    def start_node(self, node: int) -> None:
        self._node.start()


class FencepostCluster:
    """`fencepost dev --nodes N`."""

    def __init__(self, name: str, policy: str, folder: Path, nodes: int = 3) -> None:
        self.name = name
        self._cluster = LocalCluster(
            folder / "data", nodes=nodes, settings=[f"flush.policy={policy}"]
        )
        self.nodes = self._cluster.nodes

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def started_at(self) -> float:
        return self._cluster.supervisor.started_at

    def pid(self, node: int) -> int:
        return self._cluster.pid(node)

    def launch(self) -> None:
        self._cluster.supervisor.start()

    def wait_ready(self) -> None:
        self._cluster.wait_ready()

    def stop(self) -> None:
        self._cluster.stop(STOP_S)

    def kill(self) -> None:
        self._cluster.close()

    def kill_node(self, node: int) -> None:
        self._cluster.kill(node)

    def start_node(self, node: int) -> None:
        self._cluster.start_again(node)


class Kafka:
    """Each node broker and controller at once, with the heap that Kafka's own start script gives."""

    def __init__(self, name: str, folder: Path, nodes: int = 1) -> None:
        self.name = name
        try:
            self._peer = KafkaPeer(folder=folder, heap=HEAP, nodes=nodes)
        except subprocess.CalledProcessError as error:  # its message is not in the traceback
            raise LoadFailed(f"Kafka's folder: {error.stdout!r} {error.stderr!r}") from error
        self.nodes = tuple(self._peer.processes)

    @property
    def bootstrap(self) -> str:
        return self._peer.bootstrap

    @property
    def started_at(self) -> float:
        return self._peer.processes[1].started_at

    def pid(self, node: int) -> int:
        return self._peer.processes[node].pid

    def launch(self) -> None:
        self._peer.launch()

    def wait_ready(self) -> None:
        self._peer.wait_ready()

    def stop(self) -> None:
        self._peer.stop_nodes(STOP_S)

    def kill(self) -> None:
        for node in self.nodes:
            self._peer.kill(node)

    def kill_node(self, node: int) -> None:
        self._peer.kill(node)

    def start_node(self, node: int) -> None:
        self._peer.up(node)


def cpu_seconds(system: System, node: int | None = None) -> float:
    """Of one node, or of all together."""
    nodes = system.nodes if node is None else (node,)
    return sum(cpu_seconds_of(system.pid(each)) for each in nodes)


def resident_mb(system: System) -> float:
    """Of the node that holds most."""
    return max(resident_bytes_of(system.pid(node)) for node in system.nodes) / 1e6


def addresses(system: System, *, without: int | None = None) -> list[Address]:
    found = asking.addresses_of(system.bootstrap)
    return [found[node - 1] for node in system.nodes if node != without]


def wait_in_sync(system: System, topic: str, wait_s: float = 120.0) -> None:
    """Until every partition of the topic has a leader and all its replicas."""

    def settled() -> bool:
        found = asking.partitions(addresses(system), topic)
        return all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in found)

    wait_for(f"{system.name}: {topic} in sync", settled, wait_s)


def begin_load(
    system: System, command: str, topic: str, *, program: Path = LOAD, **options: float | str
) -> subprocess.Popen[str]:
    """The load process, already at work."""
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return subprocess.Popen(
        [
            sys.executable,
            program,
            command,
            "--bootstrap",
            system.bootstrap,
            "--topic",
            topic,
            *flags,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def end_load(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Its answer; LoadFailed when it has none."""
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise LoadFailed(f"the load process ended with {process.returncode}")
    answer: dict[str, Any] = json.loads(said)
    return answer


def load(
    system: System, command: str, topic: str, *, program: Path = LOAD, **options: float | str
) -> dict[str, Any]:
    return end_load(begin_load(system, command, topic, program=program, **options))


def create_topics(system: System, names: list[str], partitions: int) -> float:
    """Seconds until every topic is there and described with all its partitions."""
    start = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for name in names:  # one request a topic: 1,000 partitions in one are enough for anyone
        topic = NewTopic(name, num_partitions=partitions, replication_factor=BROKER_DEFAULT)
        admin.create_topics([topic], operation_timeout=60, request_timeout=120)[name].result(120)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        topics = admin.list_topics(timeout=60).topics
        if all(_complete(topics.get(name), partitions) for name in names):
            return time.perf_counter() - start
        time.sleep(0.02)
    raise LoadFailed(f"the topics have no leaders: {names}")


def _complete(topic: Any, partitions: int) -> bool:
    if topic is None or len(topic.partitions) != partitions:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def delete_topic(system: System, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    admin.delete_topics([name], operation_timeout=60)[name].result(60)
