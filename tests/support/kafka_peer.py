"""A real Apache Kafka on the loopback, to be measured beside and to prove that the suites are right.

INVARIANT  no Kafka process outlives the one that started it, and no two peers share a port or a folder.
PREVENTS   a benchmark that competes with the last one's forgotten broker.
PROVED BY  tests/support/test_kafka_peer.py::test_a_peer_serves_survives_a_kill_and_ends_with_its_block

In a test: `with KafkaPeer() as peer: peer.bootstrap`. By hand, from the project's root:

    python tests/support/kafka_peer.py fetch               download Kafka's jars with Maven, once
    python tests/support/kafka_peer.py run --nodes 3       serve until Ctrl-C
    python tests/support/kafka_peer.py exec --port P --data DIR   become a one-node Kafka (same process id)
    python tests/support/kafka_peer.py tool CLASS ARGS…    run one of Kafka's command-line classes
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.chaos.harness.processes import Process, free_port

VERSION = os.environ.get("FENCEPOST_TEST_KAFKA_VERSION", "4.3.0")
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
READY_TIMEOUT_S = 90.0
# What Kafka's own start script gives the JVM of a broker (bin/kafka-run-class.sh, kafka-server-start.sh).
BROKER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# A tool lives for a second: the cheap compiler and collector halve that second.
TOOL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost.tests</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""
LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")
# What is fetched together, by the folder of the cache that it comes into.
DEPENDENCIES = {
    "kafka": (
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        LOGGING,
    ),
    "kafka-streams": (("org.apache.kafka", "kafka-streams", VERSION), LOGGING),
}


class NotFetched(Exception):
    """Jars are not here and can't be downloaded; says what Maven said."""


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold a lock of this checkout, so that two runs don't download or compile the same thing."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars(of: str = "kafka") -> Path:
    """The folder with Kafka's jars, or those of its streams, downloaded at the first call."""
    folder = CACHE / f"{of}-{VERSION}"
    with alone(folder.name):
        if not (folder / "complete").exists():
            download(folder, DEPENDENCIES[of], f"Kafka {VERSION}")
    return folder / "libs"


def download(
    folder: Path, dependencies: Sequence[tuple[str, str, str]], what: str, each: str = ""
) -> None:
    """Into its folder `libs`. `each` stands in every dependency of the description for Maven."""
    folder.mkdir(parents=True, exist_ok=True)
    elements = [
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{each}</dependency>"
        for group, name, version in dependencies
    ]
    (folder / "pom.xml").write_text(POM.format(dependencies="\n    ".join(elements)))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'libs'}"]
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(folder / "pom.xml"), *goal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise NotFetched(f"Maven could not fetch {what}: {done.stdout[-2000:]}")
    (folder / "complete").touch()


def java(
    *arguments: str,
    jvm: Sequence[str] = TOOL_JVM,
    classes: Path | None = None,
    libraries: Path | None = None,
) -> list[str]:
    """A command that runs Java with Kafka's jars, or others, and our own classes before them."""
    path = f"{libraries or jars()}/*"
    if classes is not None:
        path = f"{classes}{os.pathsep}{path}"
    return ["java", *jvm, QUIET, "-cp", path, *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one node lives."""

    node_id: int
    port: int
    controller_port: int
    folder: Path


def settings_of(place: Place, voters: Sequence[Place]) -> dict[str, str]:
    """Kafka's defaults, but for what one machine makes necessary: replication and the group delay."""
    copies = min(len(voters), 3)
    quorum = ",".join(f"{v.node_id}@127.0.0.1:{v.controller_port}" for v in voters)
    client = f"PLAINTEXT://127.0.0.1:{place.port}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(place.node_id),
        "controller.quorum.voters": quorum,
        "listeners": f"{client},CONTROLLER://127.0.0.1:{place.controller_port}",
        "advertised.listeners": client,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(place.folder / "data"),
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(max(copies - 1, 1)),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(copies - 1, 1)),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(max(copies - 1, 1)),
        "group.initial.rebalance.delay.ms": "0",
    }


def _prepare(place: Place, voters: Sequence[Place], extra: Mapping[str, str]) -> Path:
    """Write the node's settings, and format its folder if that was not done yet."""
    place.folder.mkdir(parents=True, exist_ok=True)
    settings = settings_of(place, voters) | dict(extra)
    file = place.folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    if not (place.folder / "data" / "meta.properties").exists():
        options = ["--cluster-id", "ZmVuY2Vwb3N0LXBlZXItMQ", "--config", str(file)]
        command = java("kafka.tools.StorageTool", "format", *options)
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return file


class KafkaPeer:
    """Kafka nodes, each broker and controller at once, on ports that were free."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        folder: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="kafka-peer-"))
        self.places = [
            Place(
                node_id=number,
                port=port + number - 1 if port else free_port(),
                controller_port=free_port(),
                folder=self.folder / f"node{number}",
            )
            for number in range(1, nodes + 1)
        ]
        self.processes: dict[int, Process] = {}
        for place in self.places:
            file = _prepare(place, self.places, settings or {})
            jvm = (*BROKER_JVM, f"-Xms{heap}", f"-Xmx{heap}")
            command = java("kafka.Kafka", str(file), jvm=jvm)
            log = place.folder / "server.log"
            self.processes[place.node_id] = Process(command, log=log)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{place.port}" for place in self.places)

    def launch(self) -> None:
        """Start every node without waiting."""
        for process in self.processes.values():
            process.start()

    def wait_ready(self) -> None:
        for place in self.places:
            self.processes[place.node_id].wait_port(place.port, READY_TIMEOUT_S)

    def start(self) -> Self:
        self.launch()
        self.wait_ready()
        return self

    def kill(self, node_id: int = 1) -> None:
        """SIGKILL; the node keeps its data."""
        self.processes[node_id].kill()

    def up(self, node_id: int = 1) -> None:
        """Start a node again."""
        self.processes[node_id].start()
        self.processes[node_id].wait_port(self.places[node_id - 1].port, READY_TIMEOUT_S)

    def stop_nodes(self, timeout_s: float = 60.0) -> None:
        """Stop cleanly, and keep the data."""
        for process in self.processes.values():
            process.stop(timeout_s)

    def close(self) -> None:
        """End every node at once, and remove the folder if it was made here."""
        for process in self.processes.values():
            process.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _become(port: int, data: Path, heap: str) -> None:
    """Turn this process into a broker, so that whoever started it may kill it by the id it knows."""
    place = Place(node_id=1, port=port, controller_port=free_port(), folder=data)
    file = _prepare(place, [place], {})
    command = java("kafka.Kafka", str(file), jvm=(*BROKER_JVM, f"-Xms{heap}", f"-Xmx{heap}"))
    os.execvp(command[0], command)


def _serve(peer: KafkaPeer) -> None:
    with peer:
        print(f"ready {peer.bootstrap}", flush=True)
        try:
            while all(process.alive for process in peer.processes.values()):
                time.sleep(0.5)
        except KeyboardInterrupt:
            return
    sys.exit(f"a node ended; look into {peer.folder}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="A real Apache Kafka on the loopback.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="download Kafka's jars, once")
    run = commands.add_parser("run", help="serve until Ctrl-C")
    run.add_argument("--nodes", type=int, default=1)
    run.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    become = commands.add_parser("exec", help="become a one-node Kafka")
    become.add_argument("--data", type=Path, required=True)
    tool = commands.add_parser("tool", help="run one of Kafka's command-line classes")
    tool.add_argument("rest", nargs=argparse.REMAINDER, metavar="CLASS ARGS")
    for command in (run, become):
        command.add_argument("--port", type=int, required=command is become)
        command.add_argument("--heap", default="512m")
    chosen = parser.parse_args(arguments)
    match chosen.command:
        case "fetch":
            print(jars())
        case "run":
            settings = dict(pair.split("=", 1) for pair in chosen.set)
            options = {"port": chosen.port, "settings": settings, "heap": chosen.heap}
            _serve(KafkaPeer(nodes=chosen.nodes, **options))
        case "exec":
            _become(chosen.port, chosen.data, chosen.heap)
        case "tool":
            command = java(*chosen.rest)
            os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
