"""The kernel tells each open file of a failed write once: of two syncs at one time one hears of it, and the other one hears that all is well.

(`file_check_and_advance_wb_err`: Documentation/core-api/errseq.rst.)
"""

import asyncio
import errno
import os
import threading
from typing import Any

import pytest
from fencepost.cluster.base.real_disk import RealDisk
from fencepost.cluster.base.real_file import RealFile


class Kernel:
    """A write fails while two wait for it; `heard_by` (0: the first, 1: the second) is told so."""

    def __init__(self, heard_by: int) -> None:
        self.heard_by = heard_by
        self.lock, self.entered, self.told = threading.Lock(), 0, False
        self.both, self.is_told = threading.Event(), threading.Event()

    def fdatasync(self, fd: int) -> None:
        with self.lock:
            place = self.entered
            self.entered += 1
            if self.entered == 2:
                self.both.set()
        together = self.both.wait(0.5)
        with self.lock:
            mine = not self.told and (place == self.heard_by or not together)
            self.told = self.told or mine
        if mine:
            self.is_told.set()
            raise OSError(errno.EIO, "a write failed")
        self.is_told.wait(0.5)


@pytest.mark.parametrize("heard_by", [0, 1])
def test_of_two_syncs_at_one_time_none_is_believed_when_one_fails(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, heard_by: int
) -> None:
    disk = RealDisk()
    file: RealFile = disk.open(str(tmp_path / "log"), create=True)
    file.append([b"acknowledged"])
    monkeypatch.setattr(os, "fdatasync", Kernel(heard_by).fdatasync)

    async def both() -> list[Any]:
        return await asyncio.gather(disk.sync([file]), disk.sync([file]), return_exceptions=True)

    found = asyncio.run(both())
    monkeypatch.undo()
    file.close()
    disk.close()
    assert all(isinstance(each, OSError) for each in found), found
