"""pysyncobj is held: it touches nothing of the world but through us, and is the version we know."""

import builtins
import os
import socket
import threading

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum.held import Snapshots
from fencepost.cluster.quorum.journal import Journal
from fencepost.cluster.quorum.raft import Raft
from fencepost.cluster.quorum.redirected import in_world
from fencepost.cluster.quorum.transport import QuorumTransport
from fencepost.cluster.quorum.vote_file import VoteFile
from pysyncobj import SyncObj, syncobj
from pysyncobj.version import VERSION

# What of SyncObj's private names the seam relies on.
PRIVATE = (
    "_SyncObj__doApplyCommand",
    "_SyncObj__loadDumpFile",
    "_SyncObj__onMessageReceived",
    "_SyncObj__applyLogEntries",
    "_SyncObj__tryLogCompaction",
)


def raft_on(world: World, name: str, apply=lambda entry: entry) -> Raft:
    env = world.node(name)
    journal = Journal.open(env, "/data/q", VoteFile(env, "/data/q/vote"))
    with in_world(env):
        raft = Raft(1, {1: ("a", 1)}, journal, QuorumTransport(), Snapshots(bytes), apply)
        raft.elect_at_once()
    return raft


def test_pysyncobj_still_has_the_names_that_are_overridden() -> None:
    assert VERSION.startswith("0.3."), VERSION
    for name in PRIVATE:
        assert hasattr(SyncObj, name), f"{VERSION} has no {name}"
    with World(seed=1) as world:
        raft = raft_on(world, "a")
        for name in ("_SyncObj__serializer", "_SyncObj__raftElectionDeadline", "_poller"):
            assert hasattr(raft, name), f"{VERSION} has no {name}"


def test_pysyncobj_opens_no_file_no_socket_and_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("pysyncobj touched the world")

    with World(seed=1) as world:
        world.node("a")
        for owner, name in (
            (builtins, "open"),
            (os, "pipe"),
            (os, "fork"),
            (os, "rename"),
            (socket, "socket"),
            (threading.Thread, "start"),
        ):
            monkeypatch.setattr(owner, name, forbidden)
        raft = raft_on(world, "a")
        env, answers = world.node("a"), []

        async def live() -> None:
            for number in range(3):
                await raft.journal.make_durable()
                raft.submit(b"%d" % number, lambda result, _: answers.append(result))
                if number == 2:
                    raft.forceLogCompaction()
                with in_world(env):
                    raft.doTick()
            await raft.journal.make_durable()
            with in_world(env):
                raft.doTick()
                raft.destroy()

        world.run(world.on(env, live()))
        assert answers == [b"0", b"1", b"2"]


def test_an_entry_is_a_kind_and_our_own_bytes_and_nothing_is_unpickled() -> None:
    """pysyncobj's is a pickle of a method's number: code for whoever may write to a log."""
    with World(seed=1) as world:
        applied: list[bytes] = []
        raft = raft_on(world, "a", applied.append)
        env = world.node("a")

        async def live() -> None:
            await raft.journal.make_durable()
            raft.submit(b"ours", lambda *_: None)
            for _ in range(2):
                with in_world(env):
                    raft.doTick()
                await raft.journal.make_durable()

        world.run(world.on(env, live()))
        assert applied == [b"ours"]
        assert raft.journal[-1].command == b"\x00ours"
        with pytest.raises(AssertionError, match="unpickles"):
            syncobj.pickle.loads(b"")


def test_an_entry_of_a_kind_that_we_never_write_is_a_broken_invariant() -> None:
    with World(seed=1) as world:
        raft = raft_on(world, "a")
        with pytest.raises(AssertionError, match="kind 3"):
            raft._SyncObj__doApplyCommand(b"\x03whatever")


def test_each_node_has_its_own_clock_and_dice_though_pysyncobj_has_globals() -> None:
    """Two nodes in one process: what one rolls must not change what the other does."""
    with World(seed=1) as world:
        one, other = world.node("one"), world.node("other")
        with in_world(one):
            first = (syncobj.random.random(), syncobj.monotonicTime())
            with in_world(other):
                inner = (syncobj.random.random(), syncobj.monotonicTime())
            second = syncobj.random.random()
    with World(seed=1) as world:
        one, other = world.node("one"), world.node("other")
        with in_world(one):
            assert (syncobj.random.random(), syncobj.monotonicTime()) == first
            assert syncobj.random.random() == second
        with in_world(other):
            assert (syncobj.random.random(), syncobj.monotonicTime()) == inner


def test_outside_a_world_pysyncobj_has_neither_clock_nor_dice() -> None:
    for ask in (syncobj.monotonicTime, syncobj.random.random):
        with pytest.raises(LookupError):
            ask()
