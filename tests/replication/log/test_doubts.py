"""A log that may have lost what it had acknowledged is known as such until the cluster was told."""

import errno
from collections.abc import Awaitable, Callable

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import FOLDER, PARTITION, Node, produce, run, settings


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
