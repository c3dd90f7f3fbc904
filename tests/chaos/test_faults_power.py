"""What is left on a disk after the power went, of what a process had written and synced."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fencepost.chaos.faults.power import lose_power, read_journal
from fencepost.chaos.faults.world import World

HEAD = """
import os, signal, sys
os.chdir(sys.argv[1])
def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
def make(path, data=b""):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, data, 0)
    return fd
"""
DIES = "os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture
def world(tmp_path, compiled) -> Iterator[World]:
    around = tmp_path / "data"
    around.mkdir()
    world = World(tmp_path / "world", around, compiled)
    world.track(on=True)
    yield world
    world.close()


@pytest.fixture
def doing(world: World) -> Callable[[str], Path]:
    """A program is killed at its end, then all that it has not synced is lost."""

    def do(program: str, seed: int | None = None) -> Path:
        source = HEAD + textwrap.dedent(program) + "\n" + DIES
        command = [sys.executable, "-c", source, str(world.around)]
        done = subprocess.run(command, env=world.environment(), check=False)
        assert done.returncode == -signal.SIGKILL
        lose_power(world, random.Random(seed), all_of_it=seed is None)
        return world.around

    return do


def test_what_was_synced_survives_and_what_was_not_may_be_gone(doing) -> None:
    folder = doing("""
        a = make("a", b"synced ")
        os.fdatasync(a)
        sync(".")
        os.pwritev(a, [b"and ", b"not"], 7)
        make("b", b"no name was synced")
    """)
    assert (folder / "a").read_bytes() == b"synced "
    assert not (folder / "b").exists()


def test_what_was_overwritten_is_there_again(doing) -> None:
    folder = doing("""
        a = make("a", b"0123456789")
        os.fsync(a); sync(".")
        os.pwrite(a, b"abc", 2)
        os.ftruncate(a, 4)
        os.pwrite(a, b"xyz", 4)
    """)
    assert (folder / "a").read_bytes() == b"0123456789"


def test_a_rename_without_a_sync_of_its_folder_has_not_been(doing) -> None:
    folder = doing("""
        os.fsync(make("a", b"old")); os.fsync(make("a.tmp", b"new")); sync(".")
        os.rename("a.tmp", "a")
        os.fsync(make("b.tmp", b"new"))
        os.rename("b.tmp", "b")
        os.mkdir("c")
        os.fsync(make("c/d", b"x"))
    """)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "a.tmp"]
    assert (folder / "a").read_bytes() == b"old" and (folder / "a.tmp").read_bytes() == b"new"


def test_a_rename_with_a_sync_of_its_folder_stays(doing) -> None:
    folder = doing("""
        os.fsync(make("a", b"old")); os.fsync(make("a.tmp", b"new"))
        os.rename("a.tmp", "a")
        os.mkdir("c")
        sync(".")
    """)
    assert (folder / "a").read_bytes() == b"new" and (folder / "c").is_dir()


def test_bytes_that_came_from_another_file_are_lost_as_written_ones_are(doing) -> None:
    folder = doing("""
        a = make("a", b"0123456789"); b = make("b", b"abcdefghij")
        os.fsync(a); os.fsync(b); sync(".")
        os.copy_file_range(b, a, 2, 0, 4)
        os.lseek(a, 8, os.SEEK_SET)
        os.sendfile(a, b, 0, 5)
        os.pwrite(os.dup(a), b"xyz", 0)
    """)
    assert (folder / "a").read_bytes() == b"0123456789"


def test_a_second_name_without_a_sync_of_its_folder_has_not_been(doing) -> None:
    folder = doing("""
        os.fsync(make("a", b"x")); os.link("a", "b"); sync(".")
        os.link("a", "c")
    """)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_what_was_removed_may_be_back(doing) -> None:
    folder = doing("""
        os.mkdir("f"); sync(".")
        os.fsync(make("f/a", b"kept")); sync("f")
        os.unlink("f/a")
    """)
    assert (folder / "f" / "a").read_bytes() == b"kept"


def test_what_is_lost_in_part_leaves_a_prefix_of_each_files_writes(doing) -> None:
    found = set()
    for seed in range(6):
        folder = doing(
            """
            for each in os.listdir("."):
                os.unlink(each)
            a = make("a"); os.fsync(a); sync(".")
            for number in range(10):
                os.pwrite(a, b"%d" % number * 4, number * 4)
            """,
            seed,
        )
        whole = b"".join(b"%d" % number * 4 for number in range(10))
        left = (folder / "a").read_bytes()
        assert whole.startswith(left)
        found.add(len(left))
    assert len(found) > 2 and any(length % 4 for length in found), found


def test_nothing_is_noted_before_the_tracking_began(world, doing) -> None:
    world.track(on=False)
    folder = doing("make('a', b'x')")
    assert (folder / "a").read_bytes() == b"x"
    assert read_journal(world.journal) == []


def test_a_journal_whose_last_entry_is_torn_is_read_up_to_it(world, tmp_path) -> None:
    source = HEAD + "make('a', b'x' * 100); make('b')\n" + DIES
    command = [sys.executable, "-c", source, str(world.around)]
    subprocess.run(command, env=world.environment(), check=False)
    whole = read_journal(world.journal)
    assert [change.op.name for change in whole] == ["CREATE", "WRITE", "CREATE"]
    os.truncate(world.journal, world.journal.stat().st_size - 1)
    assert read_journal(world.journal) == whole[:-1]
