"""A log that may have lost what it had acknowledged is known as such until the cluster was told."""

import errno
from collections.abc import Awaitable, Callable

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.wire.batch import headers_of
from log_helpers import FOLDER, LOG, PARTITION, Node, produce, read_all, rewrite, run, settings


def play(scenario: Callable[[Node], Awaitable[None]], flush_policy: str) -> None:
    async def all_of_it(world: World) -> None:
        node = Node(world, flush_policy=flush_policy)
        await node.start()
        node.store.doubts.told()
        await node.settle()
        await scenario(node)

    run(all_of_it)


def test_what_was_synced_before_it_was_acknowledged_is_not_doubted() -> None:
    async def scenario(node: Node) -> None:
        produce(node.log, 20)
        await node.sync()
        for how in ("crash", "kill", "clean", "crash"):
            await node.restart(how)
            assert node.store.doubts.lacking == []

    play(scenario, "ack")


@pytest.mark.parametrize("policy", ["os", "interval"])
def test_what_lost_its_power_unsynced_is_doubted_until_the_cluster_was_told(policy: str) -> None:
    async def scenario(node: Node) -> None:
        produce(node.log, 20)
        for how in ("kill", "clean"):
            await node.restart(how)
            assert node.store.doubts.lacking == []
        for how in ("crash", "kill", "clean", "crash"):
            await node.restart(how)
            assert node.store.doubts.lacking == [PARTITION]
        node.store.doubts.told()
        assert node.store.doubts.lacking == []
        await node.store.checkpoint()
        await node.restart("kill")
        assert node.store.doubts.lacking == []
        await node.restart("crash")
        assert node.store.doubts.lacking == [PARTITION]

    play(scenario, policy)


def test_a_stop_is_not_clean_for_a_log_whose_disk_failed() -> None:
    """Its last records were never synced; a power cut after the stop takes them."""

    async def scenario(node: Node) -> None:
        produce(node.log, 20)
        node.log.fail(OSError(errno.EIO, "Input/output error"))
        await node.stop()
        node.world.crash("n1")
        node.env = node.world.restart("n1")
        await node.start()
        assert node.store.doubts.lacking == [PARTITION]

    play(scenario, "os")


def test_a_policy_that_is_changed_to_os_is_on_the_disk_before_anything_is_acknowledged_by_it() -> (
    None
):
    async def scenario(node: Node) -> None:
        node.config = settings(flush_policy="os")
        node.store.doubts.configured(PARTITION, node.config)
        node.store.doubts.write_down()
        node.log.config = node.config
        produce(node.log, 20)
        node.config = settings()  # while it was down it was changed again
        await node.restart("crash")
        assert node.store.doubts.lacking == [PARTITION]

    play(scenario, "ack")


@pytest.mark.parametrize("opened_as", ["ack", "os"])
def test_a_log_that_lacks_something_is_doubted_on_though_its_settings_are_changed(
    opened_as: str,
) -> None:
    """To `os`, before the cluster was told. Then the process is killed, and the disk must not say that it was only unsynced."""

    async def scenario(node: Node) -> None:
        produce(node.log, 20)
        node.config = settings(flush_policy=opened_as)
        await node.restart("crash")
        node.store.doubts.configured(PARTITION, settings(flush_policy="os"))
        node.store.doubts.write_down()
        await node.store.checkpoint()
        await node.restart("kill")
        assert node.store.doubts.lacking == [PARTITION]
        node.store.doubts.configured(PARTITION, settings(flush_policy="os"))
        node.store.doubts.told()
        assert node.store.doubts.lacking == []
        await node.store.checkpoint()
        await node.restart("crash")
        assert node.store.doubts.lacking == [PARTITION], "and by its new settings from then on"

    play(scenario, "os")


def test_a_policy_that_is_changed_to_ack_counts_from_the_next_start_on() -> None:
    async def scenario(node: Node) -> None:
        produce(node.log, 20)
        node.config = settings()
        node.store.doubts.configured(PARTITION, node.config)
        node.store.doubts.write_down()
        await node.restart("kill")
        assert node.store.doubts.lacking == []
        await node.restart("crash")
        assert node.store.doubts.lacking == []

    play(scenario, "os")


def test_without_the_file_that_tells_any_log_is_doubted() -> None:
    async def scenario(node: Node) -> None:
        produce(node.log, 20)
        await node.settle()
        node.down("kill")
        node.env = node.world.restart("n1")
        node.env.disk.remove(f"{FOLDER}/partition-offsets")
        await node.start()
        assert node.store.doubts.lacking is None
        await node.restart("kill")  # before it could tell anybody
        assert node.store.doubts.lacking == [PARTITION]

    play(scenario, "ack")


async def left_by_a_crash(node: Node, change: Callable[[bytearray, int], None]) -> None:
    """Four batches were synced, two of them since the last checkpoint, and the machine went down: `change` is told all that its disk
    has, and where the last one begins."""
    produce(node.log, 2, size=300)
    await node.settle()
    produce(node.log, 2, size=900)
    await node.sync()
    data = bytearray(read_all(node.log))
    *_, (at, _) = headers_of(data)
    node.world.crash("n1", lose_unsynced=False)
    change(data, at)
    rewrite(node, LOG, bytes(data))
    node.world.kill("n1")
    node.env = node.world.restart("n1")


@pytest.mark.parametrize(
    ("byte", "bit"),
    [
        pytest.param(7, 1, id="its offset, which is one of before it"),
        pytest.param(10, 0, id="its length, which is too long"),
        pytest.param(10, 1, id="its length, which is too short"),
        pytest.param(11, 7, id="its length, which is a little too short"),
        pytest.param(8, 7, id="its length, which is impossible"),
        pytest.param(16, 0, id="its magic"),
        pytest.param(18, 3, id="its checksum"),
        pytest.param(500, 3, id="a record"),
    ],
)
def test_an_end_that_no_crash_explains_is_doubted_before_it_is_cut(byte: int, bit: int) -> None:
    """It was acknowledged, and a bit of it flipped. Others have it: this one leads when none of them can."""

    def flip(data: bytearray, at: int) -> None:
        data[at + byte] ^= 1 << bit

    async def scenario(node: Node) -> None:
        await left_by_a_crash(node, flip)
        await node.start()
        assert node.log.log_end_offset == 3
        assert node.store.doubts.lacking == [PARTITION]
        for how in ("kill", "crash"):
            await node.restart(how)
            assert node.store.doubts.lacking == [PARTITION], "what was cut is not seen any more"
        node.store.doubts.told()
        await node.store.checkpoint()
        await node.restart("crash")
        assert node.store.doubts.lacking == []

    play(scenario, "ack")


def test_a_last_batch_whose_offset_leaves_a_gap_is_doubted() -> None:
    """No checksum covers it. It stays where it is: the log may be of a follower of a compacted one, and right."""

    def flip(data: bytearray, at: int) -> None:
        assert data[at + 7] == 3
        data[at + 7] = 7

    async def scenario(node: Node) -> None:
        await left_by_a_crash(node, flip)
        await node.start()
        assert node.log.log_end_offset == 8
        assert node.store.doubts.lacking == [PARTITION]
        await node.restart("crash")
        assert node.store.doubts.lacking == [PARTITION]

    play(scenario, "ack")


def test_a_doubt_is_on_the_disk_before_what_is_doubted_is_cut() -> None:
    """Whichever disk operation of that start is its last one."""

    def flip(data: bytearray, at: int) -> None:
        data[at + 500] ^= 1

    def start_ends_at(operation: int) -> bool:
        ended = False

        async def scenario(node: Node) -> None:
            nonlocal ended
            await left_by_a_crash(node, flip)
            node.world.crash_at_disk_op("n1", operation, kill=operation % 2 == 0)
            try:
                await node.world.on(node.env, node.start())
            except NodeLost:
                ended = True
                node.env = node.world.restart("n1")
                await node.start()
            assert node.log.log_end_offset == 3
            assert node.store.doubts.lacking == [PARTITION], f"operation {operation}"

        play(scenario, "ack")
        return ended

    operations = 1
    while start_ends_at(operations):
        operations += 1
    assert operations > 10


@pytest.mark.parametrize("left", [1, 11, 60, 61, 500, 899])
def test_an_end_that_did_not_reach_the_disk_is_not_doubted(left: int) -> None:
    async def scenario(node: Node) -> None:
        def cut(data: bytearray, at: int) -> None:
            del data[at + left :]

        await left_by_a_crash(node, cut)
        await node.start()
        assert node.log.log_end_offset == 3
        assert node.store.doubts.lacking == []

    play(scenario, "ack")


def test_an_end_of_which_a_sector_did_not_reach_the_disk_is_not_doubted() -> None:
    async def scenario(node: Node) -> None:
        def lose(data: bytearray, at: int) -> None:
            sector = at // 512 * 512 + 512
            data[sector : sector + 512] = bytes(512)

        await left_by_a_crash(node, lose)
        await node.start()
        assert node.log.log_end_offset == 3
        assert node.store.doubts.lacking == []

    play(scenario, "ack")
