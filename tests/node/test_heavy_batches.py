"""Batches that take long to check: unpacked and looked through on a thread, and appended in their turn."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.config_def import LONG_MAX
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.batch import CREATE_TIME, HEADER_SIZE, BatchRefused, compute_crc
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node import heavy_batches
from fencepost.node.broker import Broker
from fencepost.replication import appends
from fencepost.replication.appends import HEAVY_RECORDS, Checked
from fencepost.replication.partition import Partition
from test_broker import CLIENT, Scene

E = ErrorCode
MANY = HEAVY_RECORDS + 1


def batch(count: int, *, key: bytes | None = b"k", codec: int = 4) -> bytearray:
    return build_batch([Record(i, 0, key, b"v") for i in range(count)], compression=codec)


class Compacted(Scene):
    """A node with a compacted topic, and one connection to it."""

    async def ready(self) -> Broker:
        broker = await self.up()
        configs = [{"name": "cleanup.policy", "value": "compact"}]
        wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": []}
        reply = await self.ask(ApiKey.create_topics, topics=[{**wanted, "configs": configs}])
        assert reply.topics[0].error_code is E.none
        return broker

    async def produce_all(self, *batches: bytearray) -> list[Any]:
        """All at once on one connection, in this order."""
        client = self.client()

        async def work() -> list[Any]:
            asked = [asyncio.ensure_future(self._send(client, each)) for each in batches]
            try:
                return await asyncio.gather(*asked)
            finally:
                await client.close()

        return list(await self.world.on(self.world.node(CLIENT), work()))

    async def produce_in_one(self, *batches: bytearray) -> list[Any]:
        """All in one request. They are of one partition: nobody refuses that."""
        client = self.client()
        parts = [{"index": 0, "records": each} for each in batches]
        data = [{"name": "t", "partition_data": parts}]

        async def work() -> list[Any]:
            try:
                reply = await client.request(
                    ApiKey.produce, 9, acks=-1, timeout=1000, topic_data=data
                )
                return list(reply.responses[0].partition_responses)
            finally:
                await client.close()

        return list(await self.world.on(self.world.node(CLIENT), work()))

    async def _send(self, client: WireClient, records: bytearray) -> Any:
        part = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
        reply = await client.request(ApiKey.produce, 9, acks=-1, timeout=1000, topic_data=[part])
        return reply.responses[0].partition_responses[0]


@pytest.fixture
def off_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that were checked away from the loop."""
    seen: list[int] = []
    check = Partition.check_off_loop

    async def watched(partition: Partition, records: Any, **more: Any) -> Any:
        seen.append(len(records))
        return await check(partition, records, **more)

    monkeypatch.setattr(Partition, "check_off_loop", watched)
    return seen


def test_a_heavy_batch_keeps_its_place_before_a_light_one(off_loop: list[int]) -> None:
    scene = Compacted()

    async def scenario() -> None:
        await scene.ready()
        heavy, light = batch(MANY), batch(3, codec=0)
        answers = await scene.produce_all(heavy, light, bytearray(heavy))
        assert [each.error_code for each in answers] == [E.none] * 3
        assert [each.base_offset for each in answers] == [0, MANY, MANY + 3]
        assert off_loop == [len(heavy)] * 2

    scene.play(scenario())


def test_what_has_to_be_unpacked_is_heavy_whatever_its_size(off_loop: list[int]) -> None:
    """A few KB of zstd may hold a record with millions of headers, each to be looked at."""
    scene = Compacted()

    async def scenario() -> None:
        await scene.ready()
        headers = [("", b"")] * 100_000
        packed = build_batch([Record(0, 0, b"k", b"v", headers)], compression=4)
        assert len(packed) < 1000
        (answer,) = await scene.produce_all(packed)
        assert answer.error_code is E.none
        assert off_loop == [len(packed)]

    scene.play(scenario())


def test_what_claims_an_odd_time_is_heavy_where_nobody_looks_into_records_else() -> None:
    hour_ms = 3_600_000
    rules = appends.Rules(
        message_max_bytes=1 << 20,
        compacted=False,
        timestamp_type=CREATE_TIME,
        timestamp_before_max_ms=LONG_MAX,
        timestamp_after_max_ms=hour_ms,
        segment_bytes=1 << 30,
        codec=-1,
        asks_each=False,
    )
    packed = build_batch([Record(0, 3 * hour_ms, b"k", b"v")], compression=4)
    assert appends.is_heavy(packed, rules, now_ms=0)
    assert not appends.is_heavy(packed, rules, now_ms=3 * hour_ms)
    unpacked = build_batch([Record(0, 3 * hour_ms, b"k", b"v")])
    assert not appends.is_heavy(unpacked, rules, now_ms=0)
    packed[35:43] = (3 * hour_ms - 1).to_bytes(8)
    assert appends.is_heavy(packed, rules, now_ms=3 * hour_ms), "its latest is before its first"


def test_a_heavy_batch_is_refused_as_a_light_one_is(off_loop: list[int]) -> None:
    scene = Compacted()

    async def scenario() -> None:
        await scene.ready()
        answers = await scene.produce_all(batch(MANY, key=None), batch(3, key=None, codec=0))
        assert [each.error_code for each in answers] == [E.invalid_record] * 2
        assert len(answers[0].record_errors) == 1000
        assert len(off_loop) == 1

    scene.play(scenario())


def test_what_was_checked_under_other_rules_is_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its topic ceased to be compacted, or began to be, while the batch was on the thread."""
    scene = Compacted()

    async def scenario() -> None:
        broker = await scene.ready()
        ((_, partition),) = broker.replicas.partitions.items()
        now_ms = broker.env.clock.now_ms()
        checks: list[int] = []
        check = appends.check

        def watched(*args: Any) -> Any:
            checks.append(1)
            return check(*args)

        async def append() -> None:
            good = await partition.check_off_loop(batch(MANY), produce_version=9, now_ms=now_ms)
            assert isinstance(good, Checked)
            monkeypatch.setattr(appends, "check", watched)
            for known, again in ((good, 0), (good._replace(rules=good.rules._replace()), 1)):
                partition.append_as_leader(
                    batch(MANY), required_acks=-1, now_ms=now_ms, checked=known
                )
                assert len(checks) == again
            bad = await partition.check_off_loop(
                batch(MANY, key=None), produce_version=9, now_ms=now_ms
            )
            assert isinstance(bad, BatchRefused)

        await scene.world.on(broker.env, append())

    scene.play(scenario())


def test_a_topic_that_asks_nothing_of_a_record_has_no_heavy_batches(off_loop: list[int]) -> None:
    scene = Compacted()

    async def scenario() -> None:
        await scene.up()
        await scene.create("t")
        answers = await scene.produce_all(batch(MANY), batch(MANY, codec=0))
        assert [each.error_code for each in answers] == [E.none] * 2
        assert off_loop == []

    scene.play(scenario())


def test_what_claims_more_than_a_few_records_a_byte_is_unpacked_on_a_thread(
    off_loop: list[int],
) -> None:
    """A bomb may be behind it."""
    scene = Compacted()

    async def scenario() -> None:
        await scene.up()
        await scene.create("t")
        lying = batch(3)
        lying[23:27], lying[57:61] = (9_998).to_bytes(4), (9_999).to_bytes(4)
        lying[17:21] = compute_crc(lying, 0, len(lying)).to_bytes(4)
        answers = await scene.produce_all(lying, batch(3))
        assert [each.error_code for each in answers] == [E.invalid_record, E.none]
        assert "claims 9999 records" in answers[0].error_message
        assert answers[1].base_offset == 0
        assert off_loop == [len(lying)]

    scene.play(scenario())


class Plain(Compacted):
    """A node with a topic that asks nothing of a record."""

    async def ready(self) -> Broker:
        broker = await self.up()
        await self.create("t")
        return broker


def with_headers(count: int) -> bytearray:
    return build_batch([Record(0, 0, b"k", b"v", [("", None)] * count)])


def test_a_first_record_of_many_headers_is_heavy_on_every_topic(off_loop: list[int]) -> None:
    """349,499 of them are 1 MB, and 0.21 s."""
    scene = Plain()

    async def scenario() -> None:
        await scene.ready()
        many, few = with_headers(10_000), with_headers(8_000)
        large = build_batch([Record(0, 0, b"k", b"v" * 900_000)])
        answers = await scene.produce_all(many, few, large)
        assert [each.error_code for each in answers] == [E.none] * 3
        assert [each.base_offset for each in answers] == [0, 1, 2]
        assert off_loop == [len(many)]

    scene.play(scenario())


def test_batches_that_are_light_one_by_one_are_heavy_together(
    off_loop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 MB of them held everybody up for 12 s."""
    monkeypatch.setattr(heavy_batches, "LIGHT_STEPS_MAX", 250)
    scene = Plain()

    async def scenario() -> None:
        await scene.ready()
        batches = [batch(count, codec=0) for count in (100, 100, 100, 40, 251)]
        answers = await scene.produce_in_one(*batches)
        assert [each.error_code for each in answers] == [E.none] * 5
        assert [each.base_offset for each in answers] == [0, 100, 200, 300, 340]
        assert off_loop == [len(batches[2]), len(batches[4])]
        off_loop.clear()
        await scene.produce_all(*batches[:4])  # each in a request of its own
        assert off_loop == []

    scene.play(scenario())


def test_what_is_large_is_heavy_where_each_record_is_looked_into(off_loop: list[int]) -> None:
    """2,000 records may have 170 headers each."""
    scene = Compacted()

    async def scenario() -> None:
        await scene.ready()
        headers = [("", None)] * 60_000
        large = build_batch([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v", headers)])
        answers = await scene.produce_all(large, batch(3, codec=0))
        assert [each.error_code for each in answers] == [E.none] * 2
        assert off_loop == [len(large)]

    scene.play(scenario())


def test_the_records_that_one_request_is_told_of_are_bounded() -> None:
    """700 bytes of zstd are a thousand records without a key, of which each has a sentence."""
    scene = Compacted()

    async def scenario() -> None:
        await scene.ready()
        packed, plain = batch(MANY, key=None), batch(1, key=None, codec=0)
        answers = await scene.produce_in_one(packed, bytearray(packed), plain, bytearray(packed))
        assert {each.error_code for each in answers} == {E.invalid_record}
        told = [len(each.record_errors) for each in answers]
        assert told == [heavy_batches.RECORD_ERRORS_MAX, 0, 0, 0]
        answers = await scene.produce_in_one(plain, bytearray(plain))
        assert [len(each.record_errors) for each in answers] == [1, 1]

    scene.play(scenario())


@pytest.mark.parametrize("cut", [0, HEADER_SIZE, HEADER_SIZE + 1, HEADER_SIZE + 7, -1])
def test_the_steps_of_what_can_not_be_records_are_its_claims(cut: int) -> None:
    whole = with_headers(1_000)
    assert appends.light_steps(whole) == 1 + 6 * 1_000
    assert appends.light_steps(whole[:cut]) in (0, 1, 6_001)
    short = whole[:]
    short[HEADER_SIZE : HEADER_SIZE + 2] = b"\x94\x00"  # it says that it has 10 bytes
    assert appends.light_steps(short) == 6_001
    endless = whole[:HEADER_SIZE] + b"\xff" * 600
    assert appends.light_steps(endless) == 1
    endless[57:61] = b"\xff" * 4  # -1 records
    assert appends.light_steps(endless) == 0
    assert appends.light_steps(batch(7, codec=4)) == 0
