"""A replica that copies a log anew is told who wrote what its leader has deleted."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.peer_door import PeerStream
from fencepost.replication.log import handed_on
from fencepost.replication.partition import Appended
from fencepost.replication.stream_frames import EPOCH
from replica_campaign import known
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch

B = BrokerId
ALL = (B(1), B(2), B(3))
OPERATIONS = 40  # of its disk, from its first one on until a while after it has joined


async def delete(cluster: Cluster, offset: int, leader: int = 1) -> None:
    partition = cluster[leader].partition()
    cluster[leader].do(partition.delete_records, offset)
    assert await partition.deleted(offset) is ErrorCode.none


async def has_joined(cluster: Cluster) -> None:
    await cluster.until(lambda: 3 in cluster.state().isr)


def is_known_to(cluster: Cluster, node_id: int) -> bool:
    """Whether producer 7's second batch, at offset 1, is one that it has had."""
    cluster.elect(node_id)
    done = cluster[node_id].produce(batch("b", pid=7, sequence=1))
    assert isinstance(done, Appended)
    return done.first_offset == 1


async def deleted_down_to(cluster: Cluster, offset: int) -> None:
    """Producer 7 has written twice; of both batches nothing is left."""
    cluster.create(replicas=(1, 2), min_insync_replicas="1")
    await cluster[1].write(batch("a", pid=7, sequence=0))
    await cluster[1].write(batch("b", pid=7, sequence=1))
    await cluster[1].write(batch("c"))
    await delete(cluster, offset)


@pytest.mark.parametrize("start", [2, 3])
def test_a_retry_of_what_was_deleted_is_known_to_a_replica_that_never_had_it(start: int) -> None:
    """1. Batch 1 of producer 7 is written, and its answer lost. 2. It is deleted. 3. Another replica copies what is left (at 3: nothing),
    and leads. 4. The producer sends batch 1 again: it was written once more.
    """

    async def scene(cluster: Cluster) -> None:
        await deleted_down_to(cluster, start)
        cluster.change(replicas=ALL)
        await has_joined(cluster)
        assert is_known_to(cluster, 3)
        assert values_of(cluster[3].partition()) == [b"c"][start - 2 :]
        assert await cluster[3].write(batch("d", pid=7, sequence=2)) == 3

    play(scene)


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_it_knows_them_whenever_it_goes_down(power: bool) -> None:
    """From the moment in which it joins, though it be the last that anybody hears of it."""
    joined = []

    async def scene(cluster: Cluster, operation: int) -> None:
        await deleted_down_to(cluster, 2)
        world = cluster.world
        world.crash_at_disk_op("node-3", operation, kill=not power)
        cluster.change(replicas=ALL)
        await cluster.until(lambda: not world.is_up("node-3"))
        joined.append(3 in cluster.state().isr)
        del cluster.nodes[3]
        await cluster.restart(3)
        await has_joined(cluster)
        assert is_known_to(cluster, 3)

    for operation in range(1, OPERATIONS + 1):
        play(lambda cluster, at=operation: scene(cluster, at), seed=operation)
    assert not joined[0]
    assert joined[-1]


def test_a_log_that_begins_inside_a_batch_loses_nobody() -> None:
    """Batches come whole, so the copy begins where that batch does, below the leader's log start."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1, 2), min_insync_replicas="1")
        await cluster[1].write(batch("a", pid=7, sequence=0))
        await cluster[1].write(batch("b", pid=7, sequence=1))
        await cluster[1].write(batch("c", "d", "e"))
        await delete(cluster, 3)
        cluster.change(replicas=ALL)
        await has_joined(cluster)
        assert is_known_to(cluster, 3)

    play(scene)


def test_what_the_two_know_is_the_same_with_transactions_that_are_open_and_ended() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1, 2), min_insync_replicas="1")
        for sequence in range(7):
            await cluster[1].write(batch("a", pid=7, sequence=sequence))
            await cluster[1].write(batch("t", pid=8, sequence=sequence, transactional=True))
        await cluster[1].write(batch("x", pid=9, epoch=3, sequence=0))
        await delete(cluster, 9)
        cluster.change(replicas=ALL)
        await has_joined(cluster)
        theirs, ours = (known(cluster[each].partition().producers.states()) for each in (1, 3))
        assert ours == theirs
        assert ours[8].txn_first_offset == 1
        assert cluster[3].partition().last_stable_offset == 9

    play(scene)


def test_followers_of_an_older_build_are_told_nothing_that_they_do_not_know() -> None:
    async def scene(cluster: Cluster) -> None:
        await deleted_down_to(cluster, 2)
        door = cluster[3].door
        open_stream = door.open_stream

        async def as_an_older_one_does(node_id: BrokerId, kind: str, hello: Any) -> PeerStream:
            return await open_stream(node_id, kind, {EPOCH: hello[EPOCH]})

        door.open_stream = as_an_older_one_does  # type: ignore[method-assign]
        cluster.change(replicas=ALL)
        await has_joined(cluster)
        assert values_of(cluster[3].partition()) == [b"c"]
        assert not len(cluster[3].partition().producers)

    play(scene)


def test_it_waits_to_join_until_it_knows_them(monkeypatch) -> None:
    """Else it may be elected in between, where nothing is left to copy."""
    take, took = handed_on.take, []

    def no_room_yet(log, data: bytes) -> None:
        took.append(data)
        if len(took) < 3:
            raise OSError(28, "No space left on device")
        take(log, data)

    monkeypatch.setattr(handed_on, "take", no_room_yet)

    async def scene(cluster: Cluster) -> None:
        await deleted_down_to(cluster, 3)
        cluster.change(replicas=ALL)
        await has_joined(cluster)
        assert is_known_to(cluster, 3)
        said = [event for _, event, _ in cluster.world.machine("node-1").events]
        assert said.count("isr_expands") == 1
        assert "isr_shrinks" not in said

    play(scene)
