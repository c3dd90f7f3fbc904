"""Apache Kafka's nodes under the same faults: each broker and controller at once, behind doors as Fencepost's are.

Its jars are those of the checkout's cache (`python tests/support/kafka_peer.py fetch` downloads them), or of the folder
that FENCEPOST_TEST_KAFKA_LIBS names. Settings are Kafka's defaults, but for replication on so few nodes, and for what
Fencepost's cluster has too: min.insync.replicas is one less than the copies.

INVARIANT  no JVM of it outlives the process that started it, however that one ends.
PREVENTS   machines that fill up with half a gigabyte for each node of a run that was killed.
PROVED BY  tests/chaos/test_faults_processes.py::test_no_jvm_outlives_a_harness_that_was_killed
"""

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.node.cli.children import die_with_parent

from ..harness.processes import DidNotStart, Process, answers
from .loopback import Loopback
from .proxy import HOST
from .system import BY_ANY_CLOCK

VERSION: Final = os.environ.get("FENCEPOST_TEST_KAFKA_VERSION", "4.3.0")
LIBS: Final = "FENCEPOST_TEST_KAFKA_LIBS"
# The broker's jar names the release, else the one of its clients; what has a word behind it is no code that runs.
RELEASES: Final = tuple(
    re.compile(rf"{jar}-(\d[\w.]*(?:-(?!sources|javadoc|scaladoc|test)\w[\w.]*)*)\.jar")
    for jar in (r"kafka_\d[\d.]*", "kafka-clients")
)
CHECKOUT: Final = Path(__file__).resolve().parents[2]
FORMAT_S: Final = 120.0
CLUSTER_ID: Final = "ZmVuY2Vwb3N0LWNoYW9zMQ"
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
# As Kafka's own start script has them, with less heap: several nodes share a machine.
JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# A tool lives for a second: the cheap compiler and collector halve that second.
TOOL_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def libraries() -> Path:
    """DidNotStart, with the command that fetches them, when they are not there."""
    folder = Path(os.environ.get(LIBS, CHECKOUT / ".cache" / f"kafka-{VERSION}" / "libs"))
    if not folder.is_dir():
        raise DidNotStart(
            f"Kafka's jars are not in {folder}. Fetch them with "
            f"`python tests/support/kafka_peer.py fetch`, or name their folder in {LIBS}."
        )
    return folder


def release_of(folder: Path) -> str:
    """Of Kafka, by its jars; all of them where there are several, empty where no name tells it."""
    names = [file.name for file in folder.iterdir()]
    for pattern in RELEASES:
        if found := {match[1] for name in names if (match := pattern.fullmatch(name))}:
            return ", ".join(sorted(found))
    return ""


class KafkaProcesses(Loopback):
    """`settings` are NAME=VALUE, for all nodes."""

    name = "kafka"
    back_s = 180.0  # a JVM on a machine that is busy
    can = frozenset({"kill", "pause", "cut", "one-way", "slow"})

    def __init__(
        self, folder: Path, *, nodes: int = 3, settings: Sequence[str] = (), heap: str = "512m"
    ) -> None:
        super().__init__(folder, nodes=nodes)
        self._controllers = {node: self.door(node) for node in self.nodes}
        self._settings = dict(each.split("=", 1) for each in settings)
        self._heap = heap
        folder = libraries()
        self._path = f"{folder}/*"
        release = release_of(folder)
        self.foreign = {"kafka": release} if release else {}

    def _java(self, *arguments: str) -> list[str]:
        return [
            "java",
            *JVM,
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            QUIET,
            "-cp",
            self._path,
            *arguments,
        ]

    def _process(self, node: int) -> Process:
        folder = self.folder(node)
        folder.mkdir(parents=True, exist_ok=True)
        file = self.data / f"node-{node}.properties"
        settings = self._settings_of(node) | self._settings
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not (folder / "meta.properties").exists():
            options = ["--cluster-id", CLUSTER_ID, "--config", str(file)]
            command = ["java", *TOOL_JVM, QUIET, "-cp", self._path, "kafka.tools.StorageTool"]
            done = subprocess.run(
                [*command, "format", *options],
                capture_output=True,
                text=True,
                timeout=FORMAT_S,
                check=False,
                preexec_fn=die_with_parent,
            )
            if done.returncode != 0:
                raise DidNotStart(f"Kafka's folder {folder}: {done.stdout}{done.stderr}")
        return Process(
            self._java("kafka.Kafka", str(file)),
            log=self.log(node),
            environment=self._environment_of(node),
        )

    def _environment_of(self, node: int) -> Mapping[str, str]:
        return self._lies_to(node)

    def _settings_of(self, node: int) -> dict[str, str]:
        copies = min(len(self.nodes), 3)
        in_sync = str(max(copies - 1, 1))
        port, behind = self._controllers[node]
        quorum = ",".join(f"{n}@{HOST}:{self._controllers[n][0]}" for n in self.nodes)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": quorum,
            "listeners": f"PLAINTEXT://{HOST}:{self._behind[node]},CONTROLLER://{HOST}:{behind}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._proxied[node]},CONTROLLER://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder(node)),
            "default.replication.factor": str(copies),
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": str(copies),
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            **BY_ANY_CLOCK,
        }

    def _wait_served(self, node: int, timeout_s: float) -> None:
        """It prints nothing; its door opens when it is unfenced."""
        process, deadline = self.processes[node], time.monotonic() + timeout_s
        while not answers(self._behind[node]):
            if not process.alive:
                raise DidNotStart(
                    f"Kafka's node {node} ended with {process.exit_code}:\n{self.said(node)}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"Kafka's node {node} does not answer after {timeout_s:g} s")
            time.sleep(0.05)
