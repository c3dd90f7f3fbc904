"""What may be cut from the end of a log, and what is refused for as long as nobody knows."""

from uuid import UUID

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.config import INT_MAX
from fencepost.replication.log.store import LogStore
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

LOG = "00000000000000000000.log"
OFFSETS = f"{FOLDER}/partition-offsets"


@pytest.mark.parametrize(("base", "is_cut"), [(3, True), (7, True), (INT_MAX, True),
                                              (2, False), (INT_MAX + 1, False)])  # fmt: skip
def test_half_a_batch_behind_a_gap_is_cut_as_any_half_batch_is(base: int, is_cut: bool) -> None:
    """A follower copies what the leader's cleaner left, gaps and all, and is killed in the middle of a write.
    Half a batch that whole ones could not be behind either is none of a killed write."""

    async def scenario(world: World) -> None:
        node = Node(world, compact=True)
        log = await node.start()
        append(log, batch_at(0, count=3))
        await node.settle()
        data = read_all(log)
        node.down("kill")
        file = world.node("n1").disk.open(node.path(LOG))
        file.append((batch_at(base, count=2)[:100],))
        file.close()
        if not is_cut:
            with pytest.raises(LogDamaged, match="where offset 3 should be"):
                await node.restart("kill")
            return
        log = await node.restart("kill")
        assert node.store.same_boot and log.log_end_offset == 3
        assert read_all(log) == data
        append(log, batch_at(base))

    run(scenario)


@pytest.mark.parametrize("loss", ["removed", "garbled"])
def test_damage_is_refused_at_every_start_while_nobody_knows_how_far_it_was_synced(
    loss: str,
) -> None:
    """The first start writes a checkpoint that is intact again: what it says of the log that was refused must not be
    taken for "never synced", or the second start cuts what the first one refused to."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 20)
        await node.settle()
        data = read_all(log)
        node.down("crash")
        disk = world.node("n1").disk
        if loss == "removed":
            disk.remove(OFFSETS)
        else:
            disk.replace(OFFSETS, b"garbage")
        turn_byte(node, 900)
        node.env = world.restart("n1")
        for how in ("kill", "crash", "stop"):
            await refused(node)
            if how == "stop":
                await node.store.stop([])
            node.down("crash" if how == "crash" else "kill")
            node.env = world.restart("n1")
        turn_byte(node, 900)  # as from another replica
        log = await node.start()
        assert read_all(log) == data
        assert node.store.offsets.recovery_point_of(PARTITION) == 20
        log = await node.restart("crash")
        assert read_all(log) == data

    run(scenario)


def test_what_another_log_writes_down_at_a_start_does_not_speak_for_those_not_opened_yet() -> None:
    """A folder is set aside, which writes a new checkpoint, and the node is killed before it opens the next log."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 20)
        other = node.store.open(TopicPartition("other", 0), TOPIC_ID, node.config)
        produce(other)
        await node.store.sync([log, other])
        await node.store.checkpoint()
        node.down("crash")
        world.node("n1").disk.remove(OFFSETS)
        turn_byte(node, 900)
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        store.open(TopicPartition("other", 0), UUID(int=9), node.config)
        assert node.env.disk.exists(OFFSETS)
        node.down("crash")
        node.env = world.restart("n1")
        await refused(node)

    run(scenario)


def test_an_empty_log_that_was_opened_is_known_again() -> None:
    """Else what a power cut tears of its first writes would be refused as damage."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log)
        log.truncate_to(0)
        await node.settle()
        node.down("crash")
        world.node("n1").disk.remove(OFFSETS)
        node.env = world.restart("n1")
        await node.start()
        await node.restart("crash")
        assert node.store.offsets.intact
        assert node.store.offsets.recovery_point_of(PARTITION) == 0

    run(scenario)


def turn_byte(node: Node, position: int) -> None:
    file = node.world.node("n1").disk.open(node.path(LOG))
    (byte,) = file.read(position, 1)
    file.write_at(position, bytes([byte ^ 0xFF]))
    file.sync()
    file.close()


async def refused(node: Node) -> None:
    node.store = LogStore(node.env, FOLDER)
    node.store.start()
    with pytest.raises(LogDamaged, match="how far it was synced is not known"):
        node.store.open(PARTITION, TOPIC_ID, node.config)
    await node.store.opened([])


async def torn_in_the_second_of_ten_files(node: Node) -> None:
    """Of a log that is whole but for that, at an end of power, and synced no further than its checkpoint says: not at all."""
    log = await node.start()
    for _ in range(9):
        produce(log, 3)
        log.roll(START_MS)
    produce(log)
    await node.sync()
    node.down("crash")
    node.world.disk("n1").files.file(node.path(f"{3:020d}.log")).flip(20, 0)


def test_whole_batches_behind_a_torn_one_are_kept_aside_in_however_many_files_they_are() -> None:
    """Each piece that was kept made earlier ones of the same cut go, beyond four: those that follow on what is left of the log."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await torn_in_the_second_of_ten_files(node)
        log = await node.restart("crash")
        assert log.log_end_offset == 3
        kept = [int(name[:20]) for name in node.files() if name.endswith(".torn")]
        assert kept == [3 * number for number in range(1, 10)]

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_cut_before_what_is_kept_of_it_has_its_name_on_the_disk(seed: int) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await torn_in_the_second_of_ten_files(node)
        node.env = world.restart("n1")
        world.disk("n1").faults.fail("sync", path="*.log")
        store = LogStore(node.env, FOLDER)
        store.start()
        with pytest.raises(OSError, match="Input/output"):
            store.open(PARTITION, TOPIC_ID, node.config)
        node.down("crash")
        node.env = world.restart("n1")
        disk = node.env.disk
        kept = [name[:20] for name in node.files() if name.endswith(".torn")]
        whole = [f"{3 * number:020d}" for number in range(1, 9)]
        for base in whole:
            path = node.path(f"{base}.log")
            assert base in kept or (disk.exists(path) and disk.size(path) == 3 * 90), base

    run(scenario, seed)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_bad_batch_before_a_file_of_one_is_in_the_middle_too(batches: int) -> None:
    """Behind the first batch of a file nothing followed, so a log whose checkpoint was lost was cut, and nothing kept of that file."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        at = log.active.size - 20
        log.roll(START_MS)
        produce(log, batches)
        await node.settle()
        node.down("crash")
        world.disk("n1").files.file(node.path(LOG)).flip(at, 0)
        node.env = world.restart("n1")
        node.env.disk.remove(OFFSETS)
        store = LogStore(node.env, FOLDER)
        store.start()
        with pytest.raises(LogDamaged, match="how far it was synced is not known"):
            store.open(PARTITION, TOPIC_ID, node.config)

    run(scenario)
