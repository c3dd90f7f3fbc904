"""The logs of a running node are read again: what has rotted is found, named, and served by nobody."""

from asyncio import sleep

import pytest
from fencepost.chaos.sim.disk import MachineDisk
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication import first_reads
from fencepost.replication.log import scrub
from fencepost.replication.partition import HANDOVER_S, Read, Refusal
from fencepost.replication.scrubber import AGAIN_S, SHARE_MAX
from replica_cluster import Cluster, log_bytes
from replica_cluster import play as play_three
from replica_helpers import FOLDER, ORDERS, Metadata, Node, batch, bytes_of, play, said, topic_of

E = ErrorCode
LOG = f"{FOLDER}/{ORDERS}/00000000000000000000.log"
HEADER_END = 61
ONE_PASS_S = 3.0


def flip(disk: MachineDisk, number: int) -> None:
    """A bit of the batch with that number, on the disk and in the cache."""
    file = disk.files.file(LOG)
    file.flip(headers_of(bytes(file.content))[number][0] + HEADER_END + 4, 2)


async def written(node: Node, count: int) -> None:
    for number in range(count):
        await node.write(batch(f"v{number}"))


async def read_at(node: Node, offset: int) -> Read | Refusal:
    return await node.partition().read_waiting(offset, 1 << 20, isolation=0, min_one=True)


async def whole_pass(node: Node) -> None:
    await node.manager.rounds.scrubber._pass()


# -- the last copy -------------------------------------------------------------------------------------


def test_what_flipped_while_a_node_was_stopped_is_found_after_the_start() -> None:
    """The stop was clean: nobody reads the log at the start. Alone, the node serves what is well and names the rest."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"index.interval.bytes": "0"}})

        async def first(env) -> None:
            node = await Node(env, metadata).start()
            await written(node, 10)
            await node.manager.stop()

        async def second(env) -> None:
            node = await Node(env, metadata).start()
            assert node.manager.store.was_clean
            await sleep(ONE_PASS_S)
            (found,) = said(node, "log_damaged")
            assert found["partition"] == "orders-0"
            assert f"{LOG} is damaged at position" in str(found["cause"])
            assert "where offset 4 should be" in str(found["cause"])
            assert not node.manager.offline
            assert node.manager.counters.damaged_batches == 1
            before = await read_at(node, 0)
            assert isinstance(before, Read)
            assert [each.base_offset for _, each in headers_of(bytes_of(before))] == [0, 1, 2, 3]
            refused = await read_at(node, 4)
            assert isinstance(refused, Refusal) and refused.error is E.corrupt_message
            assert "Offset 5 is the next" in refused.message
            assert isinstance(await read_at(node, 5), Read)
            assert await node.write(batch("more")) == 10
            await node.manager.stop()

        async def third(env) -> None:
            node = await Node(env, metadata).start()
            refused = await read_at(node, 4)
            assert isinstance(refused, Refusal) and refused.error is E.corrupt_message

        env = world.node("a")
        world.run(world.on(env, first(env)))
        flip(world.disk("a"), 4)
        for scene in (second, third):
            env = world.restart("a")
            world.run(world.on(env, scene(env)))


def test_a_reader_that_is_quicker_than_the_scrub_is_served_nothing_damaged() -> None:
    """It asks for the damaged batch at once; it is told to ask again, and by then the scrub has looked."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"index.interval.bytes": "0"}})

        async def first(env) -> None:
            node = await Node(env, metadata).start()
            await written(node, 10)
            await node.manager.stop()

        async def second(env) -> None:
            settings = {"log.scrub.bytes.per.second": "1"}  # it would take ten minutes
            node = await Node(env, metadata, settings).start()
            partition = node.partition()
            assert partition.log.unread == (0, 10)
            refused = await read_at(node, 0)
            assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            assert "orders-0 is not what was written" in refused.message
            await sleep(2 * AGAIN_S)
            assert said(node, "log_damaged")
            before = await read_at(node, 0)
            assert isinstance(before, Read)
            assert [each.base_offset for _, each in headers_of(bytes_of(before))] == [0, 1, 2, 3]
            await node.write(batch("new"))
            assert isinstance(await read_at(node, 10), Read)

        env = world.node("a")
        world.run(world.on(env, first(env)))
        flip(world.disk("a"), 4)
        env = world.restart("a")
        world.run(world.on(env, second(env)))


def test_what_was_read_again_or_written_since_the_start_is_not_checked_for_each_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = []
    monkeypatch.setattr(first_reads, "_is_whole", lambda found: checked.append(found) or True)

    async def scene(node: Node) -> None:
        await written(node, 5)
        partition = node.partition()
        assert len(await node.read_values()) == 5
        assert not checked
        partition.log.unread = (0, 3)
        assert len(await node.read_values()) == 5
        assert checked
        await whole_pass(node)
        checked.clear()
        assert len(await node.read_values()) == 5
        assert not checked

    play(scene)


def test_a_pass_reads_all_there_is_and_finds_nothing_wrong_with_it() -> None:
    async def scene(node: Node) -> None:
        await written(node, 50)
        scrubber, counters = node.manager.rounds.scrubber, node.manager.counters
        before = counters.scrubbed_bytes
        await whole_pass(node)
        assert counters.scrubbed_bytes - before == node.partition().log.size_bytes
        assert not said(node, "log_damaged")
        await sleep(100.0)
        assert 99 < scrubber.age_s < 102

    play(scene)


def test_what_is_not_synced_is_not_looked_at() -> None:
    """It has not come to the disk yet: what would be read is memory."""

    async def scene(node: Node) -> None:
        await written(node, 3)
        log = node.partition().log
        log.recovery_point = 2
        flip(node.env.disk.machine, 2)
        await whole_pass(node)
        assert not said(node, "log_damaged")
        log.recovery_point = 3
        await whole_pass(node)
        assert said(node, "log_damaged")

    play(scene)


def test_a_log_that_is_cut_while_it_is_read_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The piece is read of a file that was shorter by then."""

    async def scene(node: Node) -> None:
        await written(node, 5)
        log = node.partition().log
        read, cuts = scrub.check_piece, []

        def cut_first(*args):
            if not cuts:
                cuts.append(args)
                log.truncate_to(2)
            return read(*args)

        monkeypatch.setattr("fencepost.replication.scrubber.check_piece", cut_first)
        await whole_pass(node)
        assert cuts
        assert not said(node, "log_damaged")

    play(scene)


@pytest.mark.parametrize("how", ["deleted", "stopped", "compacted"])
def test_a_log_that_goes_while_it_is_read_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def scene(node: Node) -> None:
        await written(node, 5)
        log = node.partition().log
        read, went = scrub.check_piece, []

        def first(*args):
            if not went:
                went.append(args)
                if how == "deleted":
                    node.metadata.delete(node.manager, "orders")
                elif how == "stopped":
                    node.partition().close(E.not_leader_or_follower)
                else:
                    del log.segments[0], log.bases[0]
            return read(*args)

        if how == "compacted":
            log.roll(0)
            await written(node, 1)
        monkeypatch.setattr("fencepost.replication.scrubber.check_piece", first)
        flip(node.env.disk.machine, 0)
        await whole_pass(node)
        assert went
        assert not said(node, "log_damaged")

    play(scene)


def test_one_bad_read_of_a_good_disk_is_read_again() -> None:
    async def scene(node: Node) -> None:
        await written(node, 5)
        node.env.disk.machine.faults.fail("read", path="*.log")
        await whole_pass(node)
        assert not said(node, "log_damaged")

    play(scene)


def test_a_disk_that_does_not_read_is_named_and_what_it_reads_is_served() -> None:
    async def scene(node: Node) -> None:
        await written(node, 5)
        node.env.disk.machine.faults.fail("read", path="*.log", times=2)
        await whole_pass(node)
        (found,) = said(node, "log_damaged")
        assert "Input/output error" in str(found["cause"])
        assert len(await node.read_values()) == 5
        await whole_pass(node)  # and it is forgotten when it is read again
        assert node.partition().log.damage == ()

    play(scene)


def test_it_keeps_to_its_rate_and_to_its_share_of_the_time() -> None:
    """A slow disk lengthens the rests; a pass of 250 KiB at 50 KiB a second takes five seconds at least."""

    async def scene(node: Node) -> None:
        for _ in range(250):
            await node.write(batch("x" * 1000))
        clock = node.env.clock
        began = clock.steady()
        await whole_pass(node)
        assert clock.steady() - began >= 5.0
        node.env.disk.machine.faults.run_s = (0.1, 0.1)
        pieces = node.partition().log.size_bytes / (scrub.PIECE_BATCHES * 1070)
        began = clock.steady()
        await whole_pass(node)
        assert clock.steady() - began >= pieces * 0.1 / SHARE_MAX

    play(scene, node_config={"log.scrub.bytes.per.second": "50000"})


def test_nothing_is_awake_between_two_passes() -> None:
    """With 300 partitions; and the second pass comes when it is due."""

    async def scene(node: Node) -> None:
        await sleep(10.0)
        counters = node.manager.counters
        await written(node, 5)
        assert counters.scrubbed_bytes == 0  # nothing was there at the start
        await sleep(50.0)
        assert counters.scrubbed_bytes == 0
        await sleep(50.0)
        assert counters.scrubbed_bytes == node.partition().log.size_bytes

    topics = topic_of("orders"), topic_of("idle", 300)
    play(scene, *topics, node_config={"log.scrub.interval.ms": "100000"})


@pytest.mark.parametrize(
    ("name", "value"), [("log.scrub.bytes.per.second", "0"), ("log.scrub.interval.ms", "-1")]
)
def test_it_can_be_turned_off(name: str, value: str) -> None:
    async def scene(node: Node) -> None:
        await written(node, 5)
        await sleep(80_000.0)
        assert node.manager.counters.scrubbed_bytes == 0

    play(scene, node_config={name: value})


# -- one of three --------------------------------------------------------------------------------------


async def begun(cluster: Cluster, count: int = 10) -> None:
    cluster.create()
    for number in range(count):
        await cluster[1].write(batch(f"v{number}"))
    await sleep(0.1)


def test_a_follower_that_is_damaged_goes_offline_at_once() -> None:
    async def scene(cluster: Cluster) -> None:
        await begun(cluster)
        await cluster.stop(2)
        flip(cluster.world.disk("node-2"), 4)
        await cluster.restart(2)
        await cluster.until(lambda: ORDERS in cluster[2].manager.offline, seconds=ONE_PASS_S)
        assert f"{LOG} is damaged at position" in cluster[2].manager.offline[ORDERS]
        assert cluster[2].manager.partition(ORDERS) is E.kafka_storage_error

    play_three(scene)


def test_a_leader_that_is_damaged_refuses_that_and_hands_over() -> None:
    """While it leads, a consumer is told to ask again (another will lead), not that the record is gone."""

    async def scene(cluster: Cluster) -> None:
        await begun(cluster)
        flip(cluster.world.disk("node-1"), 4)
        leader = cluster[1]
        await cluster.world.on(leader.env, leader.manager.rounds.scrubber._pass())
        partition = leader.partition()
        found = leader.do(partition.read, 4, 1 << 20, isolation=0, min_one=True)
        assert isinstance(found, Refusal) and found.error is E.kafka_storage_error
        assert ORDERS not in leader.manager.offline
        await sleep(HANDOVER_S)
        assert ORDERS in leader.manager.offline

    play_three(scene)


def test_of_two_damaged_copies_one_goes_on() -> None:
    """The follower is told to the controller first, and the leader sees itself alone."""

    async def scene(cluster: Cluster) -> None:
        await begun(cluster)
        for number in (1, 2):
            flip(cluster.world.disk(f"node-{number}"), 4 + number)
        cluster.kill(3)
        cluster.change(isr=(1, 2))
        for number in (1, 2):
            node = cluster[number]
            await cluster.world.on(node.env, node.manager.rounds.scrubber._pass())
        assert ORDERS in cluster[2].manager.offline
        cluster.change(isr=(1,))
        await sleep(2 * HANDOVER_S)
        assert ORDERS not in cluster[1].manager.offline
        refused = cluster[1].do(cluster[1].partition().read, 5, 1, isolation=0, min_one=True)
        assert isinstance(refused, Refusal) and refused.error is E.corrupt_message
        await cluster.restart(3)  # it joins, so somebody else has it all: now it can go
        await sleep(2 * HANDOVER_S)
        assert 3 in cluster.state().isr
        assert ORDERS in cluster[1].manager.offline

    play_three(scene)


def test_a_batch_that_no_follower_takes_is_looked_at_in_the_leaders_log() -> None:
    """It rotted in the leader's log before it was sent: no endless retries, whatever the next pass is due."""

    async def scene(cluster: Cluster) -> None:
        await begun(cluster)
        await sleep(AGAIN_S + ONE_PASS_S)  # the start's pass is over
        cluster.kill(3)
        for number in range(10):
            cluster[1].append(batch(f"more{number}"))
        await sleep(0.1)
        flip(cluster.world.disk("node-1"), 14)
        await cluster.restart(3)
        leader = cluster[1].manager
        await cluster.until(lambda: ORDERS in leader.offline, seconds=HANDOVER_S + 3)
        assert "where offset 14 should be" in leader.offline[ORDERS]
        assert cluster[3].partition().log_end_offset <= 14
        assert log_bytes(cluster[3].partition(), 10) == log_bytes(cluster[2].partition(), 10)
        said_there = [
            fields for _, event, fields in cluster[3].env.log.events if event == "following_stopped"
        ]
        assert any("the leader sent what can't be" in str(each["cause"]) for each in said_there)

    play_three(scene)
