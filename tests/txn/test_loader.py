"""Replaying a partition: fast, and to the same end as reading it record by record."""

import asyncio
import time
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import HEADER_SIZE, headers_of
from fencepost.cluster.wire.compression import decompress
from fencepost.cluster.wire.records import Record, build_batch, control_batch, read_records
from fencepost.txn.groups.commands import DeleteGroups
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.groups_machine import GroupsMachine
from fencepost.txn.groups.records import GroupMetadata, MemberMetadata, OffsetCommitted
from fencepost.txn.groups.registry import CODEC
from fencepost.txn.runtime.loader import Loader
from fencepost.txn.runtime.replay import Replay, rows_of
from hypothesis import given
from hypothesis import strategies as st
from support.fake_log import FakeLog
from support.group_scene import NoConsumerGroups, Scene, replay

E = ErrorCode


def fill(log: FakeLog, scene: Scene, batch_of: int = 3, compression: int = 0) -> None:
    """Write what the scene logged the way a shard would."""
    markers = list(scene.markers)
    rows: list[Record] = []
    producer = -1

    def flush() -> None:
        if rows:
            log.append(
                build_batch(
                    rows,
                    producer_id=producer,
                    producer_epoch=0 if producer >= 0 else -1,
                    transactional=producer >= 0,
                    compression=compression,
                ),
                0,
            )
            rows.clear()

    def mark(before: int) -> None:
        while markers and markers[0][0] <= before:
            _, producer_id, commit = markers.pop(0)
            flush()
            log.append(
                control_batch(
                    commit=commit,
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=0,
                ),
                0,
            )

    for number, (key, value, producer_id) in enumerate(scene.log):
        mark(number)
        if producer_id != producer or len(rows) >= batch_of:
            flush()
        producer = producer_id
        rows.append(Record(len(rows), 0, key, value))
    flush()
    mark(len(scene.log))


def state(machine: GroupsMachine) -> dict[str, Any]:
    """All but where in the log a position stands: markers take offsets that the plain list has not."""
    return {
        "groups": {
            group_id: {
                **{name: getattr(group, name) for name in group.__slots__},
                "topics_in_use": group.subscribed,
            }
            for group_id, group in machine.classic.groups.items()
        },
        "positions": {
            group_id: {key: position[:-1] for key, position in positions.items()}
            for group_id, positions in machine.offsets.positions.items()
        },
        "pending": {
            producer: {key: position[:-1] for key, position in pending.items()}
            for producer, pending in machine.offsets.pending.items()
        },
        "open": machine.offsets.open_by_group,
    }


def new_machine() -> GroupsMachine:
    return GroupsMachine(GroupConfig(), NoConsumerGroups(), lambda: 0.0)


def load_it(log: FakeLog, machine: GroupsMachine, wanted: Any = lambda: True) -> ErrorCode:
    with World(seed=1) as world:
        env = world.node("n")

        async def go() -> ErrorCode:
            work = Loader(env).load("p-0", log=log, machine=machine, codec=CODEC, is_wanted=wanted)
            unread = await work
            if isinstance(unread, ErrorCode):
                return unread
            for owner in unread.first(len(unread)):
                assert unread.read(owner, machine)
            return E.none

        return world.run(world.on(env, go()))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from("gh"), st.integers(0, 1)),
        st.tuples(st.just("txn"), st.sampled_from("gh"), st.integers(7, 8)),
        st.tuples(st.just("end"), st.integers(7, 8), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from("gh")),
        st.tuples(st.just("stable"), st.sampled_from("gh")),
        st.tuples(st.just("leave"), st.sampled_from("gh")),
    ),
    max_size=12,
)


@given(ACTIONS, st.integers(1, 5), st.sampled_from([0, 4]))
def test_a_fast_replay_ends_where_a_plain_one_does(actions, batch_of, compression) -> None:
    scene = Scene()
    play(scene, actions)
    log, plain, fast = FakeLog(), new_machine(), new_machine()
    fill(log, scene, batch_of, compression)
    replay(plain, scene.log, scene.markers)
    assert load_it(log, fast) is E.none
    assert state(fast) == state(plain)


def play(scene: Scene, actions: Any) -> None:
    for number, action in enumerate(actions):
        match action:
            case ("commit", group, partition):
                scene.commit(("t", partition, number), group=group)
            case ("txn", group, producer):
                scene.commit_in_transaction(producer, ("t", 0, number), group=group)
            case ("end", producer, commit):
                scene.end_transaction(producer, commit=commit)
            case ("delete", group):
                scene.do(DeleteGroups(group_ids=(group,)))
            case ("stable", group):
                if scene.phase(group) in ("Empty", "none"):
                    scene.stable(2, group=group)
            case ("leave", group):
                found = scene.machine.classic.groups.get(group)
                if found is not None:
                    scene.leave(*found.members, group=group)


@given(
    st.lists(
        st.tuples(st.binary(max_size=300), st.none() | st.binary(max_size=300)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 4),
)
def test_the_fast_reader_of_records_sees_what_the_plain_one_sees(rows, compression) -> None:
    records = [Record(i * 70, i * 100_000, key, value) for i, (key, value) in enumerate(rows)]
    batch = build_batch(records, base_offset=1_000, compression=compression)
    ((_, header),) = headers_of(batch)
    body, at = bytes(batch), HEADER_SIZE
    if compression:
        body, at = decompress(compression, body[at:]), 0
    plain = [(r.offset, r.key, r.value) for r in read_records(batch)]
    assert rows_of(body, at, header.record_count, header.base_offset) == plain


def test_nothing_is_loaded_that_may_yet_go_away() -> None:
    """A new leader's log may end with records that nobody else has."""
    log = FakeLog(commits_at_once=False)
    fill(log, _committed("a"))
    machine = new_machine()
    with World(seed=1) as world:
        env = world.node("n")

        async def scenario() -> None:
            loading = asyncio.get_running_loop().create_task(
                Loader(env).load(
                    "p-0",
                    log=log,
                    machine=machine,
                    codec=CODEC,
                    is_wanted=lambda: True,
                    read_all=True,
                )
            )
            await asyncio.sleep(1)
            assert not loading.done()
            log.commit()
            assert not isinstance(await loading, ErrorCode)

        world.run(world.on(env, scenario()))
    assert "g" in machine.offsets.positions


def _committed(metadata: str) -> Scene:
    scene = Scene()
    scene.commit(("t", 0, 1), metadata=metadata)
    return scene


def test_a_load_that_is_not_wanted_any_more_ends() -> None:
    log = FakeLog()
    fill(log, _committed("a"))
    assert load_it(log, new_machine(), wanted=lambda: False) is E.not_coordinator


def test_a_load_ends_when_leadership_does() -> None:
    log = FakeLog()
    fill(log, _committed("a"))
    log.is_leader = False
    assert load_it(log, new_machine()) is E.not_leader_or_follower


def test_an_empty_log_is_loaded_at_once() -> None:
    assert load_it(FakeLog(), new_machine()) is E.none


def test_a_log_that_compaction_left_nothing_of_is_loaded() -> None:
    log = FakeLog()
    fill(log, _committed("a"))
    log.batches.clear()
    machine = new_machine()
    assert load_it(log, machine) is E.none
    assert machine.offsets.positions == {}


@pytest.mark.slow
def test_ten_thousand_groups_load_in_a_fraction_of_a_second() -> None:
    """A bound against the worst (a tenth of the machine this was written on), not a benchmark."""
    log = FakeLog()
    rows: list[Record] = []
    for number in range(10_000):
        name = f"group-{number}"
        member = MemberMetadata(
            member_id=f"consumer-{number}-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
            client_id="consumer",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            subscription=b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff\x00\x00\x00\x00",
            assignment=b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00",
        )
        group = GroupMetadata(
            group_id=name,
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader=member.member_id,
            current_state_timestamp=5,
            members=(member,),
        )
        position = OffsetCommitted(
            group_id=name, topic="orders", partition=0, committed_offset=9, commit_timestamp=1
        )
        for record in (group, position):
            key, value = record.encode()
            rows.append(Record(len(rows), 0, key, value))
        if len(rows) >= 500:
            log.append(build_batch(rows), 0)
            rows = []
    machine = new_machine()
    replaying = Replay(machine, CODEC)
    began = time.process_time()
    replaying.take(b"".join(log.batches))
    replaying.close()
    for _ in replaying.finish():
        pass
    took_s = time.process_time() - began
    print(f"{took_s * 1000:.0f} ms for 20,000 records")
    assert len(machine.classic.groups) == 10_000
    assert took_s < 5
