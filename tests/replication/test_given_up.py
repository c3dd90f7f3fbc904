"""What nobody foresaw in a round of one log: all replicas have the same bytes, and no node may end of them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log import compaction, retention
from fencepost.replication.log.compaction import _Round
from replica_helpers import ORDERS, PAYMENTS, Metadata, Node, batch, said, topic_of

CONFIGS = {
    name: {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0",
        "retention.bytes": "-1",
        "retention.ms": "-1",
    }
    for name in ("orders", "payments")
}

OLD_GOES = {name: {"retention.ms": "1000"} for name in ("orders", "payments")}


class Odd(Exception):
    """Of no kind that anybody expects."""


def play(scene: Callable[[Node], Awaitable[None]], *, configs: Any = None) -> World:
    """The node may die; the world that it lived in."""
    with World(1, deaths_allowed=True) as world:
        metadata = Metadata(
            topic_of("orders"),
            topic_of("payments"),
            configs=CONFIGS if configs is None else configs,
        )

        async def main(env: SimEnv) -> None:
            settings = {"log.retention.check.interval.ms": "1000"}
            await scene(await Node(env, metadata, settings).start())

        env = world.node("a")
        world.run(world.on(env, main(env)))
        return world


async def write_keys(node: Node) -> None:
    for name in (ORDERS, PAYMENTS):
        for number in range(3):
            value = batch(str(number), key=b"k", timestamp=node.env.clock.now_ms())
            await node.write(value, name)
        node.partition(name).log.roll(node.env.clock.now_ms())
        await node.write(batch("last", key=b"l", timestamp=node.env.clock.now_ms()), name)


async def let_grow_old(node: Node) -> None:
    """Of the one log retention takes it; the other's round is what fails."""
    for name in (ORDERS, PAYMENTS):
        await node.write(batch("old", timestamp=1), name)
    await node.env.clock.sleep(10)
    assert node.partition(PAYMENTS).log_start_offset == 1


def fail_in(
    monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, *, of: object = ORDERS
) -> list[int]:
    """Every call of a method of the round of that log raises; a list that each call adds to."""
    right = getattr(_Round, name)
    calls: list[int] = []

    def broken(self: _Round, *given: Any) -> Any:
        if self.log.topic_partition != of:
            return right(self, *given)
        calls.append(1)
        raise error

    monkeypatch.setattr(_Round, name, broken)
    return calls


@pytest.mark.parametrize("error", [Odd("a table of odd size"), AssertionError("asks has_room")])
def test_a_log_whose_compaction_meets_a_fault_is_left_out_of_it_and_ends_no_node(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    calls = fail_in(monkeypatch, "_map_batch", error)

    async def scene(node: Node) -> None:
        await write_keys(node)
        await node.env.clock.sleep(60)
        (line,) = said(node, "round_given_up")
        assert (line["round"], line["partition"]) == ("compaction", "orders-0")
        assert line["cause"] == f"{type(error).__name__}: {error}"
        assert str(line["where"]).startswith("test_given_up.py:")
        assert "< compaction.py:" in str(line["where"])
        assert type(error).__name__ in str(line["traceback"])
        rounds = node.manager.rounds
        assert {kind: len(logs) for kind, logs in rounds.given_up.items()} == {
            "compaction": 1,
            "retention": 0,
        }
        assert await node.read_values(PAYMENTS) == [b"2", b"last"], "the others are compacted"
        # It is written and read as before, and nobody tries again: neither when it grows nor behind a look at its settings.
        await node.write(batch("more", key=b"k", timestamp=node.env.clock.now_ms()))
        node.partition().log.roll(node.env.clock.now_ms())
        rounds.look_again()
        await node.env.clock.sleep(600)
        assert len(calls) == 1
        assert await node.read_values() == [b"0", b"1", b"2", b"last", b"more"]
        assert len(said(node, "round_given_up")) == 1

    assert play(scene).deaths == []


def test_a_topic_made_again_under_its_name_is_compacted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_in(monkeypatch, "_map_batch", Odd("odd"))

    async def scene(node: Node) -> None:
        await write_keys(node)
        await node.env.clock.sleep(60)
        node.metadata.delete(node.manager, "orders")
        assert not node.manager.rounds.given_up["compaction"]

    assert play(scene).deaths == []


@pytest.mark.parametrize("step", ["commit_swap", "rename_all"])
def test_a_fault_while_files_are_exchanged_takes_that_partition_offline(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nobody can tell any more what of the log is the old files and what the new ones."""
    right = getattr(compaction, step)

    def broken(disk: Any, folder: str, *given: Any) -> None:
        right(disk, folder, *given)
        if folder.endswith("orders-0"):
            raise Odd("between two files")

    monkeypatch.setattr(compaction, step, broken)

    async def scene(node: Node) -> None:
        await write_keys(node)
        log = node.partition().log
        await node.env.clock.sleep(60)
        assert isinstance(log.failed, Odd)
        assert node.manager.partition(ORDERS) is ErrorCode.kafka_storage_error
        (line,) = said(node, "round_given_up")
        assert "goes offline" in str(line["left"])
        assert "half-way" in node.manager.offline[ORDERS]
        assert await node.read_values(PAYMENTS) == [b"2", b"last"]

    assert play(scene).deaths == []


def test_a_log_whose_retention_meets_a_fault_is_left_out_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = retention._is_too_old
    calls: list[int] = []

    def broken(log: Any, now_ms: int) -> Any:
        if log.topic_partition == ORDERS:
            calls.append(1)
            raise Odd("no time is older")
        return right(log, now_ms)

    monkeypatch.setattr(retention, "_is_too_old", broken)

    async def scene(node: Node) -> None:
        await let_grow_old(node)
        (line,) = said(node, "round_given_up")
        assert (line["round"], line["partition"]) == ("retention", "orders-0")
        assert len(calls) == 1
        assert len(node.manager.rounds.given_up["retention"]) == 1
        await node.write(batch("new", timestamp=1))
        assert await node.read_values() == [b"old", b"new"]

    assert play(scene, configs=OLD_GOES).deaths == []


def test_a_fault_while_segments_are_taken_out_takes_that_partition_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some of them are to be removed, and are in the log yet."""
    right = retention.forget

    def broken(log: Any, segment: Any) -> None:
        right(log, segment)
        if log.topic_partition == ORDERS:
            raise Odd("not in the pool")

    monkeypatch.setattr(retention, "forget", broken)

    async def scene(node: Node) -> None:
        await let_grow_old(node)
        assert node.manager.partition(ORDERS) is ErrorCode.kafka_storage_error
        assert "its retention broke off half-way" in node.manager.offline[ORDERS]

    assert play(scene, configs=OLD_GOES).deaths == []


def test_a_round_that_finds_no_memory_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of that log: the next thing that wants memory fails, too."""
    fail_in(monkeypatch, "_map_batch", MemoryError())

    async def scene(node: Node) -> None:
        await write_keys(node)
        await node.env.clock.sleep(60)
        raise AssertionError("the node lives on")

    with pytest.raises(Exception, match="went down"):
        play(scene)


def test_what_the_partition_itself_asserts_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what compaction finds in a log is put up with."""

    def broken(_: object) -> int:
        raise AssertionError("behind the high watermark")

    async def scene(node: Node) -> None:
        await write_keys(node)
        monkeypatch.setattr(type(node.partition()), "last_stable_offset", property(broken))
        await node.env.clock.sleep(60)
        raise AssertionError("the node lives on")

    with pytest.raises(Exception, match="went down"):
        play(scene)


def test_a_run_of_the_simulator_that_gives_up_a_round_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that lives on with what it asserted to be impossible is none that a campaign should pass over."""
    fail_in(monkeypatch, "_map_batch", Odd("odd"))
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), topic_of("payments"), configs=CONFIGS)

        async def main(env: SimEnv) -> None:
            node = await Node(env, metadata).start()
            await write_keys(node)
            await node.env.clock.sleep(60)

        env = world.node("a")
        with pytest.raises(AssertionError, match="compaction of orders-0"):
            world.run(world.on(env, main(env)))
