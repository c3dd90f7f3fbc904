"""What a process left that saw its disk fail, or was killed before a sync: the next one makes sure of it."""

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.quorum import journal as journal_module
from fencepost.cluster.quorum.journal import JournalLost
from journal_script import Script, opened


async def _add_three(env: SimEnv) -> None:
    await Script([("add", 3), ("sync", 0)]).run(env)


async def _add_two_more(env: SimEnv, *, fails: bool = False) -> None:
    journal = opened(env)
    for _ in range(2):
        journal.add(b"more" * 20, journal[-1].idx + 1, 2)
    if fails:
        env.machine.disk.faults.fail("sync", path="*.journal")
    await journal.make_durable()


def test_what_a_failed_sync_left_is_written_again_before_anything_follows_it() -> None:
    """1. A sync fails: the kernel takes the pages of that group for clean, though they are not on the disk.
    2. The process ends itself and is started again on the same boot: it reads the group from the page cache.
    3. It adds a group behind, synced. The power goes: the first group would be gone from the middle.
    """
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, _add_three(env)))
        env = world.restart("a")
        with pytest.raises(JournalLost):
            world.run(world.on(env, _add_two_more(env, fails=True)))
        world.disk("a").faults.heal()
        env = world.restart("a")
        world.run(world.on(env, _add_two_more(env)))
        there = list(opened(world.restart("a"))[0:])
        world.crash("a", torn=False)
        assert list(opened(world.restart("a"))[0:]) == there


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("operation", range(1, 10))
def test_a_kill_and_then_no_power_lose_nothing_that_was_synced_between(
    monkeypatch: pytest.MonkeyPatch, seed: int, operation: int
) -> None:
    """A segment whose name was not synced when its process was killed is given its name for good."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES_MAX", 100)
    with World(seed=seed) as world:
        env = world.node("a")
        world.run(world.on(env, _add_three(env)))
        env = world.restart("a")
        world.crash_at_disk_op("a", operation, kill=True)
        try:
            world.run(world.on(env, _add_two_more(env)))
        except NodeLost:
            pass
        world.disk("a").on_operation = None
        env = world.restart("a")
        world.run(world.on(env, _add_two_more(env)))
        there = list(opened(world.restart("a"))[0:])
        world.crash("a")
        assert list(opened(world.restart("a"))[0:]) == there
