"""What only the real disk can show: partial writes, failing syncs, descriptors that outlive their file."""

import asyncio
import errno
import os
import resource
from typing import Any

import pytest
from fencepost.cluster.base.real_disk import RealDisk
from fencepost.cluster.base.real_file import RealFile


@pytest.fixture
def disk() -> Any:
    made = RealDisk()
    yield made
    made.close()


@pytest.fixture
def file(disk: RealDisk, tmp_path: Any) -> Any:
    made = disk.open(str(tmp_path / "log"), create=True)
    yield made
    made.close()


@pytest.fixture
def limited() -> Any:
    """No file of this process may grow over 10,000 bytes: writes come out short, then fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_stops_half_way_leaves_nothing_behind(file: RealFile, limited: Any) -> None:
    file.append([b"a" * 6_000])
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            file.append([b"b" * 3_000, b"c" * 3_000])
        assert caught.value.errno == errno.EFBIG
        assert file.size() == os.path.getsize(file.path) == 6_000
    file.append([b"d" * 4_000])
    assert file.read(5_999, 2) == b"ad"


def test_a_file_that_can_not_be_cut_back_takes_no_more() -> None:
    """The error is that of the cut: want of room would be waited for."""
    full = RealFile("/dev/full", os.open("/dev/full", os.O_RDWR))
    with pytest.raises(OSError) as caught:
        full.append([b"x"])
    assert caught.value.errno == errno.EINVAL
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    with pytest.raises(OSError, match="closed"):
        full.append([b"x"])


def test_a_file_that_can_not_be_replaced_for_want_of_room_takes_none(
    disk: RealDisk, tmp_path: Any, limited: Any
) -> None:
    """A snapshot of the metadata would take the last room that the journal has, and be tried again only after that."""
    disk.replace(str(tmp_path / "snapshot"), b"old")
    with pytest.raises(OSError) as caught:
        disk.replace(str(tmp_path / "snapshot"), b"x" * 20_000)
    assert caught.value.errno == errno.EFBIG
    assert disk.list(str(tmp_path)) == ["snapshot"]
    assert disk.read_all(str(tmp_path / "snapshot")) == b"old"


def test_a_closed_file_stays_readable_for_who_holds_it(file: RealFile) -> None:
    file.append([b"abc"])
    file.hold()
    file.close()
    assert file.read(0, 3) == file.read_cached(0, 3) == b"abc"
    with pytest.raises(OSError, match="closed"):
        file.append([b"x"])
    fd = file.fileno()
    file.release()
    with pytest.raises(OSError):
        os.fstat(fd)
    with pytest.raises(OSError, match="closed"):
        file.hold()


def test_a_failed_sync_is_never_forgotten(
    file: RealFile, disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append([b"abc"])

    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(OSError, match="the disk is gone"):
            asyncio.run(disk.sync([file]))
    with pytest.raises(OSError, match="earlier sync"):
        file.sync()


def test_the_others_are_synced_when_one_fails(
    disk: RealDisk, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [disk.open(str(tmp_path / f"log-{n}"), create=True) for n in range(30)]
    bad, synced = files[11].fileno(), []

    def fdatasync(fd: int) -> None:
        if fd == bad:
            raise OSError(errno.EIO, "one disk of many")
        synced.append(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises(OSError, match="one disk of many"):
        asyncio.run(disk.sync(files))
    assert sorted(synced) == sorted(each.fileno() for each in files if each.fileno() != bad)


def test_a_file_system_without_nowait_reads_are_plain(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append([b"abcdef"])

    def refuses(*_: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(RealFile, "nowait_works", True)
    monkeypatch.setattr(os, "preadv", refuses)
    assert file.read_cached(2, 2) == b"cd"
    assert not RealFile.nowait_works
    assert file.read_cached(3, 100) == b"def"


def test_a_cold_range_is_told_from_a_cached_one(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append([b"abcdef"])

    def would_block(*_: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "not in the page cache")

    monkeypatch.setattr(os, "preadv", would_block)
    assert file.read_cached(2, 2) is None
    monkeypatch.setattr(os, "preadv", lambda *_: 1)
    assert file.read_cached(2, 2) is None


@pytest.mark.parametrize("is_cached", [True, False])
def test_only_what_was_cold_is_dropped_behind_a_read_for_once(
    file: RealFile, monkeypatch: pytest.MonkeyPatch, *, is_cached: bool
) -> None:
    file.append([b"abcdef" * 1000])
    told = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, *advice: told.append(advice))
    monkeypatch.setattr(RealFile, "_is_cached", lambda *_: is_cached)
    assert file.read_once(6, 3) == b"abc"
    first, dropped = (0, 0, os.POSIX_FADV_RANDOM), (6, 3, os.POSIX_FADV_DONTNEED)
    assert told == ([first] if is_cached else [first, dropped])


def test_the_lock_of_a_killed_process_is_free(disk: RealDisk, tmp_path: Any) -> None:
    """flock belongs to the open file: it goes with the process, whatever ended it."""
    path = str(tmp_path / ".lock")
    child = os.fork()
    if child == 0:
        disk.lock(path)
        os._exit(0)
    os.waitpid(child, 0)
    disk.lock(path)()
