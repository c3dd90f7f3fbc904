"""A stop comes while the journal is synced off the loop, and that sync fails: `close` syncs the same file at the same time."""

import asyncio
import errno
import os
import pathlib
import threading
from typing import Any

import pytest
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.quorum.journal import Journal
from fencepost.cluster.quorum.vote_file import VoteFile


class FailsOnce:
    """What was written is not on the disk, and is clean from now on; who came first is told (errseq)."""

    def __init__(self) -> None:
        self.entered, self.is_told = threading.Semaphore(0), threading.Event()
        self.lock = threading.Lock()
        self.calls = 0

    def fdatasync(self, _fd: int) -> None:
        with self.lock:
            self.calls += 1
            place = self.calls
        self.entered.release()
        if place == 1:
            deadline = 100
            while self.calls < 2 and deadline:
                deadline -= 1
                threading.Event().wait(0.005)
            self.is_told.set()
            raise OSError(errno.EIO, "a write failed")
        self.is_told.wait(1.0)
        threading.Event().wait(0.02)


def test_a_group_whose_sync_failed_is_written_again_before_it_counts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "metadata")
    real_sync, real_write = os.fdatasync, os.pwritev
    disk = FailsOnce()

    async def stopped() -> tuple[int, int]:
        async with open_env() as env:
            vote = VoteFile(env, f"{folder}/vote")
            journal = Journal.open(env, folder, vote)
            journal.add(b"\0one", 1, 0)
            await journal.make_durable()
            (path,) = pathlib.Path(folder).glob("*.journal")
            begin = path.stat().st_size
            journal.add(b"\0two", 2, 0)
            monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
            store = asyncio.ensure_future(journal.make_durable())
            await asyncio.to_thread(disk.entered.acquire)
            store.cancel()  # as Quorum.stop does
            await asyncio.wait([store])
            end = path.stat().st_size
            await journal.close()
            monkeypatch.setattr(os, "fdatasync", real_sync)
            return begin, end

    begin, end = asyncio.run(stopped())
    written: list[tuple[int, int]] = []

    def pwritev(fd: int, chunks: Any, position: int) -> int:
        count = real_write(fd, chunks, position)
        written.append((position, position + count))
        return count

    async def again() -> int:
        async with open_env() as env:
            monkeypatch.setattr(os, "pwritev", pwritev)
            journal = Journal.open(env, folder, VoteFile(env, f"{folder}/vote"))
            monkeypatch.setattr(os, "pwritev", real_write)
            durable = journal.durable_last
            await journal.close()
            return durable

    durable = asyncio.run(again())
    assert durable < 2 or any(at <= begin and end <= to for at, to in written), (
        begin,
        end,
        written,
    )
