"""What is measured: a Fencepost or a Kafka on this machine, and the load process beside it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from bench_load import LoadFailed
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.chaos.harness.processes import Node, Process, fencepost_dev
from support.kafka_peer import KafkaPeer

LOAD = Path(__file__).with_name("bench_load.py")
HEAP = "1g"  # what Kafka's own start script gives a broker
LIMIT_S = 600.0


class System(Protocol):
    """One broker that can be started, stopped and started again on the same folder."""

    name: str

    @property
    def bootstrap(self) -> str: ...

    @property
    def process(self) -> Process: ...

    def launch(self) -> None: ...

    def wait_ready(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Fencepost:
    def __init__(self, name: str, policy: str, folder: Path) -> None:
        self.name = name
        command = [*fencepost_dev(), "--set", f"flush.policy={policy}"]
        self._node = Node(folder / "data", command=command)

    @property
    def bootstrap(self) -> str:
        return self._node.bootstrap

    @property
    def process(self) -> Process:
        return self._node.process

    def launch(self) -> None:
        self._node.launch()

    def wait_ready(self) -> None:
        self._node.wait_ready()

    def stop(self) -> None:
        self._node.stop(120.0)

    def kill(self) -> None:
        self._node.kill()


class Kafka:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        try:
            self._peer = KafkaPeer(folder=folder, heap=HEAP)
        except subprocess.CalledProcessError as error:  # its message is not in the traceback
            raise LoadFailed(f"Kafka's folder: {error.stdout!r} {error.stderr!r}") from error

    @property
    def bootstrap(self) -> str:
        return self._peer.bootstrap

    @property
    def process(self) -> Process:
        return self._peer.processes[1]

    def launch(self) -> None:
        self._peer.launch()

    def wait_ready(self) -> None:
        self._peer.wait_ready()

    def stop(self) -> None:
        self._peer.stop_nodes(120.0)

    def kill(self) -> None:
        self._peer.kill()


def begin_load(system: System, command: str, topic: str, **options: float) -> subprocess.Popen[str]:
    """The load process, already at work."""
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return subprocess.Popen(
        [sys.executable, LOAD, command, "--bootstrap", system.bootstrap, "--topic", topic, *flags],
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


def load(system: System, command: str, topic: str, **options: float) -> dict[str, Any]:
    return end_load(begin_load(system, command, topic, **options))


def create_topics(system: System, names: list[str], partitions: int) -> float:
    """Seconds until every topic is there and described with all its partitions."""
    start = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for name in names:  # one request a topic: 1,000 partitions in one are enough for anyone
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
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
