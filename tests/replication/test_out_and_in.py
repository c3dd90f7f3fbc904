"""A replica that is taken out of a compacted partition and put in again, without having lived through it."""

from asyncio import sleep
from collections.abc import Callable
from typing import Any

import pytest
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import Record, build_batch
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch
from test_partition_waits import marker

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (ONE, TWO, THREE)
ROUND_S = 20  # of compaction
WHEN = pytest.mark.parametrize("when", ["down", "up", "leaping"])


async def write(cluster: Cluster, key: bytes, value: bytes | None) -> None:
    now_ms = cluster[1].env.clock.now_ms()
    await cluster[1].write(bytes(build_batch([Record(0, now_ms, key, value)])))


async def compacted(cluster: Cluster) -> None:
    """Until what is deleted is forgotten."""
    for key in (b"a", b"b", b"c", b"d"):
        await write(cluster, key, key)
        await sleep(0.1)
        for each in (1, 2):
            cluster[each].do(cluster[each].partition().log.roll, cluster[each].env.clock.now_ms())
        await sleep(ROUND_S)


def create(cluster: Cluster, policy: str = "compact") -> None:
    cluster.create(
        leaders=[1], cleanup_policy=policy, min_cleanable_dirty_ratio="0", delete_retention_ms="0",
        min_insync_replicas="2",
    )  # fmt: skip


def put_back(cluster: Cluster) -> None:
    cluster.change(replicas=ALL, isr=(ONE, TWO), adding=(THREE,))


async def out_and_in(cluster: Cluster, when: str, meanwhile: Callable[[], Any]) -> None:
    """Node 3 is away, down or deaf to the metadata; what it has not heard of is forgotten; it is back before or after it is put in."""
    if when == "leaping":
        cluster.world.net.cut("node-1", "node-3")
        cluster.world.net.cut("node-2", "node-3")
        cluster.deaf.add(3)
    else:
        cluster.kill(3)
    cluster.change(isr=(ONE, TWO))
    await meanwhile()
    cluster.change(replicas=(ONE, TWO))
    await compacted(cluster)
    if when == "up":
        await cluster.restart(3)
        await sleep(5)
    put_back(cluster)
    if when == "down":
        await cluster.restart(3)
    if when == "leaping":
        cluster.deaf.discard(3)
        leap(cluster, 3)
        cluster.world.net.heal_all()
    await cluster.until(lambda: 3 in cluster.state().isr)
    await sleep(1)


def leap(cluster: Cluster, node_id: int) -> None:
    """A snapshot has what came of many entries, and not each of them."""
    last = cluster.log[-1]
    cluster.heard[node_id] = len(cluster.log)
    cluster[node_id].do(cluster[node_id].hear, last)


@WHEN
def test_a_replica_that_was_taken_out_while_it_was_down_begins_anew(when: str) -> None:
    async def scene(cluster: Cluster) -> None:
        create(cluster)
        await write(cluster, b"k", b"v")
        await sleep(1)
        await out_and_in(cluster, when, lambda: write(cluster, b"k", None))
        assert b"v" not in values_of(cluster[3].partition()), "a deleted key is back"

    play(scene)


@WHEN
def test_no_aborted_transaction_is_back_as_a_committed_one(when: str) -> None:
    async def scene(cluster: Cluster) -> None:
        create(cluster)
        now = cluster[1].env.clock.now_ms

        def opened(value: str, sequence: int) -> bytes:
            more = {"pid": 7, "sequence": sequence, "transactional": True, "timestamp": now()}
            return batch(value, key=b"t%d" % min(sequence, 1), **more)

        def end(*, commit: bool) -> None:
            how = {"required_acks": -1, "now_ms": now(), "origin_client": False}
            leader = cluster[1].partition()
            cluster[1].do(leader.append_as_leader, marker(7, commit=commit), **how)

        async def aborted_and_gone_on() -> None:
            end(commit=False)
            for number in range(1, 7):  # so that the producer needs none of the first any more
                await cluster[1].write(opened("later", number))
            end(commit=True)

        await write(cluster, b"k", b"v")
        await cluster[1].write(opened("aborted", 0))
        await sleep(1)
        await out_and_in(cluster, when, aborted_and_gone_on)
        third = cluster[3].partition()
        cluster.elect(3)
        await sleep(2)
        assert third.last_stable_offset == third.high_watermark
        is_told = third.log.aborted_between(0, third.high_watermark)
        assert is_told or b"aborted" not in values_of(third)

    play(scene)


@pytest.mark.parametrize("why", ["in sync", "eligible", "not compacted"])
def test_what_counts_or_can_have_missed_nothing_is_kept_over_a_restart(why: str) -> None:
    """It joined while others of its move have still to come; or only deletion takes what is in its partition."""

    async def scene(cluster: Cluster) -> None:
        create(cluster, "delete" if why == "not compacted" else "compact")
        cluster.change(replicas=(ONE, TWO), isr=(ONE, TWO))
        await sleep(1)
        await write(cluster, b"k", b"v")
        put_back(cluster)
        await cluster.until(lambda: 3 in cluster.state().isr)
        cluster.kill(3)
        isr, elr = {"in sync": (ALL, ()), "eligible": ((ONE, TWO), (THREE,))}.get(
            why, ((ONE, TWO), ())
        )
        cluster.change(isr=isr, elr=elr)
        cluster.world.net.cut("node-1", "node-3")
        await cluster.restart(3)
        assert cluster[3].partition().log.log_end_offset == 1, "it began anew"

    play(scene)


def test_what_may_be_all_that_is_left_is_kept_until_somebody_leads() -> None:
    """The only copy was on its way here when its node was lost; this one is restarted, and a person may elect it."""

    async def scene(cluster: Cluster) -> None:
        create(cluster)
        cluster.change(replicas=(ONE, TWO), isr=(ONE, TWO))
        await sleep(1)
        await write(cluster, b"k", b"v")
        put_back(cluster)
        await cluster.until(lambda: 3 in cluster.state().isr)
        cluster.kill(3)
        cluster.change(isr=(ONE, TWO))
        cluster.kill(1)
        cluster.kill(2)
        cluster.change(leader=BrokerId(-1), isr=(ONE,))
        await cluster.restart(3)
        assert cluster[3].partition().log.log_end_offset == 1
        await cluster.restart(1)
        cluster.elect(1)
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert cluster[3].manager.counters.truncations == 0
        assert values_of(cluster[3].partition()) == [b"v"]
        cluster.kill(3)
        cluster.change(leader=BrokerId(-1), isr=(ONE,))
        await cluster.restart(3)
        cluster.elect(3, isr=(THREE,))
        await sleep(1)
        assert values_of(cluster[3].partition()) == [b"v"], "elected by a person"

    play(scene)
