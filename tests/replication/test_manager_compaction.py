"""Rounds of compaction over a broker's partitions, and topics that can't be compacted."""

import errno
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.batch import compute_crc
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.replication.log import compaction
from replica_helpers import ME, Node, batch, play

RESTS_S = 15.0  # log.cleaner.backoff.ms


def test_a_topic_that_can_not_be_compacted_says_so_and_the_node_goes_on() -> None:
    """It was not compacted when a client wrote a record, the second of its batch, whose header claims too much."""

    async def scene(node: Node) -> None:
        now_ms = node.env.clock.now_ms()
        records = [Record(i, now_ms, b"k", b"v", [("name", b"x")]) for i in range(2)]
        lying = build_batch(records)
        lying[-7] = 126  # the length of the last header's name
        lying[17:21] = compute_crc(lying, 0, len(lying)).to_bytes(4, "big")
        await node.write(lying)
        node.partition().log.roll(now_ms)
        changed = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        node.metadata.configure(node.manager, "orders", **changed)
        await node.env.clock.sleep(60)
        events = [line for line in node.env.machine.events if "compaction_failed" in str(line)]
        assert events
        assert await node.partition().list_offset_waiting(now_ms, 0) == (0, now_ms, 1)
        await node.write(batch("goes on", key=b"k"))

    play(scene)


def test_a_compaction_that_fails_half_way_takes_its_partition_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leads until somebody is told: all that is written there would be refused, with everybody in sync."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fencepost.replication.log.compaction.rename_all", refuse)

    async def scene(node: Node) -> None:
        for number in range(6):
            await node.write(batch(str(number), key=b"k", timestamp=node.env.clock.now_ms()))
            if number == 4:
                node.partition().log.roll(node.env.clock.now_ms())
        place = node.partition().topic_partition
        await node.env.clock.sleep(60)
        assert node.manager.partition(place) is ErrorCode.kafka_storage_error
        ((failed, cause),) = node.manager.offline.items()
        assert (str(failed), "half-way" in str(cause)) == ("orders-0", True)

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


@pytest.mark.parametrize("way", ["log.compaction.compact", "rounds.know_ages"])
def test_a_log_that_is_removed_while_a_round_is_at_it_has_not_failed(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved to other nodes: an error, and one more for the alert, of files that nobody misses."""

    async def scene(node: Node) -> None:
        went = []

        def goes(*_: Any, **__: Any) -> None:
            node.partition().log.removed = True
            went.append(way)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

        monkeypatch.setattr(f"fencepost.replication.{way}", goes)
        for number in range(6):
            await node.write(batch(str(number), key=b"k", timestamp=node.env.clock.now_ms()))
            if number == 4:
                node.partition().log.roll(node.env.clock.now_ms())
        await node.env.clock.sleep(400)
        assert went
        told = [event for _, event, _ in node.env.machine.events]
        assert not {"compaction_failed", "retention_failed"} & {*told}
        assert not any(node.manager.counters.round_failures.values())
        assert not node.manager.offline

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


def test_a_compacted_topic_is_compacted_in_its_round() -> None:
    async def scene(node: Node) -> None:
        for number in range(6):
            await node.write(batch(str(number), key=b"k", timestamp=node.env.clock.now_ms()))
            if number == 4:
                node.partition().log.roll(node.env.clock.now_ms())
        await node.env.clock.sleep(60)
        assert await node.read_values() == [b"4", b"5"]
        assert node.manager.counters.compaction_rounds > 0

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


def test_a_log_of_more_keys_than_fit_a_round_is_done_with_before_the_node_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken for done with after the first round, until somebody wrote or retention looked."""
    assert compaction.compact.__kwdefaults__ is not None
    monkeypatch.setitem(compaction.compact.__kwdefaults__, "map_bytes", 0)  # a dozen keys

    async def scene(node: Node) -> None:
        for number in range(100):
            now_ms = node.env.clock.now_ms()
            await node.write(batch(str(number), key=f"k{number % 50}".encode(), timestamp=now_ms))
        node.partition().log.roll(node.env.clock.now_ms())
        await node.env.clock.sleep(RESTS_S + 1)
        assert node.partition().log.cleaned_to == 100
        assert await node.read_values() == [str(number).encode() for number in range(50, 100)]

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


def test_what_is_committed_after_a_round_has_looked_at_the_log_is_compacted_in_the_next() -> None:
    """Nobody wrote any more: a log that could not be compacted when it was last looked at was taken for done with."""

    async def scene(node: Node) -> None:
        two, partition = (ME, BrokerId(2)), node.partition()
        node.metadata.change(node.manager, "orders", replicas=two, isr=two)
        for number in range(6):
            now_ms = node.env.clock.now_ms()
            node.produce(batch(str(number), key=b"k", timestamp=now_ms), acks=1)
            if number == 4:
                partition.log.roll(now_ms)
        await node.env.clock.sleep(RESTS_S + 1)
        assert (partition.high_watermark, partition.log.cleaned_to) == (0, -1)
        node.metadata.change(node.manager, "orders", isr=(ME,))
        await node.env.clock.sleep(RESTS_S + 1)
        assert await node.read_values() == [b"4", b"5"]

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


@pytest.mark.parametrize("is_away", [True, False])
def test_tombstones_are_kept_for_a_replica_that_is_away(*, is_away: bool) -> None:
    """It has what they delete, and could not copy them any more (`delete.retention.ms` may be over before it is back)."""

    async def scene(node: Node) -> None:
        there = (ME, BrokerId(2)) if is_away else (ME,)
        node.metadata.change(node.manager, "orders", replicas=there, isr=(ME,))
        for key, value in ((b"k", None), (b"a", b"1"), (b"b", b"2"), (b"c", b"3")):
            now_ms = node.env.clock.now_ms()
            await node.write(bytes(build_batch([Record(0, now_ms, key, value)])))
            node.partition().log.roll(now_ms)
            await node.env.clock.sleep(60)
        tombstone = [b""] if is_away else []
        assert await node.read_values() == [*tombstone, b"1", b"2", b"3"]

    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    }
    play(scene, configs={"orders": configs})


@pytest.mark.parametrize("moment", range(5))
def test_a_tombstone_stays_for_a_replica_that_is_added_while_a_round_is_under_way(
    monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Whichever work off the loop it comes in.

    1. A follower begins a round, and everybody is in sync.
    2. A replica is added; the leader, which has not compacted, sends it the value.
    3. The follower's round drops the tombstone of that value.
    4. The leader dies, the follower leads: the new replica goes on behind the tombstone, and keeps the value.
    """

    async def scene(node: Node) -> None:
        partition = node.partition()
        for key, value in ((b"k", None), (b"a", b"1"), (b"b", b"2")):
            now_ms = node.env.clock.now_ms()
            await node.write(bytes(build_batch([Record(0, now_ms, key, value)])))
            partition.log.roll(now_ms)
        await node.env.clock.sleep(20)
        assert (await node.read_values())[0] == b"", "it has its horizon now"
        await node.write(batch("3", key=b"c", timestamp=node.env.clock.now_ms()))
        partition.log.roll(node.env.clock.now_ms())
        found: list[list[bytes]] = []
        right, works = node.env.disk.run, 0

        async def run(work: Any, *given: Any) -> Any:
            nonlocal works
            if partition.log.cleaning:
                works += 1
                if works == moment + 1:
                    found.append(await node.read_values())
                    node.metadata.change(node.manager, "orders", replicas=(ME, BrokerId(2)))
            return await right(work, *given)

        monkeypatch.setattr(node.env.disk, "run", run)
        await node.env.clock.sleep(20)
        assert found, "the round has so much work"
        assert await node.read_values() == found[0]
        assert found[0][0] == b"", "it comes before the swap"
        node.metadata.change(node.manager, "orders", replicas=(ME,), isr=(ME,))
        await node.write(batch("4", key=b"d", timestamp=node.env.clock.now_ms()))
        partition.log.roll(node.env.clock.now_ms())
        await node.env.clock.sleep(20)
        assert (await node.read_values())[0] == b"1", "nobody lacks it, so it goes"

    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    }
    play(scene, configs={"orders": configs})
