"""Who is eligible to lead (the ELR) has all that was committed, though all of it is deleted: it is not made to forget who wrote that."""

from asyncio import sleep

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.partition import Appended, Refusal
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch

TWO = (BrokerId(1), BrokerId(2))
TRIES = 20  # more than a new leader sends back of one that it does not know


async def all_is_deleted(cluster: Cluster) -> None:
    """Producer 7 has written twice, and both have all of it; of both batches nothing is left."""
    cluster.create(replicas=(1, 2), min_insync_replicas="2")
    await cluster[1].write(batch("a", pid=7, sequence=0))
    await cluster[1].write(batch("b", pid=7, sequence=1))
    await cluster[1].write(batch("c"))
    leader = cluster[1].partition()
    cluster[1].do(leader.delete_records, 3)
    assert await leader.deleted(3) is ErrorCode.none


async def comes_back_to_a_later_epoch(cluster: Cluster, node_id: int, leader: int) -> None:
    """It is eligible meanwhile, as too few are in sync; the leader's log begins with its own epoch."""
    cluster.elect(leader, isr=(BrokerId(leader),), elr=(BrokerId(node_id),))
    cluster[leader].append(batch("d"))
    await cluster.restart(node_id)


def retried(cluster: Cluster, node_id: int) -> Appended:
    """Producer 7 sends its second batch again, as often as it is sent back."""
    for _ in range(TRIES):
        done = cluster[node_id].produce(batch("b", pid=7, sequence=1), acks=1)
        if isinstance(done, Appended):
            return done
        assert isinstance(done, Refusal)
    raise AssertionError(f"it was sent back {TRIES} times")


def test_one_that_is_eligible_knows_who_wrote_what_was_deleted_while_it_may_lead() -> None:
    """1. Batch 1 of producer 7 is written, its answer lost, and all is deleted. 2. Node 2 goes, and is eligible, as one is too few. 3. Node 1
    leads in another epoch, and writes. 4. Node 2 is back, and was told to begin anew. 5. Node 1 dies, before it has told who wrote what
    was deleted. 6. Node 2 leads, knowing nobody, and takes batch 1 once more.
    """

    async def scene(cluster: Cluster) -> None:
        await all_is_deleted(cluster)
        await cluster.stop(2)
        cluster.answer = lambda _node, _wish: ErrorCode.ineligible_replica  # it stays eligible
        await comes_back_to_a_later_epoch(cluster, 2, leader=1)
        second = cluster[2].partition()
        while not second.log.begins and second.log_end_offset == 3:
            await sleep(0.0001)  # less than it takes to be told anything
        cluster.kill(1)
        cluster.elect(2, isr=(BrokerId(2),), elr=(BrokerId(1),))
        assert retried(cluster, 2).first_offset == 1

    play(scene)


def test_what_one_that_is_eligible_had_alone_is_cut_from_it_where_all_else_is_deleted() -> None:
    """And with it the producer that wrote it; not those of what was committed."""

    async def scene(cluster: Cluster) -> None:
        await all_is_deleted(cluster)
        cluster.elect(2)
        await cluster.until(lambda: not cluster[1].partition().is_leader)
        cluster.kill(1)
        cluster[2].append(batch("alone", pid=9, sequence=0))
        cluster.kill(2)
        await cluster.restart(1)
        await comes_back_to_a_later_epoch(cluster, 2, leader=1)
        await cluster.until(lambda: cluster.state().isr == TWO)
        assert values_of(cluster[2].partition()) == [b"d"]
        assert [each.producer_id for each in cluster[2].partition().producers.states()] == [7]
        cluster.elect(2)
        assert retried(cluster, 2).first_offset == 1

    play(scene)
