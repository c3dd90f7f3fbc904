"""The file of recovery points, log starts, high watermarks: what it says was true, or it says nothing."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log import checkpoint
from fencepost.replication.log.checkpoint import Kind, PartitionOffsets
from hypothesis import given, settings
from hypothesis import strategies as st

PATH = "/data/partition-offsets"
A, B = TopicPartition("orders", 0), TopicPartition("größe", 7)


def loaded(env: SimEnv) -> PartitionOffsets:
    offsets = PartitionOffsets(env, PATH)
    offsets.load()
    return offsets


def values(offsets: PartitionOffsets) -> dict[tuple[Kind, TopicPartition], int]:
    return {
        (kind, partition): value
        for partition in offsets.partitions()
        for kind in Kind
        if (value := offsets.get(kind, partition)) is not None
    }


def test_what_was_flushed_is_there_after_a_power_cut() -> None:
    with World(1) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = loaded(env)
            offsets.put(Kind.RECOVERY_POINT, A, 5)
            offsets.put(Kind.HIGH_WATERMARK, B, 7)
            await offsets.flush()
            offsets.put(Kind.RECOVERY_POINT, A, 6)
            offsets.put(Kind.LOG_START, A, 2)
            await offsets.flush()
            offsets.put(Kind.CLEANED, A, 1)
            assert offsets.dirty
            world.crash("n1")
            again = loaded(world.restart("n1"))
            assert again.intact
            assert values(again) == {
                (Kind.RECOVERY_POINT, A): 6, (Kind.LOG_START, A): 2, (Kind.HIGH_WATERMARK, B): 7,
            }  # fmt: skip

        world.run(scenario())


def test_a_crash_at_any_write_loses_nothing_that_was_flushed() -> None:
    """And brings back nothing that was lowered or forgotten; the file is whole every time."""

    async def scenario(world: World) -> None:
        env = world.node("n1")
        promised: dict[tuple[Kind, TopicPartition], int] = {}
        asked: dict[tuple[Kind, TopicPartition], set[int | None]] = {}
        for step in range(1, 160):
            offsets = loaded(env)
            assert offsets.intact, f"step {step}"
            found = values(offsets)
            for key, value in promised.items():
                allowed = {value, *asked.get(key, set())}
                assert found.get(key) in allowed, f"step {step}: {key}"
            promised, asked = found, {}
            world.crash_at_disk_op("n1", 1 + step % 9)
            try:
                await world.on(env, _work(offsets, step, promised, asked))
            except NodeLost:
                pass
            else:
                world.crash("n1")
            env = world.restart("n1")

    with World(2) as world:
        world.run(scenario(world))


async def _work(offsets: PartitionOffsets, step: int, promised: dict, asked: dict) -> None:
    for round_ in range(4):
        partition = TopicPartition("t", (step + round_) % 5)
        key = (Kind.RECOVERY_POINT, partition)
        value = 10 * step + round_
        asked.setdefault(key, set()).add(value)
        offsets.put(*key, value)
        await offsets.flush()
        promised[key], asked[key] = value, set()
    lowered = TopicPartition("t", step % 5)
    key = (Kind.RECOVERY_POINT, lowered)
    asked.setdefault(key, set()).add(3)
    offsets.lower(Kind.RECOVERY_POINT, {lowered: 3})
    promised[key], asked[key] = 3, set()
    gone = TopicPartition("t", (step + 1) % 5)
    key = (Kind.RECOVERY_POINT, gone)
    asked.setdefault(key, set()).add(None)
    offsets.forget([gone])
    promised.pop(key, None)
    offsets.rewrite()


@given(st.data())
@settings(max_examples=150)
def test_damage_is_seen_or_only_the_end_is_lost(data: st.DataObject) -> None:
    with World(3) as world:
        env = world.node("n1")
        offsets = loaded(env)
        history = [{}]
        for number in range(6):
            offsets.put(Kind.RECOVERY_POINT, A if number % 2 else B, number * 10)
            offsets.flush_now()
            history.append(values(offsets))
        content = bytearray(env.disk.read_all(PATH))
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[at:]
        env.disk.replace(PATH, bytes(content))
        again = loaded(env)
        assert not again.intact or values(again) in history


def test_it_is_rewritten_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "REWRITE_AT", 500)
    with World(4) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = loaded(env)
            for number in range(200):
                offsets.put(Kind.RECOVERY_POINT, A, number)
                await offsets.flush()
                assert env.disk.size(PATH) < 600
                assert loaded(env).get(Kind.RECOVERY_POINT, A) == number

        world.run(scenario())


def test_after_a_failed_sync_the_next_flush_writes_a_new_file() -> None:
    with World(5) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = loaded(env)
            offsets.put(Kind.RECOVERY_POINT, A, 1)
            await offsets.flush()
            offsets.put(Kind.RECOVERY_POINT, A, 2)
            world.disk("n1").faults.fail("sync")
            with pytest.raises(OSError, match="Input/output"):
                await offsets.flush()
            offsets.put(Kind.RECOVERY_POINT, B, 3)
            await offsets.flush()
            world.crash("n1")
            again = loaded(world.restart("n1"))
            assert values(again) == {(Kind.RECOVERY_POINT, A): 2, (Kind.RECOVERY_POINT, B): 3}

        world.run(scenario())


def test_what_was_forgotten_by_a_sync_that_failed_is_forgotten_by_the_next_flush() -> None:
    with World(5) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = loaded(env)
            offsets.put(Kind.RECOVERY_POINT, A, 1)
            await offsets.flush()
            world.disk("n1").faults.fail("sync")
            with pytest.raises(OSError, match="Input/output"):
                offsets.forget([A])
            assert not offsets.is_durable(Kind.RECOVERY_POINT, A)
            await offsets.flush()
            assert values(loaded(env)) == {}

        world.run(scenario())


def test_what_could_not_be_lowered_the_first_time_is_lowered_the_second_time() -> None:
    """The disk was full, so the log was not cut. The next cut took it for done, and left a log shorter than it claimed."""
    with World(5) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = loaded(env)
            offsets.put(Kind.RECOVERY_POINT, A, 120)
            await offsets.flush()
            world.disk("n1").faults.fail("append", path=PATH, number=errno.ENOSPC)
            with pytest.raises(OSError, match="No space left"):
                offsets.lower(Kind.RECOVERY_POINT, {A: 118})
            offsets.lower(Kind.RECOVERY_POINT, {A: 118})
            assert values(loaded(env)) == {(Kind.RECOVERY_POINT, A): 118}

        world.run(scenario())


def test_who_can_not_wait_has_what_another_flush_has_on_its_way() -> None:
    for seed in range(4):  # of what was not synced a power cut leaves the one or the other
        with World(seed) as world:

            async def scenario() -> None:
                env = world.node("n1")
                offsets = loaded(env)
                offsets.put(Kind.LOG_START, A, 1)
                await offsets.flush()
                offsets.put(Kind.LOG_START, A, 2)
                flush = world.loop.create_task(offsets.flush())
                await env.clock.sleep(0)
                assert not offsets.dirty and not offsets.is_durable(Kind.LOG_START, A)
                offsets.flush_now()
                world.crash("n1")
                assert loaded(world.restart("n1")).get(Kind.LOG_START, A) == 2
                await asyncio.wait([flush])

            world.run(scenario())


def test_a_full_disk_keeps_values_waiting() -> None:
    with World(6) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = loaded(env)
            offsets.put(Kind.RECOVERY_POINT, A, 1)
            await offsets.flush()
            files = world.disk("n1").files
            files.capacity = files.used
            offsets.put(Kind.RECOVERY_POINT, A, 2)
            with pytest.raises(OSError, match="No space"):
                await offsets.flush()
            assert offsets.dirty
            files.capacity = None
            await offsets.flush()
            assert loaded(env).get(Kind.RECOVERY_POINT, A) == 2

        world.run(scenario())


def test_the_boot_of_the_last_run_is_remembered() -> None:
    with World(7) as world:
        env = world.node("n1")
        offsets = loaded(env)
        assert offsets.boot_id == ""
        offsets.confirm_boot()
        assert loaded(env).boot_id == env.boot_id


def test_names_and_values_that_a_power_cut_has_torn_look_like_no_damage() -> None:
    """Half of the names was gone, and the values behind them whole: nothing in the file was believed, of no log."""
    for seed in range(200):
        with World(seed) as world:

            async def scenario(world: World) -> None:
                offsets = loaded(world.node("n1"))
                offsets.put(Kind.RECOVERY_POINT, A, 5)
                await offsets.flush()
                await offsets.flush()
                for number in range(100):
                    new = TopicPartition(f"a topic with a long name {number}", number)
                    offsets.put(Kind.RECOVERY_POINT, new, number)
                flush = asyncio.ensure_future(offsets.flush())
                await asyncio.sleep(0)
                world.crash("n1")
                flush.cancel()
                again = loaded(world.restart("n1"))
                assert again.intact
                assert again.recovery_point_of(A) == 5

            world.run(scenario(world))
