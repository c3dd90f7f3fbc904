import errno

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum import journal as journal_module
from fencepost.cluster.quorum import segment_format
from fencepost.cluster.quorum.journal import JournalLost
from fencepost.cluster.quorum.segment_format import SEGMENT_HEADER_SIZE, Entry
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_script import FOLDER, Script, after, crash_at_every_operation, opened

FIRST = f"{FOLDER}/{1:020d}.journal"
SECOND = f"{FOLDER}/{2:020d}.journal"


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES_MAX", 300)


def steps_of(text: str) -> list[tuple[str, int]]:
    kinds = {"+": "add", "-": "cut", "^": "drop", "s": "sync"}
    return [(kinds[word[0]], int(word[1:] or 0)) for word in text.split()]


async def holding(env: SimEnv, text: str = "+3 s +2 s +4 s"):
    await Script(steps_of(text)).run(env)


# --- crashes --------------------------------------------------------------------------------------

LIFE = "+1 s +3 s +2 s -2 +1 s +5 s ^4 s +9 s -3 s +4 s ^8 +2 s s +1 +1 s ^5 s"


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_no_crash_at_any_disk_operation_loses_what_was_durable(
    small_segments: None, seed: int, kill: bool
) -> None:
    """Rolls, conflicts and dropped heads among them; torn in any sector that was not synced."""
    assert crash_at_every_operation(seed, steps_of(LIFE), kill=kill) > 40


steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "cut", "drop", "sync", "sync"]), st.integers(1, 6)),
    max_size=25,
)


@settings(max_examples=150)
@given(steps, st.integers(1, 60), st.integers(0, 2**32), st.booleans())
def test_whatever_is_done_before_a_crash_is_there_or_was_never_acknowledged(
    steps: list, operation: int, seed: int, kill: bool
) -> None:
    before, journal_module.SEGMENT_BYTES_MAX = journal_module.SEGMENT_BYTES_MAX, 300
    try:
        with World(seed=seed) as world:
            script, env = Script(steps), world.node("a")
            world.crash_at_disk_op("a", operation, kill=kill)
            try:
                world.run(world.on(env, script.run(env)))
            except NodeLost:
                pass
            world.disk("a").on_operation = None  # the script may have ended before it
            after(world.restart("a"), script)
    finally:
        journal_module.SEGMENT_BYTES_MAX = before


def test_a_conflict_that_reached_into_a_segment_which_was_dropped_later_is_read_back(
    small_segments: None,
) -> None:
    """The first segment left begins with an entry behind the one at which its second group begins."""
    for count in range(1, 9):
        with World(seed=1) as world:
            env = world.node("a")
            script = Script(steps_of(f"+6 s +6 s +6 s -{count} +9 s ^18 s +1 s"))
            world.run(world.on(env, script.run(env)))
            after(world.restart("a"), script)


def test_two_crashes_in_a_row_lose_no_more_than_one(small_segments: None) -> None:
    for seed in range(20):
        with World(seed=seed) as world:
            script = Script(steps_of("+3 s +3 s +3 s"))
            env = world.node("a")
            world.crash_at_disk_op("a", 14)
            with pytest.raises(NodeLost):
                world.run(world.on(env, script.run(env)))
            env = world.restart("a")
            found = list(opened(env)[0:])
            world.crash("a")
            # The first start cut the torn tail: the second finds the same.
            assert list(opened(world.restart("a"))[0:]) == found


# --- damage ---------------------------------------------------------------------------------------


def flipped(world: World, path: str, position: int) -> None:
    world.disk("a").files.file(path).flip(position, 3)


def test_a_torn_tail_is_cut_and_said() -> None:
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, holding(env, "+3 s")))
        size = env.disk.size(FIRST)
        env.disk.open(FIRST).append([b"\xf5FPG half of a group"])
        env = world.restart("a")
        assert [entry.idx for entry in opened(env)[0:]] == [1, 2, 3]
        assert env.disk.size(FIRST) == size
        (cut,) = [fields for _, event, fields in world.machine("a").events if "torn_tail" in event]
        assert cut["position"] == size


def test_a_damaged_middle_is_refused_with_file_and_position() -> None:
    """The group behind it was written after this one was synced: this is no torn write."""
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, holding(env)))
        flipped(world, FIRST, SEGMENT_HEADER_SIZE + 20)
        with pytest.raises(
            LogDamaged, match=f"{FIRST} is damaged at position {SEGMENT_HEADER_SIZE}"
        ):
            opened(world.restart("a"))


def test_damage_to_the_last_entries_of_a_node_that_stopped_is_refused() -> None:
    """Without the seal they would pass for a torn tail, and acknowledged entries would be cut off."""
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, holding(env, "+3 s")))
        flipped(world, FIRST, SEGMENT_HEADER_SIZE + 40)
        with pytest.raises(LogDamaged, match="what follows was durable once"):
            opened(world.restart("a"))


@settings(max_examples=150)
@given(st.data())
def test_any_flipped_bit_is_cut_off_or_refused_and_never_read(data: st.DataObject) -> None:
    with World(seed=5) as world:
        env = world.node("a")
        script = Script(steps_of("+3 s +2 s +4 s"))
        world.run(world.on(env, script.run(env)))
        size = env.disk.size(FIRST)
        flipped(world, FIRST, data.draw(st.integers(0, size - 1)))
        try:
            found = list(opened(world.restart("a"))[0:])
        except LogDamaged:
            return
        assert found == script.durable  # it hit the seal


def test_a_segment_that_is_damaged_in_its_header_is_refused(small_segments: None) -> None:
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, holding(env, "+9 s +9 s +9 s")))
        flipped(world, SECOND, 9)
        with pytest.raises(LogDamaged, match=f"{SECOND} is damaged at position 0"):
            opened(world.restart("a"))


def test_a_missing_segment_is_refused_by_its_name(small_segments: None) -> None:
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, holding(env, "+9 s +9 s +9 s +9 s")))
        assert len(env.disk.list(FOLDER)) > 2
        env.disk.remove(SECOND)
        with pytest.raises(LogDamaged, match=f"lacks {SECOND}"):
            opened(world.restart("a"))


def test_a_journal_of_a_later_format_is_refused_by_its_format(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, holding(env)))
        node = world.disk("a").files.file(FIRST)
        monkeypatch.setattr(segment_format, "FORMAT", 2)
        later = segment_format.write_segment_header(1, 1)
        monkeypatch.undo()
        node.content[:SEGMENT_HEADER_SIZE] = later
        with pytest.raises(LogDamaged, match="has format 2; this version reads 1"):
            opened(world.restart("a"))


# --- failures of the disk -------------------------------------------------------------------------


def test_a_write_that_fails_may_be_tried_again(small_segments: None) -> None:
    with World(seed=3) as world:
        env = world.node("a")

        async def fills_up() -> None:
            journal = opened(env)
            journal.add(b"one", 1, 1)
            await journal.make_durable()
            for kind in ("append", "create", "truncate"):
                # Larger than a segment: the next one has to be begun.
                journal.add(b"x" * 400, journal[-1].idx + 1, 1)
                env.machine.disk.faults.fail(kind, number=errno.ENOSPC)
                with pytest.raises(OSError, match="No space left"):
                    await journal.make_durable()
                assert journal.undurable
                await journal.make_durable()
                assert not journal.undurable

        world.run(world.on(env, fills_up()))
        world.crash("a")
        assert [entry.idx for entry in opened(world.restart("a"))[0:]] == [1, 2, 3, 4]


def test_a_sync_that_fails_is_never_tried_again() -> None:
    """After it the kernel calls the pages clean, and a second sync would succeed without them."""
    with World(seed=3) as world:
        env = world.node("a")

        async def fails() -> None:
            journal = opened(env)
            journal.add(b"one", 1, 1)
            env.machine.disk.faults.fail("sync", path="*.journal")
            with pytest.raises(JournalLost, match="could not be synced"):
                await journal.make_durable()

        world.run(world.on(env, fails()))


# --- snapshots ------------------------------------------------------------------------------------


def entry(number: int, term: int = 1) -> Entry:
    return Entry(b"%d" % number, number, term)


async def numbered(env: SimEnv, last: int) -> None:
    journal = opened(env)
    for number in range(1, last + 1):
        journal.add(*entry(number))
        if number % 4 == 0:
            await journal.make_durable()
    await journal.make_durable()


def test_a_journal_with_more_than_the_snapshot_needs_is_trimmed_not_cleared() -> None:
    """A kill between the snapshot's rename and the trim: pysyncobj would clear all of it (field.md §5.2.1)."""
    with World(seed=3) as world:
        env = world.node("a")
        world.run(world.on(env, numbered(env, 9)))
        journal = opened(world.restart("a"))
        journal.start_at(entry(5), entry(6), may_lag=False)
        assert [each.idx for each in journal[0:]] == [5, 6, 7, 8, 9]
        assert journal.getRaftCommitIndex() == 6


def test_a_journal_that_does_not_hold_the_snapshots_end_is_refused_by_a_voter_alone() -> None:
    for previous, last in ((9, 10), (20, 21)):
        with World(seed=3) as world:
            env = world.node("a")
            world.run(world.on(env, numbered(env, 9)))
            with pytest.raises(LogDamaged, match=f"the entries {previous} and {last} on which"):
                opened(world.restart("a")).start_at(entry(previous), entry(last), may_lag=False)
            with pytest.raises(LogDamaged):
                opened(world.restart("a")).start_at(entry(5, term=2), entry(6), may_lag=False)


def test_a_journal_that_begins_behind_its_snapshot_is_not_thrown_away() -> None:
    """There are entries in it that this voter has acknowledged, and the ones before them are nowhere."""
    with World(seed=3) as world:
        env = world.node("a")

        async def installed() -> None:
            journal = opened(env)
            journal.start_at(entry(20), entry(21), may_lag=True)
            journal.add(*entry(22))
            await journal.make_durable()

        world.run(world.on(env, installed()))
        journal = opened(world.restart("a"))
        with pytest.raises(LogDamaged, match="the entries 8 and 9 on which"):
            journal.start_at(entry(8), entry(9), may_lag=True)


def test_a_journal_that_ends_before_a_snapshot_from_the_leader_begins_again_at_it() -> None:
    with World(seed=3) as world:
        env = world.node("a")

        async def installed() -> None:
            journal = opened(env)
            for number in range(1, 4):
                journal.add(*entry(number))
            await journal.make_durable()
            journal.start_at(entry(20), entry(21), may_lag=True)
            journal.add(*entry(22))
            await journal.make_durable()

        world.run(world.on(env, installed()))
        world.crash("a")
        assert list(opened(world.restart("a"))[0:]) == [entry(20), entry(21), entry(22)]


def test_dropped_heads_free_whole_segments(small_segments: None) -> None:
    with World(seed=3) as world:
        env = world.node("a")

        async def long_life() -> None:
            journal = opened(env)
            for number in range(1, 200):
                journal.add(*entry(number))
                if number % 20 == 0:
                    await journal.make_durable()
                    journal.deleteEntriesTo(len(journal) - 2)
            await journal.make_durable()
            assert len(env.disk.list(FOLDER)) <= 3

        world.run(world.on(env, long_life()))
        found = opened(world.restart("a"))
        assert found[-1] == entry(199)
