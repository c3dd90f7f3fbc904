"""All logs of a node together: clean stops, crashes at any moment, and ten thousand partitions."""

import random
from uuid import UUID

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log import hints
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.store import LogStore
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_helpers import (
    FOLDER,
    PARTITION,
    START_MS,
    TOPIC_ID,
    Node,
    append,
    batch_at,
    produce,
    read_all,
    run,
)


def test_a_clean_stop_lets_the_next_start_touch_no_log() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 90, producer_id=4, producer_epoch=0, base_sequence=-1)
        data = read_all(log)
        await node.stop()
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        assert store.was_clean
        disk = world.disk("n1")
        disk.faults.fail("open", times=100)
        disk.faults.fail("read", times=100)
        log = store.open(PARTITION, TOPIC_ID, node.config)
        assert (log.log_end_offset, log.recovery_point) == (90, 90)
        assert log.first_unstable_offset is None and log.latest_epoch == 0
        disk.faults.heal()
        await store.opened([log])
        assert read_all(log) == data
        assert log.producers.states()[0].producer_id == 4

    run(scenario)


def test_hints_are_not_believed_twice() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3)
        await node.stop()
        node.env = world.restart("n1")
        await node.start()
        assert node.store.was_clean
        for how in ("crash", "kill"):
            produce(node.log, 2)
            await node.sync()
            end = node.log.log_end_offset
            await node.restart(how)
            assert not node.store.was_clean
            assert node.log.log_end_offset == end

    run(scenario)


def test_the_marker_is_gone_before_the_first_write_and_there_only_after_the_last() -> None:
    """A stop or start that is cut short at any disk operation is not a clean one, or changed nothing."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        number = 0
        for step in range(1, 45):
            produce(node.log, 1)
            await node.sync()
            number = node.log.log_end_offset
            world.crash_at_disk_op("n1", step, kill=step % 2 == 0)
            try:
                await world.on(node.env, node.store.stop([node.log]))
                node.env = world.restart("n1")
                await world.on(node.env, node.start())
            except NodeLost:
                node.env = world.restart("n1")
                await node.start()
            world.heal()
            assert node.log.log_end_offset == number, f"step {step}"
            assert len(read_all(node.log)) == 90 * number
        assert number == 44

    run(scenario)


def test_a_damaged_marker_is_no_marker() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3)
        for at in (0, 5, 9, 30):
            await node.stop()
            node.env = world.restart("n1")
            path = f"{FOLDER}/{hints.FILE_NAME}"
            data = bytearray(node.env.disk.read_all(path))
            data[at] ^= 1
            node.env.disk.replace(path, bytes(data))
            await node.start()
            assert not node.store.was_clean
            assert node.log.log_end_offset == 3

    run(scenario)


def test_a_topic_made_again_under_its_name_does_not_get_the_old_ones_hint() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3)
        await node.stop()
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        assert store.open(PARTITION, UUID(int=9), node.config).log_end_offset == 0

    run(scenario)


@pytest.mark.slow
@given(st.integers(0, 10_000))
@example(899)  # two that are set aside in one millisecond
@settings(max_examples=60)
def test_whatever_a_crash_leaves_what_was_synced_is_there(seed: int) -> None:
    """Writes, syncs, checkpoints, truncations, rolls and retention, ended by a torn power cut or a kill, again
    and again. What was synced is there, in order, once; what was truncated or deleted durably stays away.
    """

    async def scenario(world: World) -> None:
        rng = random.Random(seed)
        node = Node(world, segment_bytes=rng.choice([300, 900, 5000]), retention_bytes=2000)
        node.config.index_interval_bytes = rng.choice([1, 200, 4096])
        await node.start()
        written: dict[int, bytes] = {}  # by offset, since it was last truncated
        for life in range(4):
            promised = _Promise()
            if rng.random() < 0.8:
                kill = rng.random() < 0.3
                world.crash_at_disk_op("n1", rng.randint(1, 60), kill=kill)
            try:
                await world.on(node.env, _live(node, rng, written, promised, life))
                node.down(rng.choice(["crash", "kill"]))
            except NodeLost:
                pass
            world.heal()
            node.env = world.restart("n1")
            log = await node.start()
            assert log.log_end_offset >= promised.end
            assert log.log_start_offset <= max(promised.start, promised.end)
            data = read_all(log)
            found = {at * 1: data[at * 90 :][:90] for at in range(len(data) // 90)}
            for at, batch in found.items():
                offset = log.log_start_offset + at
                possible = [*promised.cut.get(offset, []), written.get(offset)]
                assert batch in possible, f"offset {offset}"
            written = {log.log_start_offset + at: batch for at, batch in found.items()}

    run(scenario, seed)


class _Promise:
    """What has been told to be durable, and what may be there instead because a cut was under way."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.cut: dict[int, list[bytes | None]] = {}


async def _live(
    node: Node, rng: random.Random, written: dict[int, bytes], promised: _Promise, life: int
) -> None:
    log = node.log
    promised.end, promised.start = log.log_end_offset, log.log_start_offset
    for number in range(rng.randint(5, 40)):
        choice = rng.random()
        if choice < 0.55:
            for _ in range(rng.randint(1, 4)):
                end = log.log_end_offset
                batch = batch_at(end, timestamp=START_MS + life * 1000 + number, leader_epoch=life)
                if end in written:
                    promised.cut.setdefault(end, []).append(written[end])
                written[end] = batch
                append(log, batch)
        elif choice < 0.75:
            end = log.log_end_offset
            await node.sync()
            promised.end = max(promised.end, end)
        elif choice < 0.85:
            await node.store.checkpoint()
        elif choice < 0.9:
            log.roll(START_MS)
        elif choice < 0.95:
            target = max(log.log_end_offset - rng.randint(0, 6), log.log_start_offset)
            promised.end = min(promised.end, target)
            log.truncate_to(target)
        else:
            promised.start = log.log_start_offset
            log.apply_retention(START_MS, log.recovery_point)
            promised.start = log.log_start_offset
            promised.end = max(promised.end, promised.start)


@pytest.mark.slow
def test_ten_thousand_partitions_start_without_a_file_each() -> None:
    async def scenario(world: World) -> None:
        env = world.node("n1")
        store = LogStore(env, FOLDER)
        store.start()
        config = Node(world).config
        partitions = [TopicPartition("t", number) for number in range(2000)]
        logs = [store.open(partition, TOPIC_ID, config) for partition in partitions]
        assert env.disk.list(FOLDER) == []  # nothing on disk until something is written
        await store.opened(logs)
        for log in logs[:50]:
            produce(log, 2)
        await store.stop(logs)
        world.kill("n1")
        env = world.restart("n1")
        store = LogStore(env, FOLDER)
        store.start()
        before = world.disk("n1").operations
        logs = [store.open(partition, TOPIC_ID, config) for partition in partitions]
        assert world.disk("n1").operations == before
        assert len(store.shared.pool) == 0
        assert [log.log_end_offset for log in logs[48:52]] == [2, 2, 0, 0]
        await store.opened(logs)
        assert store.shared.unsettled == {}

    run(scenario)


def test_a_lost_checkpoint_is_made_again_and_nothing_is_lost() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=500)
        await node.start()
        produce(node.log, 20)
        await node.settle()
        for damage in ("remove", "garble"):
            node.down("crash")
            disk = world.node("n1").disk
            path = f"{FOLDER}/partition-offsets"
            if damage == "remove":
                disk.remove(path)
            else:
                disk.replace(path, b"garbage")
            await node.restart("kill")
            assert node.log.log_end_offset == 20
            await node.settle()
            assert node.store.offsets.intact
            assert node.store.offsets.get(Kind.RECOVERY_POINT, PARTITION) == 20

    run(scenario)


def test_producers_that_are_first_needed_by_an_append_are_loaded_as_they_were_before_it() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        for sequence in range(2):
            produce(node.log, producer_id=1, producer_epoch=0, base_sequence=sequence)
            (state,) = node.log.producers.states()
            assert [batch.first_sequence for batch in state.batches] == list(range(sequence + 1))
            node.log = await node.restart("clean")
        produce(node.log, producer_id=1, producer_epoch=0, base_sequence=2)
        (state,) = node.log.producers.states()
        assert [batch.first_sequence for batch in state.batches] == [0, 1, 2]

    run(scenario)
