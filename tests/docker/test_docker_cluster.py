"""The three nodes of compose.yaml: found from within and without, killed, cut off and upgraded while clients work."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Cluster, until
from loads import (
    ContainerLoad,
    HostLoad,
    Transaction,
    check,
    create_topic,
    read_committed,
    summary,
)
from support.alone import held_to

READY_WITHIN_S = held_to(10.0)
ACKNOWLEDGED_WITHIN_S = held_to(1.0)
OTHERS_ID = 78
CUT_S = 6.0  # twice a broker's session: it is fenced, and others lead
Loads = tuple[HostLoad, ContainerLoad]


@pytest.fixture(scope="module")
def serving(cluster: Cluster) -> Cluster:
    """All three, ready; how long that took is what the first test looks at."""
    for name in cluster.names:
        cluster.make(name)
    began = time.monotonic()
    for name in cluster.names:
        cluster.nodes[name].start()
    cluster.wait_ready()
    cluster.took = time.monotonic() - began
    return cluster


@pytest.fixture
def load(serving: Cluster, tmp_path: Path) -> Iterator[Callable[..., Loads]]:
    """`load("orders")`: a client outside and one inside, at work on a new topic."""
    started: list[HostLoad | ContainerLoad] = []

    def load(topic: str, *settings: str) -> Loads:
        create_topic(serving.outside_bootstrap, topic)
        outside = HostLoad(serving, topic, f"outside-{topic}", tmp_path, settings)
        inside = ContainerLoad(serving, topic, f"inside-{topic}", settings)
        started.extend((outside, inside))
        for each in (outside, inside):
            progress(each, 20)
        return outside, inside

    yield load
    for each in started:
        each.kill()


def progress(load: HostLoad | ContainerLoad, transactions: int, seconds: float = 60.0) -> None:
    """Until so many more are committed."""
    wanted = committed(load) + transactions
    until(f"{transactions} more transactions", lambda: committed(load) >= wanted, seconds)


def committed(load: HostLoad | ContainerLoad) -> int:
    return sum(each.state == "committed" for each in load.done)


def finish(serving: Cluster, topic: str, loads: Loads) -> list[Transaction]:
    done = [each for load in loads for each in load.finish()]
    check(read_committed(serving.outside_bootstrap, topic), done)
    return done


@pytest.mark.timed
def test_three_containers_are_ready_within_ten_seconds(serving: Cluster) -> None:
    print(f"three containers ready after {serving.took:.2f} s")
    assert serving.took < READY_WITHIN_S


def test_clients_inside_and_outside_of_the_network_see_the_same_transactions(serving, load) -> None:
    done = finish(serving, "seen", load("seen"))
    assert not [each for each in done if each.errors], summary(done)


def test_a_node_that_is_killed_costs_nothing_and_doubles_nothing(serving, load) -> None:
    loads = load("killed")
    for name in serving.names[:2]:
        node = serving.nodes[name]
        node.container.kill("SIGKILL")
        assert node.wait_ended() == 137
        for each in loads:
            progress(each, 5)
        node.start()
        node.wait_ready()
    print(summary(finish(serving, "killed", loads)))


def test_a_node_that_is_cut_off_costs_nothing_and_comes_back_by_itself(serving, load) -> None:
    loads = load("cut", "socket.timeout.ms=3000")  # a client whose node falls silent waits a minute
    for name in serving.names[2:]:
        node = serving.nodes[name]
        serving.lab.network.disconnect(node.container)
        until_ready = time.monotonic() + CUT_S
        progress(loads[1], 5)
        time.sleep(max(0.0, until_ready - time.monotonic()))
        serving.lab.network.connect(node.container, aliases=[name])
        node.wait_ready()
    for each in loads:
        progress(each, 5)
    print(summary(finish(serving, "cut", loads)))


def test_a_second_container_with_a_node_id_that_is_taken_says_so_and_ends(serving: Cluster) -> None:
    environment = serving.environments["fencepost-3"] | {
        "FENCEPOST_PEER_ADVERTISED_LISTENER": "fencepost-4:9192"
    }
    twin = serving.lab.node("fencepost-4", environment, volume=serving.lab.volume())
    twin.start()
    assert twin.wait_ended(60) == OTHERS_ID, twin.said
    assert "the node id 3 is taken" in twin.said
    assert "node.id" in twin.said
    assert all(node.is_ready for node in serving.nodes.values())


@pytest.mark.timed
def test_a_rolling_upgrade_is_seen_by_no_client(serving, load, next_image) -> None:
    """The next image, one node after the other, as soon as the last one is ready; the volumes stay."""
    loads = load("upgraded")
    began = time.time()
    for name in serving.names:
        serving.replace(name, next_image)
        took = serving.nodes[name].wait_ready()
        print(f"{name} ready {took:.2f} s after it was made anew")
    for each in loads:
        progress(each, 20)
    done = finish(serving, "upgraded", loads)
    print(f"rolling upgrade in {time.time() - began:.1f} s: {summary(done)}")
    wrong = [each for each in done if each.errors or each.slowest > ACKNOWLEDGED_WITHIN_S]
    assert wrong == [], wrong
    labels = {
        serving.nodes[name].container.image.labels["org.opencontainers.image.version"]
        for name in serving.names
    }
    assert labels == {"next"}
