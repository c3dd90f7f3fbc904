"""What a power cut may leave, and what it must."""

import random
from typing import Any

import pytest
from fencepost.chaos.sim.file_node import PAGE, Write, survivor
from fencepost.chaos.sim.filesystem import FileSystem
from hypothesis import given
from hypothesis import strategies as st

WRITES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 9000), st.binary(min_size=1, max_size=9000)),
        st.tuples(st.integers(0, 9000), st.none()),
    ),
    max_size=6,
)


def made(changes: Any) -> tuple[FileSystem, Any]:
    files = FileSystem()
    node = files.create("/log")
    files.sync_folder("/")
    for position, data in changes:
        node.change(Write(position, data))
    return files, node


@given(synced=WRITES, after=WRITES, seed=st.integers(0, 1000), torn=st.booleans())
def test_what_was_synced_survives_any_crash(synced: Any, after: Any, seed: int, torn: bool) -> None:
    """Every byte that no later change touched is as it was synced; and nothing is invented."""
    files, node = made(synced)
    node.make_durable(node.mark())
    durable = bytes(node.content)
    for position, data in after:
        node.change(Write(position, data))
    files.crash(random.Random(seed), torn=torn)
    left = bytes(files.file("/log").content)
    cuts = [position for position, data in after if data is None]
    for index, byte in enumerate(durable):
        written = [data[index - at] for at, data in after if data and at <= index < at + len(data)]
        if index < len(left):
            cut = any(position <= index for position in cuts)
            assert left[index] in (byte, *written, *([0] if cut else []))
        else:
            assert cuts and min(cuts) <= index
    for index in range(len(durable), len(left)):
        written = [data[index - at] for at, data in after if data and at <= index < at + len(data)]
        assert left[index] in (0, *written)


@given(changes=WRITES, seed=st.integers(0, 1000))
def test_untorn_crashes_leave_whole_changes_up_to_one_of_them(changes: Any, seed: int) -> None:
    states = [bytes(made(changes[:count])[1].content) for count in range(len(changes) + 1)]
    files, _ = made(changes)
    files.crash(random.Random(seed), torn=False)
    assert bytes(files.file("/log").content) in states


def test_torn_crashes_reach_every_kind_of_damage() -> None:
    """All, nothing, a prefix, a hole with data behind it, a cut inside a sector and at one."""
    seen: set[str] = set()
    data = bytes(range(1, 251)) * 32  # two pages, no zero among them
    for seed in range(500):
        left = bytes(survivor(bytearray(), [Write(0, data)], random.Random(seed), torn=True))
        if not left:
            seen.add("nothing")
        elif left == data:
            seen.add("all")
        elif left == data[: len(left)]:
            seen.add("prefix")
            seen.add("sector" if len(left) % 512 == 0 else "byte")
        else:
            assert any(left[at] == 0 for at in range(len(left)))
            seen.add("hole")
    assert seen == {"nothing", "all", "prefix", "sector", "byte", "hole"}


def test_a_later_page_may_survive_an_earlier_one() -> None:
    writes = [Write(0, b"a" * PAGE), Write(PAGE, b"b" * PAGE)]
    lefts = [
        bytes(survivor(bytearray(), writes, random.Random(seed), torn=True)) for seed in range(200)
    ]
    assert any(left[:PAGE] == bytes(PAGE) and left[PAGE:] == b"b" * PAGE for left in lefts)


def crashes(files_of: Any, count: int = 60) -> list[FileSystem]:
    found = []
    for seed in range(count):
        files = files_of()
        files.crash(random.Random(seed), torn=True)
        found.append(files)
    return found


def names(files: FileSystem) -> list[str]:
    return [path for path, _ in files.files()]


def test_a_new_file_may_be_gone_until_its_folder_is_synced() -> None:
    def synced_file_only() -> FileSystem:
        files = FileSystem()
        node = files.create("/log")
        node.change(Write(0, b"abc"))
        node.make_durable(node.mark())
        return files

    def synced_both() -> FileSystem:
        files = synced_file_only()
        files.sync_folder("/")
        return files

    assert {tuple(names(files)) for files in crashes(synced_file_only)} == {(), ("/log",)}
    for files in crashes(synced_both):
        assert bytes(files.file("/log").content) == b"abc"


def test_a_rename_is_all_or_nothing_and_certain_after_the_folder_is_synced() -> None:
    def checkpoint(*, sync: bool) -> FileSystem:
        files = FileSystem()
        for name, content in (("/checkpoint", b"old"), ("/checkpoint.tmp", b"new")):
            node = files.create(name)
            node.change(Write(0, content))
            node.make_durable(node.mark())
        files.sync_folder("/")
        files.rename("/checkpoint.tmp", "/checkpoint")
        if sync:
            files.sync_folder("/")
        return files

    left = [bytes(f.file("/checkpoint").content) for f in crashes(lambda: checkpoint(sync=False))]
    assert set(left) == {b"old", b"new"}
    left = [bytes(f.file("/checkpoint").content) for f in crashes(lambda: checkpoint(sync=True))]
    assert set(left) == {b"new"}


def test_a_file_moved_between_folders_is_in_one_of_them_never_in_both() -> None:
    def moved(synced: str | None) -> Any:
        def make() -> FileSystem:
            files = FileSystem()
            files.make_folder("/a")
            files.make_folder("/b")
            files.sync_folder("/")
            files.create("/a/log")
            files.rename("/a/log", "/b/log")
            if synced:
                files.sync_folder(synced)
            return files

        return make

    assert {len(names(files)) for files in crashes(moved(None))} == {0, 1}
    for folder in ("/a", "/b"):
        for files in crashes(moved(folder)):
            assert names(files) == ["/b/log"]


def test_a_removed_file_may_be_back() -> None:
    def removed() -> FileSystem:
        files, node = made([(0, b"abc")])
        node.make_durable(node.mark())
        files.remove("/log")
        return files

    assert {tuple(names(files)) for files in crashes(removed)} == {(), ("/log",)}
    assert all(files.used in (0, 3) for files in crashes(removed))


def test_a_folder_that_was_not_synced_takes_its_files_with_it() -> None:
    def folder() -> FileSystem:
        files = FileSystem()
        files.make_folder("/orders-0")
        node = files.create("/orders-0/log")
        node.change(Write(0, b"abc"))
        node.make_durable(node.mark())
        files.sync_folder("/orders-0")
        return files

    assert {tuple(names(files)) for files in crashes(folder)} == {(), ("/orders-0/log",)}


def test_what_a_failed_sync_lost_no_later_sync_brings_back() -> None:
    """The kernel marks pages clean when their write fails (fsyncgate): a second fsync writes nothing."""
    lefts = set()
    for seed in range(60):
        files, node = made([(0, b"lost")])
        node.lose(node.mark())
        node.change(Write(4, b"kept"))
        node.make_durable(node.mark())
        assert bytes(node.content) == b"lostkept"
        files.crash(random.Random(seed), torn=True)
        lefts.add(bytes(files.file("/log").content))
    assert lefts == {b"\0\0\0\0kept"}


def test_old_unsynced_writes_are_written_back_by_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencepost.chaos.sim.file_node.UNSYNCED_BYTES_MAX", 1000)
    _, node = made([(at * 100, b"x" * 100) for at in range(100)])
    assert node.unsynced_bytes <= 1000 and len(node.durable) >= 8000
    assert bytes(node.content) == b"x" * 10_000


def test_what_was_written_can_be_told_from_what_has_rotted() -> None:
    _, node = made([(0, b"abcdef")])
    node.flip(2, 0)
    assert bytes(node.content) == b"abbdef"
    assert node.as_written() == b"abcdef"
    node.make_durable(node.mark())
    assert bytes(node.durable) == b"abbdef", (
        "what was not written back yet goes to the disk as it is"
    )
    node.change(Write(2, b"x"))
    assert bytes(node.content) == node.as_written() == b"abxdef"
    node.flip(5, 1)
    node.change(Write(3, bytes(node.content[3:])))
    assert node.as_written() == b"abxdef", "written again as it was read: it is as rotten as before"
    node.change(Write(4, None))
    assert bytes(node.content) == node.as_written() == b"abxd"
    node.make_durable(node.mark())
    node.flip(0, 3)
    node.crash(random.Random(1), torn=False)
    assert bytes(node.content) == b"ibxd"
    assert node.as_written() == b"abxd"
