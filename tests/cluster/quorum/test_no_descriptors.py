"""A node that may open no file for a while: nothing has failed, and nothing that was acknowledged is lost."""

import asyncio
import errno
import os
import pathlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Outcome, Trouble
from fencepost.cluster.base.real_env import RealEnv, open_env
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import Applied, MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum import journal as journal_module
from fencepost.cluster.quorum import store
from fencepost.cluster.quorum.raft_shell import Quorum
from journal_script import FOLDER, opened


class Notes:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None:
        self.events.append(event)

    warn = error = info


def setting(name: str) -> bytes:
    change = ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: "x" * 100})
    return encode([change])


def descriptors() -> set[int]:
    names = os.listdir("/proc/self/fd")  # one of them is the folder's own
    return {int(name) for name in names if os.path.exists(f"/proc/self/fd/{name}")}


@contextmanager
def no_more_than(left: int) -> Iterator[None]:
    """Of the descriptors that this process could open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = descriptors()
    free = [fd for fd in range(len(used) + left + 20) if fd not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[left], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1])
def test_a_journal_that_can_not_open_its_next_segment_waits_until_it_can(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """It ended the node, which can't be started either then. One is enough for the segment, but not for its folder."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES_MAX", 1500)
    monkeypatch.setattr(store, "FULL_DISK_RETRY_S", 0.02)
    died: list[BaseException] = []
    monkeypatch.setattr(RealEnv, "die", lambda _, reason: died.append(reason))
    folder = str(tmp_path / "quorum")

    async def start(env: Any, machine: MetadataMachine) -> Quorum:
        quorum = Quorum(env, folder, machine, 1, {1: ("a", 1)})
        await quorum.start()
        await quorum.wait_ready()
        return quorum

    async def until_it_waits(quorum: Quorum, told: list[str], notes: Notes) -> Any:
        while True:
            asked = asyncio.ensure_future(quorum.propose(setting(f"s{len(told)}")))
            told.append(f"s{len(told)}")
            while not asked.done():
                await asyncio.sleep(0.001)
                assert not died
                if "metadata_no_descriptors" in notes.events:
                    return asked

    async def life() -> list[str]:
        notes, told = Notes(), []
        async with open_env(log=notes) as env:
            quorum = await start(env, MetadataMachine())
            await quorum.propose(setting("before"))
            before = descriptors()
            with no_more_than(left):
                asked = await until_it_waits(quorum, told, notes)
                await asyncio.sleep(0.2)
                assert not asked.done()  # it may happen yet
                with pytest.raises(Trouble, match=r"can't be written: .*Too many open") as refused:
                    await quorum.propose(setting("refused"))
                assert refused.value.outcome is Outcome.REFUSED
            assert isinstance(await asked, Applied)
            assert isinstance(await quorum.propose(setting("after")), Applied)
            assert len(descriptors()) <= len(before), "each try kept one"
            assert notes.events.count("metadata_no_descriptors") == 1
            assert notes.events.count("metadata_files_open_again") == 1
        return told

    async def again() -> dict[str, str]:
        async with open_env(log=Notes()) as env:
            machine = MetadataMachine()
            await start(env, machine)
            return dict(machine.image.config(ConfigType.BROKER, ""))

    told = asyncio.run(life())
    assert set(asyncio.run(again())) == {"before", *told, "after"}


def test_a_segment_whose_removal_was_not_made_durable_is_not_removed_twice() -> None:
    """The folder can't be opened to be synced. The next try met no such file, which ended the node."""
    with World(seed=1) as world:
        env = world.node("a")

        async def life() -> None:
            journal = opened(env)
            for number in range(1, 40):
                journal.add(b"x" * 200, number, 1)
                await journal.make_durable()
            segments = len(journal._segments)
            assert segments > 3
            journal.deleteEntriesTo(len(journal) - 2)
            world.disk("a").faults.fail("sync_folder", path=FOLDER, number=errno.EMFILE)
            with pytest.raises(OSError, match="Too many open files"):
                await journal.make_durable()
            assert journal.dirty, "it is to be tried again"
            await journal.make_durable()
            assert len(journal._segments) < segments and not journal.dirty

        before, journal_module.SEGMENT_BYTES_MAX = journal_module.SEGMENT_BYTES_MAX, 1000
        try:
            world.run(world.on(env, life()))
        finally:
            journal_module.SEGMENT_BYTES_MAX = before
        assert opened(world.restart("a"))[-1].idx == 39
