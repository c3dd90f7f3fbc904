"""A node that does not fit into its cluster is refused with a sentence, and the cluster goes on."""

from collections.abc import Callable
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode, LogDamaged, Trouble
from fencepost.cluster.metadata.codec import CommandUnreadable
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster

META = "/data/meta.properties"


def of_another_cluster(cluster: Cluster) -> None:
    """Its folder, with all that it knows of the metadata, comes from elsewhere."""
    cluster.world.disk(node_name(3)).files.remove_tree("/data/metadata")
    write(cluster, META, b"version=1\ncluster.id=elsewhere\nnode.id=3\n")


def put_together_from_two(cluster: Cluster) -> None:
    """Metadata of this cluster, partitions of another."""
    write(cluster, META, b"version=1\ncluster.id=elsewhere\nnode.id=3\n")


def of_another_node(cluster: Cluster) -> None:
    write(cluster, META, b"version=1\ncluster.id=elsewhere\nnode.id=2\n")


def damaged_journal(cluster: Cluster) -> None:
    """A bit flips where acknowledged entries are. Not at the end, which a crash may tear."""
    disk = cluster.world.disk(node_name(3))
    path = next(name for name, _ in disk.files.files() if name.endswith(".journal"))
    disk.files.file(path).flip(60, 3)


def write(cluster: Cluster, path: str, data: bytes) -> None:
    env = cluster.world.restart(node_name(3))
    env.disk.make_folders("/data")
    env.disk.replace(path, data)
    cluster.kill(3)


CASES: list[tuple[Callable[[Cluster], None], tuple[str, ...]]] = [
    (of_another_cluster, ("belongs to the cluster", "elsewhere")),
    (put_together_from_two, ("belongs to the cluster", "elsewhere")),
    (of_another_node, ("belongs to node 2", "this is node 3")),
    (damaged_journal, ("journal", "damaged")),
]


@pytest.mark.parametrize(("harm", "words"), CASES, ids=[each.__name__ for each, _ in CASES])
def test_a_node_that_does_not_fit_ends_with_a_sentence_and_the_cluster_goes_on(
    harm: Callable[[Cluster], None], words: tuple[str, ...]
) -> None:
    cluster = Cluster(deaths_allowed=True)

    async def scenario() -> None:
        await cluster.create("t", partitions=3)
        await cluster.nodes.stop(3)
        harm(cluster)
        cluster.nodes.start(3)
        await cluster.until(lambda: bool(cluster.world.deaths), within_s=60)
        await goes_on_without_node_3(cluster, words)

    cluster.play(scenario)


async def goes_on_without_node_3(cluster: Cluster, words: tuple[str, ...]) -> Any:
    ((name, reason),) = cluster.world.deaths
    assert name == node_name(3)
    assert isinstance(reason, Trouble), "a sentence, no stack of a defect"
    assert [word for word in words if word not in str(reason)] == []
    for partition in range(3):
        leader = cluster.partition(partition).leader
        assert leader in (1, 2)
        assert await cluster.produce(leader, partition=partition) is ErrorCode.none
    reply = await cluster.ask(1, ApiKey.describe_cluster)
    assert [each.broker_id for each in reply.brokers] == [1, 2]
    return reason


def test_an_older_build_that_meets_an_unknown_command_ends_and_the_cluster_goes_on() -> None:
    """The others have been upgraded and use what node 3 has never heard of."""
    cluster = Cluster(deaths_allowed=True)

    async def scenario() -> None:
        await cluster.create("t", partitions=3)
        machine: MetadataMachine = cluster.nodes.broker(3).machine

        def apply(_entry: bytes) -> Any:
            raise CommandUnreadable(
                "Metadata command 99 is not known to this version of Fencepost."
            )

        machine.apply = apply  # type: ignore[method-assign]
        await cluster.create("new", 1, copies=1)
        await cluster.until(lambda: bool(cluster.world.deaths))
        await cluster.until(lambda: 3 not in cluster.leaders())
        reply = await cluster.ask(1, ApiKey.metadata, topics=[{"name": "t"}])
        cluster.topic_id = reply.topics[0].topic_id
        reason = await goes_on_without_node_3(cluster, ("Metadata command 99 is not known",))
        assert not isinstance(reason, LogDamaged)

    cluster.play(scenario)


def test_a_node_with_another_secret_is_refused_by_all() -> None:
    cluster = Cluster(deaths_allowed=True)

    async def scenario() -> None:
        await cluster.create("t", partitions=3)
        await cluster.nodes.stop(3)
        cluster.nodes._config = ("peer.secret=guessed",)
        cluster.nodes.start(3)
        await cluster.until(lambda: bool(cluster.world.deaths), within_s=60)
        await goes_on_without_node_3(cluster, ("peer.secret",))

    cluster.play(scenario)
