"""Where a log begins and ends is what the disk says too: starts that go back, tails that are gone, ends that are damaged."""

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import START_MS, Node, produce, read_all, run


def test_leader_epochs_of_a_tail_that_is_gone_are_not_believed_when_the_log_is_as_long_again() -> (
    None
):
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 10, leader_epoch=1)
        await node.settle()
        produce(log, 2, leader_epoch=1)
        produce(log, 3, leader_epoch=5)  # at 12, and not synced
        await node.store.checkpoint()  # the list of epochs is
        log = await node.restart("crash")
        if log.log_end_offset > 12:
            return  # it survived
        produce(log, 20, leader_epoch=1)  # what the leader has
        await node.settle()
        epochs = list(zip(log.epochs.epochs, log.epochs.starts, strict=True))
        log = await node.restart("kill")
        assert list(zip(log.epochs.epochs, log.epochs.starts, strict=True)) == epochs

    for seed in range(20):
        run(scenario, seed)


@pytest.mark.parametrize("how", ["begun anew", "truncated"])
def test_a_log_whose_start_went_back_keeps_what_is_acknowledged_then(how: str) -> None:
    """A start of which the disk says that it is further on would take all of that for deleted."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 10)
        log.delete_records_before(8)
        await node.settle()
        if how == "begun anew":
            log.truncate_fully_and_start_at(2)
        else:
            log.truncate_to(4)
        produce(log, 2)
        await node.sync()
        before = read_all(log), log.log_start_offset, log.log_end_offset
        log = await node.restart("crash")
        assert (read_all(log), log.log_start_offset, log.log_end_offset) == before

    for seed in range(10):
        run(scenario, seed)


@pytest.mark.parametrize("end", ["crash", "kill"])
def test_a_log_that_is_begun_anew_while_retention_waits_for_its_checkpoint(end: str) -> None:
    """What retention had taken stood before the new beginning: the log had a hole, and all behind it was cut off."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400, retention_bytes=300)
        log = await node.start()
        produce(log, 12)
        await node.settle()
        log.apply_retention(START_MS, 12)
        assert log.doomed
        log.truncate_fully_and_start_at(40)
        produce(log, 3)
        await node.sync()
        before = read_all(log)
        log = await node.restart(end)
        assert (log.log_start_offset, log.log_end_offset) == (40, 43)
        assert read_all(log) == before

    for seed in range(20):
        run(scenario, seed)


def test_a_log_whose_end_is_damaged_is_not_written_any_more() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=1)
        await node.start()
        produce(node.log, 5)
        await node.stop()
        node.env = world.restart("n1")
        for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
            node.env.disk.remove(node.path(name))
        file = node.env.disk.open(node.path("00000000000000000000.log"))
        file.write_at(180, b"\xff" * 61)
        file.close()
        log = await node.start()
        with pytest.raises(OSError, match="is damaged at position 180"):
            produce(log)
        assert log.failed is not None

    run(scenario)


def test_what_comes_behind_a_cut_is_refused_where_the_file_before_it_is_gone() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 5, size=300)
        await node.stop()
        node.env = world.restart("n1")
        node.env.disk.remove(node.path("00000000000000000000.log"))
        log = await node.start()
        log.truncate_to(3)
        with pytest.raises(OSError, match="is missing"):
            produce(log)
        assert log.failed is not None

    run(scenario)
