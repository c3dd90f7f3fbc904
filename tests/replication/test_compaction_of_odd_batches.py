"""Compaction of what clients and settings may say, though nobody would: the node and the bytes stay."""

import contextlib
import resource
from collections.abc import Iterator

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import compute_crc
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.replication.partition import Appended, Refusal
from fencepost.replication.partition_reads import Read
from replica_helpers import Node, batch, bytes_of, play


@contextlib.contextmanager
def memory_of(size: int) -> Iterator[None]:
    """Who takes more is refused, and this machine does not swap."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def lying(count: int) -> bytearray:
    made = batch("v", key=b"k", compression=4)
    made[23:27] = (count - 1).to_bytes(4, "big")
    made[57:61] = count.to_bytes(4, "big")
    made[17:21] = compute_crc(made, 0, len(made)).to_bytes(4, "big")
    return made


def test_a_batch_that_claims_more_records_than_it_has_ends_no_node() -> None:
    """Its table was made for as many as it claims: 68 GB. Such a batch is refused since, and older logs have it."""

    async def scene(node: Node) -> None:
        now_ms = node.env.clock.now_ms()
        partition = node.partition()
        written = partition.append_as_leader(
            lying(2**31 - 1), required_acks=-1, now_ms=now_ms, origin_client=False
        )
        assert isinstance(written, Appended)
        assert await partition.committed(written.last_offset) is ErrorCode.none
        node.partition().log.roll(node.env.clock.now_ms())
        changed = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        node.metadata.configure(node.manager, "orders", **changed)
        with memory_of(3 << 30):
            await node.env.clock.sleep(60)
        assert node.manager.counters.compaction_rounds == 0
        await node.write(batch("after", key=b"a"))

    play(scene)


def test_batches_that_claim_more_records_than_they_have_take_no_offsets() -> None:
    """Six of 80 bytes took 12,884,901,882, and a segment each."""

    async def scene(node: Node) -> None:
        for _ in range(6):
            refused = node.produce(lying(2**31 - 1))
            assert isinstance(refused, Refusal)
            assert refused.error is ErrorCode.invalid_record
            assert "claims 2147483647 records" in refused.message
        assert await node.write(batch("the first")) == 0

    play(scene)


@pytest.mark.parametrize("kept", [str(2**63 - 1), str(2**62)])
def test_tombstones_that_are_to_stay_for_ever_stay_and_end_no_node(kept: str) -> None:
    async def scene(node: Node) -> None:
        now = node.env.clock.now_ms
        await node.write(batch("1", key=b"k", timestamp=now()))
        await node.write(build_batch([Record(0, now(), b"k", None)]))
        await node.write(batch("1", key=b"x", timestamp=now()))
        node.partition().log.roll(now())
        await node.write(batch("2", key=b"y", timestamp=now()))
        await node.env.clock.sleep(60)
        assert node.manager.counters.compaction_rounds > 0

    play(
        scene,
        configs={
            "orders": {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0",
                "delete.retention.ms": kept,
            }
        },
    )


def test_names_of_headers_stay_what_they_are_also_where_they_are_no_text() -> None:

    async def scene(node: Node) -> None:
        now = node.env.clock.now_ms
        await node.write(batch("0", key=b"k", timestamp=now()))
        # two records: the first is superseded, so the batch is written anew
        made = build_batch(
            [Record(0, now(), b"k", b"1"), Record(1, now(), b"x", b"2", [("ab", b"h")])]
        )
        made = bytearray(bytes(made).replace(b"ab", b"\xff\xfe"))
        made[17:21] = compute_crc(made, 0, len(made)).to_bytes(4, "big")
        await node.write(made)
        await node.write(batch("3", key=b"k", timestamp=now()))
        node.partition().log.roll(now())
        await node.write(batch("2", key=b"y", timestamp=now()))
        await node.env.clock.sleep(60)
        found = await node.partition().read_waiting(0, 1 << 20, isolation=0, min_one=True)
        assert isinstance(found, Read)
        assert b"\xff\xfe" in bytes_of(found)

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})
