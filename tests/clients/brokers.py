"""Whom the suites meet, and a cluster whose leaders die in the background.

FENCEPOST_TEST_AGAINST   fencepost       a new `fencepost dev` (the default)
                         cluster         a new `fencepost dev --nodes 3`
                         cluster-chaos   the same, with its leaders killed and started again all the while
                         kafka           a real Kafka, which is fetched
                         kafka-cluster   three of them
FENCEPOST_TEST_SEED      1 …             who is killed when, in chaos
FENCEPOST_TEST_BOOTSTRAP host:port,…     what runs there, FENCEPOST_TEST_NODES of them (1)
"""

import math
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fencepost.chaos.harness import asking
from fencepost.chaos.harness.local_cluster import LocalCluster, wait_for
from support.fencepost_process import fencepost
from support.kafka_peer import KafkaPeer, NotFetched
from support.needs import give_up, missing

CHOICES = ("fencepost", "cluster", "cluster-chaos", "kafka", "kafka-cluster")
AGAINST = os.environ.get("FENCEPOST_TEST_AGAINST", "fencepost")
# The programs in other languages read the variable too.
NODES = int(os.environ.setdefault("FENCEPOST_TEST_NODES", "3" if "cluster" in AGAINST else "1"))
COPIES = min(NODES, 3)  # of a topic's partitions
IN_CHAOS = AGAINST == "cluster-chaos"
# How long a client may take. A member whose coordinator dies in the middle of a rebalance may have to wait for a
# session to end, and then the next one dies.
WAIT_S = 75 if IN_CHAOS else 30
IN_SYNC_S = 60.0
LOG_TAIL = 3_000
LOGGED_MAX = 20  # lines


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """How `fencepost dev` is told the same: FENCEPOST_GROUP_INITIAL_REBALANCE_DELAY_MS=0."""
    return {f"FENCEPOST_{name.upper().replace('.', '_')}": v for name, v in settings.items()}


LOGS: list[Callable[[], str]] = []  # of the session's node: what it has said


def logged(name: str) -> list[str]:
    """The last lines of the log that tell of this name."""
    return [line for log in LOGS for line in log().splitlines() if name in line][-LOGGED_MAX:]


@contextmanager
def brokers(settings: Mapping[str, str]) -> Iterator[str]:
    """Their bootstrap address, while they run."""
    assert AGAINST in CHOICES, f"FENCEPOST_TEST_AGAINST={AGAINST}: one of {', '.join(CHOICES)}"
    address = os.environ.get("FENCEPOST_TEST_BOOTSTRAP")
    if address is not None:
        yield address
    elif AGAINST.startswith("kafka"):
        with kafka(settings) as address:
            yield address
    elif NODES > 1:
        with cluster(settings) as address:
            yield address
    else:
        with fencepost(environment=as_variables(settings)) as node:
            LOGS.append(node.process.said)
            yield node.bootstrap


@contextmanager
def kafka(settings: Mapping[str, str]) -> Iterator[str]:
    if reason := missing("kafka"):
        give_up(reason)
    try:
        peer = KafkaPeer(nodes=NODES, settings=settings)
    except NotFetched as error:
        give_up(str(error))
    with peer:
        yield peer.bootstrap


@contextmanager
def cluster(settings: Mapping[str, str]) -> Iterator[str]:
    """A node that ends by itself fails the session, whatever the clients made of that."""
    folder = Path(tempfile.mkdtemp(prefix="fencepost-clients-"))
    nodes = LocalCluster(folder / "data", nodes=NODES, environment=as_variables(settings))
    try:
        with nodes:
            leaders_die = LeadersDie(nodes) if IN_CHAOS else None
            if leaders_die:
                leaders_die.start()
            try:
                yield nodes.bootstrap
            finally:
                if leaders_die:
                    leaders_die.end()
            assert nodes.awake == list(nodes.nodes), f"a node died:\n{nodes.said()[-LOG_TAIL:]}"
            exit_code = nodes.stop()
            assert exit_code == 0, f"exit code {exit_code}:\n{nodes.said()[-LOG_TAIL:]}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Death:
    """When the node at this address was not there, by the wall clock."""

    address: str
    began: float
    ended: float = math.inf


DEATHS: list[Death] = []
NOTICED_S = 2.0  # so much later a client may say that its broker is gone


def died(address: str | None, began: float, ended: float) -> bool:
    """Whether this node, or any, was dead at some moment of that time: only then may a client give up a request."""
    return any(
        address in (None, death.address) and death.began <= ended and began <= death.ended
        for death in DEATHS
    )


class LeadersDie(threading.Thread):
    """Kills one node, lets the others go on, starts it again, waits until all replicas have caught up."""

    def __init__(self, nodes: LocalCluster) -> None:
        super().__init__(name="leaders-die", daemon=True)
        self.nodes = nodes
        self.killed = 0
        self.failure: BaseException | None = None
        self._over = threading.Event()
        self._rng = random.Random(os.environ.get("FENCEPOST_TEST_SEED", "1"))

    def run(self) -> None:
        try:
            while not self._over.wait(self._rng.uniform(1.0, 4.0)):
                self._strike()
        except BaseException as failure:  # noqa: BLE001 - `end` raises it where the test run hears it
            self.failure = failure

    def _strike(self) -> None:
        node = self._victim()
        death = Death(self.nodes.bootstrap_of(node), time.time())
        DEATHS.append(death)
        self.nodes.kill(node)
        self.killed += 1
        time.sleep(self._rng.uniform(0.0, 2.0))
        self.nodes.start_again(node)
        death.ended = time.time()
        wait_for("all replicas in sync", self._in_sync, IN_SYNC_S)

    def _victim(self) -> int:
        """In turn the active controller, and whoever leads something that clients use."""
        if self._rng.random() < 0.3 and (leader := self.nodes.quorum_leader()) > 0:
            return leader
        leaders = [
            each.leader for each in asking.partitions(self.nodes.addresses) if each.leader > 0
        ]
        return self._rng.choice(leaders or list(self.nodes.nodes))

    def _in_sync(self) -> bool:
        found = asking.partitions(self.nodes.addresses)
        return all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in found)

    def end(self) -> None:
        self._over.set()
        self.join()
        if self.failure is not None:
            raise AssertionError(f"chaos ended with:\n{self.nodes.said()}") from self.failure
        print(f"{self.killed} leaders were killed")


# What a producer must be told so that nothing is lost or doubled when its broker dies.
SAFE: dict[str, object] = {"enable_idempotence": True, "acks": "all"} if IN_CHAOS else {}
unsafe = pytest.mark.skipif(
    IN_CHAOS, reason="with acks 0 or 1 what only a dead leader had is lost, in Kafka too"
)
calm = pytest.mark.skipif(
    IN_CHAOS,
    reason="asks every node, says who leads or trusts one replica: not while leaders die",
)
