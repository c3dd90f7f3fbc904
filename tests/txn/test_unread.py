"""Groups that are read from the log when they are first asked for: nobody can tell that from one read at once."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.txn.groups.classic_turn import session_timer
from fencepost.txn.groups.commands import DescribeGroups, ListGroups, OffsetFetch
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.groups_machine import GroupsMachine
from fencepost.txn.groups.registry import CODEC
from fencepost.txn.runtime.decision import SetTimer
from fencepost.txn.runtime.ports import Codec
from fencepost.txn.runtime.replay import READ_MAX, Replay
from fencepost.txn.runtime.shard import Shard
from fencepost.txn.runtime.unread import Unread
from hypothesis import given
from hypothesis import strategies as st
from support.fake_log import FakeLog
from support.group_node import GroupNode, on_node
from support.group_scene import NoConsumerGroups, Scene, replay
from test_loader import ACTIONS, fill, new_machine, play, state

E = ErrorCode


@given(ACTIONS, st.integers(1, 5), st.permutations("ghi"))
def test_an_owner_that_is_read_late_is_the_same_as_one_that_was_read_at_once(
    actions: Any, batch_of: int, order: list[str]
) -> None:
    """The slow twin applies each record of the log, one by one; here groups are read in any order."""
    scene = Scene()
    play(scene, actions)
    log, plain, late = FakeLog(), new_machine(), new_machine()
    fill(log, scene, batch_of)
    replay(plain, scene.log, scene.markers)
    taken = Replay(late, CODEC)
    taken.take(b"".join(log.batches))
    taken.close()
    for group_id in order:
        taken.unread.read(group_id.encode(), late)
        assert state_of(late, group_id) == state_of(plain, group_id)
        assert not taken.unread.read(group_id.encode(), late), "it is read once"
    assert not taken.unread
    assert state(late) == state(plain)


def state_of(machine: GroupsMachine, group_id: str) -> Any:
    whole = state(machine)
    command = DescribeGroups(group_ids=(group_id,))
    fetch = OffsetFetch(group_id=group_id, topics=None, require_stable=True)
    return (
        whole["groups"].get(group_id),
        whole["positions"].get(group_id),
        whole["open"].get(group_id),
        machine.decide(command, 0).reply,
        machine.decide(fetch, 0).reply,
    )


@given(ACTIONS)
def test_timers_of_who_is_read_late_are_those_of_a_whole_load(actions: Any) -> None:
    scene = Scene()
    play(scene, actions)
    log, whole, late = FakeLog(), new_machine(), new_machine()
    fill(log, scene)
    replay(whole, scene.log, scene.markers)
    taken = Replay(late, CODEC)
    taken.take(b"".join(log.batches))
    taken.close()
    timers = list(late.loaded(7).effects)
    for owner in taken.unread.first(len(taken.unread)):
        taken.unread.read(owner, late)
        timers += late.woken(owner.decode(), 7).effects
    assert sorted(map(str, timers)) == sorted(map(str, whole.loaded(7).effects))


class Applied:
    """A machine that notes what is applied; its records are keys and values as they are."""

    def __init__(self) -> None:
        self.changes: list[tuple[bytes, bytes | None, int]] = []

    def apply(self, change: Any, offset: int = -1, producer_id: int = -1) -> None:
        self.changes.append((*change, offset))

    def read(self, unread: Unread) -> list[tuple[bytes, bytes | None, int]]:
        assert unread.read(b"g", self)  # type: ignore[arg-type]
        return self.changes


def unread_of_plain_records() -> Unread:
    return Unread(Codec(owner_of=lambda *_: b"g", decode=lambda key, value: (key, value)))


def test_a_key_that_was_written_again_is_applied_where_it_was_written_last() -> None:
    """A record may rest on those before it, as a member does on its group's."""
    unread = unread_of_plain_records()
    for offset, key in enumerate((b"a", b"b", b"a")):
        unread.keep(b"g", offset, key, b"%d" % offset)
    assert Applied().read(unread) == [(b"b", b"1", 1), (b"a", b"2", 2)]


def test_what_a_late_marker_commits_counts_by_its_place_in_the_log() -> None:
    """1. A transaction writes at 3. 2. Somebody writes the same key at 5, outside. 3. The marker comes."""
    unread = unread_of_plain_records()
    unread.keep(b"g", 5, b"a", b"outside")
    unread.keep_older(b"g", 3, b"a", b"older")
    unread.keep(b"g", 6, b"b", b"outside")
    unread.keep_older(b"g", 7, b"b", b"newer")
    unread.keep_older(b"g", 4, b"c", b"alone")
    applied = [(b"c", b"alone", 4), (b"a", b"outside", 5), (b"b", b"newer", 7)]
    assert Applied().read(unread) == applied


# -- on a node ----------------------------------------------------------------------------------------

MANY = 3 * READ_MAX


def many_groups() -> FakeLog:
    """A partition with stable groups of one member each, all of which have a position."""
    log = FakeLog()
    for number in range(MANY):
        scene = Scene()
        name = f"group-{number:04}"
        scene.commit(("t", 0, number), group=name)
        scene.stable(1, group=name)
        fill(log, scene)
    return log


async def takes_over(node: GroupNode, log: FakeLog) -> Shard:
    """The node becomes the coordinator of what another has written; the moment it is loaded."""
    await node.create_offsets_topic(GROUP_OFFSETS_TOPIC)
    await asyncio.sleep(0.1)
    node.lead(0, 2, epoch=1)
    node.logs[0] = log
    node.lead(0, 1, epoch=2)
    for _ in range(10_000):
        shard = node.service._coordinator.shard_at(0)
        if isinstance(shard, Shard):
            return shard
        await asyncio.sleep(0)
    raise AssertionError("it was not loaded")


def test_one_group_is_served_before_the_others_have_been_read() -> None:
    log = many_groups()

    async def scenario(node: GroupNode) -> None:
        shard = await takes_over(node, log)
        last = f"group-{MANY - 1:04}"
        assert await node.fetch(last) == MANY - 1
        assert last in shard.machine.classic.groups  # type: ignore[attr-defined]
        assert len(shard.machine.classic.groups) < MANY  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        assert len(shard.machine.classic.groups) == MANY  # type: ignore[attr-defined]

    on_node(scenario, partitions=1)


def test_who_asks_for_all_groups_waits_until_all_have_been_read() -> None:
    log = many_groups()

    async def scenario(node: GroupNode) -> None:
        shard = await takes_over(node, log)
        assert len(await shard.execute(ListGroups())) == MANY

    on_node(scenario, partitions=1)


def test_who_waits_for_all_groups_is_answered_when_the_partition_moves_on() -> None:
    log = many_groups()

    async def scenario(node: GroupNode) -> None:
        shard = await takes_over(node, log)
        asked = asyncio.get_running_loop().create_task(shard.execute(ListGroups()))
        await asyncio.sleep(0)
        assert not asked.done()
        node.lead(0, 2, epoch=3)
        assert await asked is E.not_coordinator

    on_node(scenario, partitions=1)


def test_a_member_nobody_hears_of_is_thrown_out_though_nobody_asked_for_its_group() -> None:
    """Its session begins when its group is read, which nobody has to wait for."""
    log = many_groups()

    async def scenario(node: GroupNode) -> None:
        shard = await takes_over(node, log)
        await asyncio.sleep(400)
        groups = await shard.execute(ListGroups())
        assert {group["group_state"] for group in groups} == {"Empty"}

    on_node(scenario, partitions=1)


def test_a_record_deep_inside_that_can_not_be_read_closes_the_partition_for_good() -> None:
    """Its version is known and its bytes are not: it comes to light when the group is read, and then the next
    load looks at everything before it opens."""
    log = many_groups()
    log.append(build_batch([Record(0, 0, b"\x00\x02\x00\x01x", b"\x00\x03\xff")]), 0)

    async def scenario(node: GroupNode) -> None:
        await takes_over(node, log)
        await asyncio.sleep(10)
        opened = [each for each in node.env.machine.events if "coordinator_lost" in str(each)]
        assert opened == []
        for _ in range(50):
            assert node.service._coordinator.shard_at(0) is E.not_coordinator
            await asyncio.sleep(0.1)
        events = [each for each in node.env.machine.events if "unreadable" in str(each)]
        assert events

    on_node(scenario, partitions=1)


@pytest.mark.parametrize("members", [1, 3])
def test_a_group_over_the_limit_shrinks_also_when_it_is_read_late(members: int) -> None:
    scene, log = Scene(), FakeLog()
    scene.stable(members, group="g")
    fill(log, scene)
    machine = GroupsMachine(GroupConfig(group_max_size=2), NoConsumerGroups(), lambda: 0.0)
    taken = Replay(machine, CODEC)
    taken.take(b"".join(log.batches))
    taken.close()
    taken.unread.read(b"g", machine)
    decision = machine.woken("g", 0)
    sessions = [session_timer("g", id_) for id_ in machine.classic.groups["g"].members]
    timers = [each.key for each in decision.effects if isinstance(each, SetTimer)]
    assert [key for key in timers if key[0] == "session"] == sessions
    assert bool(decision.steps) is (members > 2)
