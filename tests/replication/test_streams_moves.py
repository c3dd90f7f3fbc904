"""From node to node: replicas that are added and taken away, epochs that change, topics made again."""

from asyncio import sleep

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from replica_cluster import Cluster, play, values_of
from replica_helpers import ORDERS, batch, surveyed


def test_partitions_that_are_not_on_all_their_replicas_are_counted() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=3, leaders=[1, 1, 2])
        assert surveyed(cluster[1].manager).under_replicated == 0
        cluster.change(isr=(BrokerId(1),))
        cluster.change(index=2, isr=(BrokerId(2),))
        assert surveyed(cluster[1].manager).under_replicated == 1

    play(scene)


def test_a_replica_that_is_added_is_filled_and_one_taken_away_is_deleted() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1, 2))
        for number in range(10):
            await cluster[1].write(batch(f"v{number}"))
        all_three = (BrokerId(1), BrokerId(2), BrokerId(3))
        cluster.change(replicas=all_three, adding=(BrokerId(3),))
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert len(values_of(cluster[3].partition())) == 10
        left = (BrokerId(1), BrokerId(3))
        cluster.change(replicas=left, isr=left, adding=(), removing=())
        assert cluster[2].manager.partition(ORDERS) is ErrorCode.not_leader_or_follower
        await cluster[1].write(batch("after"))
        await sleep(0.1)
        assert values_of(cluster[3].partition())[-1] == b"after"

    play(scene)


def test_what_a_follower_synced_while_its_leader_had_not_heard_of_the_new_epoch_counts() -> None:
    """1. A move ends: its leader stays, under a new epoch. 2. A follower hears of it first, and asks with what it has
    synced. 3. It syncs the rest, and says so; the leader does not know yet for whom. 4. The leader hears of the
    epoch and answers what was asked. A producer that waits for its last batches sends no more: nothing else would
    tell the leader ever."""

    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        cluster.world.disk("node-2").faults.sync_s = (0.5, 0.5)
        waiting = cluster[1].append(batch("b"))
        await cluster.until(lambda: cluster[2].partition().log_end_offset == 2)
        cluster.deaf.add(1)
        cluster.elect(1)
        await cluster.until(lambda: cluster[2].partition().machine.durable_end == 2)
        await sleep(0.1)
        cluster.deaf.clear()
        cluster.spread(1)
        await sleep(1.0)
        assert cluster[1].partition().high_watermark == waiting.last_offset + 1

    play(scene)


def test_a_topic_of_one_replica_is_written_while_it_moves() -> None:
    """Its minimum is one of one, not two of the two that it has on the way."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1,), min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.world.net.cut("node-1", "node-2")
        both = (BrokerId(2), BrokerId(1))
        cluster.change(replicas=both, adding=(BrokerId(2),), removing=(BrokerId(1),))
        assert await cluster[1].write(batch("b")) == 1
        cluster.world.net.heal_all()
        await cluster.until(lambda: 2 in cluster.state().isr)
        two = (BrokerId(2),)
        cluster.change(replicas=two, isr=two, adding=(), removing=(), leader=BrokerId(2))
        assert await cluster[2].write(batch("c")) == 2

    play(scene)


def test_a_topic_made_again_under_its_name_is_followed_anew() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        cluster.delete()
        cluster.create("other")
        await cluster[1].write(batch("b"), TopicPartition("other", 0))
        cluster.delete("other")
        assert cluster[2].replication.following._followed == {}
        stream = cluster[1].replication.leading._streams[BrokerId(2)]
        assert stream._feeds == {}

    play(scene)


def test_nothing_is_kept_of_who_asked_for_what_was_deleted() -> None:
    """A follower that is a little behind asks a leader that has heard of the deletion already, and lets go."""

    async def scene(cluster: Cluster) -> None:
        cluster.create("other", leaders=[1])
        await cluster[1].write(batch("a"), TopicPartition("other", 0))
        cluster.deaf.add(2)
        for number in range(3):
            cluster.create(f"short-{number}", leaders=[1])
            cluster.delete(f"short-{number}")
            await sleep(0.05)
        late = cluster[2]
        for happened in cluster.log[cluster.heard[2] :]:
            late.do(late.hear, happened)
            await sleep(0.05)
        stream = cluster[1].replication.leading._streams[BrokerId(2)]
        assert stream._early == {}

    play(scene)
