"""Half a batch that a full disk left, and that was cut off again: a power cut may bring it back."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.log import Log
from log_helpers import Node, batch_at, produce, read_all, rewrite, run

# Whose the folder is; the other files tell what is in it.
METADATA = "partition.metadata"


def half_a_batch(world: World, log: Log, *, size: int = 200) -> None:
    """The disk has room for a part of it, and for all of the next one."""
    files = world.disk("n1").files
    files.capacity = files.used + 50
    with pytest.raises(OSError, match="No space"):
        produce(log, size=size)
    files.capacity = None


@pytest.mark.parametrize("is_syncing", [False, True], ids=["at rest", "during a sync"])
def test_half_a_batch_that_a_power_cut_brings_back_takes_nothing_with_it(is_syncing: bool) -> None:
    """It stands at the end of a segment that is sealed then."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 3)
        await node.sync()
        if is_syncing:
            produce(log, 1)
        sync = world.loop.create_task(node.sync())
        await node.env.clock.sleep(0)
        half_a_batch(world, log)
        await sync
        produce(log, size=900)  # needs a new segment
        await node.sync()
        assert len(log.segments) == 2
        before = read_all(log)
        log = await node.restart("crash")
        assert read_all(log) == before

    for seed in range(20):
        run(scenario, seed)


@pytest.mark.parametrize("what", ["half a batch", "a tail that was cut"])
def test_what_the_killed_process_cut_off_does_not_come_back_with_the_power(what: str) -> None:
    """All below was synced and checkpointed, so the next process has nothing to read again; the cut was not synced."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        if what == "half a batch":
            half_a_batch(world, log)
        else:
            log.truncate_to(2)
        log = await node.restart("kill")
        produce(log, size=900)  # needs a new segment
        await node.sync()
        assert len(log.segments) == 2
        before = read_all(log)
        log = await node.restart("crash")
        assert read_all(log) == before

    for seed in range(20):
        run(scenario, seed)


@pytest.mark.parametrize("then", ["a clean stop", "a batch in the new segment"])
def test_what_the_killed_process_cut_off_is_synced_by_the_next_one(then: str) -> None:
    """Nothing was appended to that file since. A hint knew its size without what came back; or new batches stood behind that."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        sizes = [200, 900] if then == "a batch in the new segment" else [200]
        for size in sizes:  # the second one begins a segment, in which it finds no room
            half_a_batch(world, log, size=size)
        assert len(log.segments) == len(sizes)
        log = await node.restart("kill")
        if len(sizes) == 2:
            produce(log, 2)
            await node.sync()
        before = read_all(log)
        if len(sizes) == 1:
            await node.stop()
        log = await node.restart("crash")
        assert read_all(log) == before

    for seed in range(40):
        run(scenario, seed)


@pytest.mark.parametrize("size", [9, 100])
@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize(
    "garbage",
    [None, b"", b"9\nabc\n", bytes(range(48))],
    ids=["gone", "empty", "words", "bytes"],
)
def test_half_a_batch_is_cut_whichever_of_the_other_files_is_not_usable(
    size: int, is_checkpointed: bool, garbage: bytes | None
) -> None:
    """What they tell is read from the batches, up to where the check begins: what lies behind that is the check's to judge."""

    async def scenario(world: World, name: str = "") -> list[str]:
        node = Node(world, segment_bytes=700)
        log = await node.start()
        for epoch in range(6):
            produce(log, leader_epoch=epoch, size=250, producer_id=7, base_sequence=epoch)
        assert len(log.segments) == 3
        await (node.settle() if is_checkpointed else node.sync())
        before = read_all(log)
        node.down("kill")
        disk = world.node("n1").disk
        names = [each for each in disk.list(node.path("")) if not each.endswith((".log", METADATA))]
        if name and garbage is None:
            disk.remove(node.path(name))
        elif name and garbage is not None:
            rewrite(node, name, garbage)
        file = disk.open(log.active.path, create=True)
        file.append((batch_at(6, count=2, size=200)[:size],))
        file.close()
        log = await node.restart("kill")
        assert node.store.same_boot and log.log_end_offset == 6, name
        assert log.epochs.epochs == [0, 1, 2, 3, 4, 5], name
        assert [each.producer_id for each in log.producers.states()] == [7], name
        assert read_all(log) == before, name
        return names

    names: list[str] = []

    async def found(world: World) -> None:
        names.extend(await scenario(world))

    run(found)
    assert {each.rpartition(".")[2] for each in names} >= {"index", "timeindex", "producers"}
    for name in names:
        run(lambda world, name=name: scenario(world, name))
