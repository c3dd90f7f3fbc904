"""`Disk.exists` of what the disk can't tell: the simulated one never says no to what is there."""

import asyncio
import errno
import os
import pathlib
from typing import Any

import pytest
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.real_disk import RealDisk
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.quorum.vote_file import VoteFile, _read
from fencepost.node.node_folder import NodeFolder


def unreadable(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    stat = os.stat

    def fails(which: Any, *args: Any, **named: Any) -> Any:
        if which == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return stat(which, *args, **named)

    monkeypatch.setattr(os, "stat", fails)


def test_what_the_disk_can_not_tell_is_not_a_no(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "vote")
    pathlib.Path(path).write_bytes(b"x")
    unreadable(monkeypatch, path)
    disk = RealDisk()
    try:
        with pytest.raises(OSError):
            disk.exists(path)
    finally:
        disk.close()


def test_a_vote_whose_file_the_disk_can_not_look_at_is_not_given_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "vote")

    async def lives() -> None:
        async with open_env() as env:
            vote = VoteFile(env, path)
            vote.settle()
            vote.store(4, None)
            await vote.copy()
            if vote._sound == 1:
                vote.store(4, 1)
                await vote.copy()
            vote.store(
                5, 3
            )  # its answer leaves; then the process is killed, before the second copy
            term, voted_for, _ = _read(path + "-copy", pathlib.Path(path + "-copy").read_bytes())
            assert (term, voted_for) == (5, 3)
        async with open_env() as env:
            unreadable(monkeypatch, path + "-copy")
            try:
                again = VoteFile(env, path)
            except (OSError, LogDamaged):
                return  # it does not start: right
            monkeypatch.undo()
            again.store(5, 2)  # for another one, in the same term
            raise AssertionError("it has voted twice in term 5")

    asyncio.run(lives())


def test_a_folder_whose_meta_can_not_be_looked_at_is_nobodys_to_begin_with(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uuid

    disk = RealDisk()
    try:
        first = NodeFolder(disk, str(tmp_path), 2, uuid.uuid4)
        first.open()
        first.join("the-cluster")
        first.close()
        unreadable(monkeypatch, f"{tmp_path}/meta.properties")
        other = NodeFolder(disk, str(tmp_path), 1, uuid.uuid4)
        try:
            other.open()
        except (OSError, LogDamaged):
            return
        monkeypatch.undo()
        other.join("another-cluster")
        raise AssertionError((tmp_path / "meta.properties").read_text())
    finally:
        disk.close()
