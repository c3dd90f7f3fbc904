"""The simulated disk's port: faults, crashes at any operation, and what a restart finds."""

import asyncio
import contextlib
import errno
import gc
import weakref
from typing import Any

import pytest
from disk_scene import in_world, opened, save
from fencepost.chaos.sim.habits import PLAIN, DiskHabits, drawn
from fencepost.chaos.sim.loop import NodeDown
from fencepost.chaos.sim.world import NodeLost, World


@in_world
async def test_a_kill_keeps_what_was_written_and_a_crash_may_lose_what_was_not_synced(
    world: World,
) -> None:
    env = world.node("n1")
    file = opened(env)
    file.append([b"synced"])
    await env.disk.sync([file])
    file.append([b" only written"])
    boot = env.boot_id
    world.kill("n1")
    env = world.restart("n1")
    assert env.disk.read_all("/data/log") == b"synced only written"
    assert env.boot_id == boot
    lefts = set()
    for _ in range(150):
        file = env.disk.open("/data/log")
        file.truncate(6)
        file.sync()
        file.append([b" only written"])
        world.crash("n1")
        env = world.restart("n1")
        lefts.add(env.disk.read_all("/data/log"))
    assert env.boot_id != boot
    assert {b"synced", b"synced only written"} < lefts
    assert all(left.startswith(b"synced") for left in lefts)


@in_world
async def test_a_crash_that_loses_nothing_is_only_a_new_boot(world: World) -> None:
    env = world.node("n1")
    env.disk.open("/data/log", create=True).append([b"x"])
    world.crash("n1", lose_unsynced=False)
    assert world.restart("n1").disk.read_all("/data/log") == b"x"


@in_world
async def test_a_full_disk_takes_nothing_more_but_gives_and_can_be_emptied(world: World) -> None:
    env = world.node("n1")
    world.disk("n1").files.capacity = 1000
    file = opened(env)
    file.append([b"a" * 900])
    assert env.disk.free_bytes("/data") == 100
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            file.append([b"b" * 60, b"c" * 60])
        assert caught.value.errno == errno.ENOSPC
    assert file.size() == 900 and file.read(0, 1000) == b"a" * 900
    other = opened(env, "/data/other")
    other.append([b"d" * 100])
    env.disk.remove("/data/other")
    assert env.disk.free_bytes("/data") == 0  # open, so still there
    other.close()
    assert env.disk.free_bytes("/data") == 100
    file.truncate(100)
    file.append([b"e" * 900])


@in_world
async def test_a_failed_sync_is_remembered_by_the_file_and_by_the_disk(world: World) -> None:
    env = world.node("n1")
    file, other = opened(env), opened(env, "/data/other")
    file.append([b"never on disk"])
    other.append([b"on disk"])
    world.disk("n1").faults.fail("sync", path="*/log")
    with pytest.raises(OSError, match="Input/output"):
        await env.disk.sync([file, other])
    with pytest.raises(OSError, match="earlier sync"):
        await env.disk.sync([file])
    env.disk.open("/data/log").sync()  # whoever opens anew is told that all is well
    assert file.read(0, 100) == b"never on disk"
    world.crash("n1")
    disk = world.restart("n1").disk
    assert disk.read_all("/data/other") == b"on disk"
    assert disk.read_all("/data/log") == b""


@in_world
async def test_an_error_that_was_looked_at_holds_nothing_of_who_met_it(world: World) -> None:
    """A node reads from a file's reference count whether somebody has it. What a cycle holds is let go when Python's collector comes,
    at another moment in each process: the same seed would be another run."""
    env, faults = world.node("n1"), world.disk("n1").faults
    file = opened(env)

    async def held_by(*kinds: str) -> weakref.ref[Any]:
        held = opened(env, "/data/other")
        for kind in kinds:
            faults.fail(kind)
        with contextlib.suppress(OSError):
            match kinds[-1]:
                case "sync":
                    await env.disk.sync([file])
                case "open":
                    env.disk.open("/data/log")
                case _:
                    file.append([b"half"])
        assert not faults.planned, f"{kinds} did not strike"
        return weakref.ref(held)

    gc.disable()
    try:
        for kinds in (("open",), ("append",), ("sync",), ("truncate", "append")):
            assert (await held_by(*kinds))() is None, kinds
    finally:
        gc.enable()


@in_world
async def test_planned_and_random_errors_hit_the_operation_they_name(world: World) -> None:
    env = world.node("n1")
    file = opened(env)
    faults = world.disk("n1").faults
    faults.fail("append", number=errno.EIO, times=2)
    for _ in range(2):
        with pytest.raises(OSError):
            file.append([b"lost"])
    file.append([b"kept"])
    assert file.size() == 4
    faults.fail("read", path="*.index")
    assert file.read(0, 4) == b"kept"
    faults.heal()
    faults.read_error_odds = 1.0
    with pytest.raises(OSError):
        file.read(0, 4)
    faults.heal()
    faults.write_error_odds = 1.0
    with pytest.raises(OSError):
        env.disk.rename("/data/log", "/data/other")
    assert env.disk.exists("/data/log")
    faults.heal()
    env.disk.rename("/data/log", "/data/other")


@in_world
async def test_a_sync_takes_time_and_promises_what_was_written_before_it(world: World) -> None:
    env = world.node("n1")
    file = opened(env)
    world.disk("n1").faults.sync_s = (1.0, 1.0)
    file.append([b"before"])
    start = env.clock.steady()
    syncing = asyncio.ensure_future(env.disk.sync([file]))
    await asyncio.sleep(0.5)
    file.append([b" during"])
    await syncing
    assert env.clock.steady() - start == pytest.approx(1.0)
    lefts = set()
    for seed in range(30):
        with World(seed) as other:
            left = other.node("x")
            node = other.disk("x").files.create("/log")
            other.disk("x").files.sync_folder("/")
            node.content, node.durable = bytearray(b"before"), bytearray(b"before")
            left.disk.open("/log").append([b" during"])
            other.crash("x")
            lefts.add(other.restart("x").disk.read_all("/log"))
    assert b"before" in lefts and all(left.startswith(b"before") for left in lefts)


@in_world
async def test_a_slow_sync_hangs_for_as_long_as_it_is_told(world: World) -> None:
    env = world.node("n1")
    file = opened(env)
    world.disk("n1").faults.slow_sync_odds = 1.0
    world.disk("n1").faults.slow_sync_s = (30.0, 30.0)
    file.append([b"x"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(29):
            await env.disk.sync([file])


@in_world
async def test_bits_flip_in_what_is_durable_too(world: World) -> None:
    env = world.node("n1")
    file = opened(env)
    file.append([bytes(1000)])
    await env.disk.sync([file])
    world.disk("n1").flip_bits("/data/log", 3)
    world.crash("n1")
    left = world.restart("n1").disk.read_all("/data/log")
    assert 1 <= sum(byte.bit_count() for byte in left) <= 3


@in_world
async def test_after_a_crash_the_page_cache_is_cold(world: World) -> None:
    env = world.node("n1")
    file = opened(env)
    file.append([b"abc"])
    await env.disk.sync([file])
    assert file.read_cached(0, 3) == b"abc"
    world.crash("n1")
    env = world.restart("n1")
    file = env.disk.open("/data/log")
    assert file.read_cached(0, 3) is None
    assert await env.disk.run(file.read, 0, 3) == b"abc" == file.read_cached(0, 3)
    world.disk("n1").faults.cold_odds = 1.0
    assert file.read_cached(0, 3) is None


@in_world
async def test_a_dead_nodes_lock_and_files_are_nobodys(world: World) -> None:
    env = world.node("n1")
    env.disk.lock("/data/.lock")
    file = opened(env)
    with pytest.raises(BlockingIOError):
        env.disk.lock("/data/.lock")
    world.kill("n1")
    for use in (lambda: file.append([b"x"]), lambda: file.read(0, 1), file.sync):
        with pytest.raises(NodeDown):
            use()
    with pytest.raises(NodeDown):
        env.disk.list("/data")
    file.close()
    world.restart("n1").disk.lock("/data/.lock")


# --- habits --------------------------------------------------------------------------------------


@in_world
async def test_a_full_disk_may_take_no_new_names_either(world: World) -> None:
    world.disk_habits = lambda _: DiskHabits(names_need_room=True)
    env = world.node("n1")
    opened(env).append([b"x" * 100])
    world.disk("n1").files.capacity = 200
    for change in (
        lambda: env.disk.open("/data/other", create=True),
        lambda: env.disk.make_folders("/data/folder"),
        lambda: env.disk.rename("/data/log", "/data/other"),
    ):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.ENOSPC
    assert env.disk.list("/data") == ["log"]
    world.disk("n1").files.capacity = None
    env.disk.rename("/data/log", "/data/other")


def test_some_seeds_have_habits_and_a_cold_cache_is_a_machines_own() -> None:
    worlds = []
    for seed in range(200):
        with World(seed) as world:
            worlds.append(drawn(world.stream))
    some = [habits for habits in worlds if habits("node-1") is not PLAIN]
    assert 40 < len(some) < 100
    assert all(habits("node-2") is PLAIN for habits in worlds if habits not in some)
    for name in ("has_threads", "syncs_wait", "names_need_room"):
        assert {getattr(habits("node-1"), name) for habits in some} == {False, True}
    cold = [{habits(f"node-{place}").cold_odds for place in (1, 2, 3)} for habits in some]
    assert {0.0, 0.2} in cold and {0.0} in cold


def test_a_crash_can_come_after_each_single_operation_and_a_checkpoint_stays_whole() -> None:
    """Five operations a checkpoint (six for a new one), each a place to die; none shows half of it."""
    found: dict[int, set[bytes | None]] = {}
    for operation in range(1, 13):
        for seed in range(12):
            with World(f"{seed}-{operation}") as world:
                env = world.node("n1")
                world.crash_at_disk_op("n1", operation)

                lefts = found.setdefault(operation, set())

                async def main(world: World = world, env: Any = env, lefts: Any = lefts) -> None:
                    try:
                        await world.on(env, save(env))
                    except NodeLost:
                        pass
                    else:
                        world.crash("n1")
                    disk = world.restart("n1").disk
                    there = disk.exists("/data/checkpoint")
                    left = disk.read_all("/data/checkpoint") if there else None
                    lefts.add(left)

                world.run(main())
    for operation, lefts in found.items():
        allowed: set[bytes | None] = {None, b"first"} if operation <= 6 else {b"first", b"second"}
        if operation == 6:
            allowed = {b"first"}  # create, truncate, append, sync, rename, sync_folder: it is there
        assert lefts <= allowed, f"after operation {operation}: {lefts}"
    assert found[1] == {None} and {b"first", b"second"} in found.values()


def test_a_checkpoint_written_without_syncs_is_caught() -> None:
    """The simulator must see the faults that it is there for."""

    async def careless(env: Any) -> None:
        for content in (b"first", b"second"):
            file = env.disk.open("/data/checkpoint.tmp", create=True)
            file.append([content])
            env.disk.rename("/data/checkpoint.tmp", "/data/checkpoint")

    lefts = set()
    for seed in range(60):
        with World(seed) as world:
            env = world.node("n1")

            async def main(world: World = world, env: Any = env) -> None:
                await world.on(env, careless(env))
                world.crash("n1")
                disk = world.restart("n1").disk
                names = disk.list("/data")
                lefts.add(tuple((name, disk.read_all(f"/data/{name}")) for name in names))

            world.run(main())
    assert () in lefts
    assert (("checkpoint", b"second"),) in lefts
    assert any(left and left[0][1] not in (b"first", b"second") for left in lefts)
