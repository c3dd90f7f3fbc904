"""A real node on a real file system of eight megabytes. The simulator has the finer cases (`test_full_disk.py`)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.cluster.base.errors import ErrorCode
from raw_door import Door
from sim_node import batch
from support.fencepost_process import fencepost

E = ErrorCode
MEGABYTE = 1 << 20
VALUE = b"v" * 100_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={8 * MEGABYTE}", "none", str(place)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs the command `mount`")
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def write_until_full(door: Door) -> int:
    with door.connection() as plain:
        for written in range(200):
            error = door.produce(plain, batch(VALUE))
            if error is not E.none:
                assert error is E.kafka_storage_error
                return written
    raise AssertionError("the disk did not fill up")


def end_of(door: Door) -> int:
    """The high watermark, after reading the first record and the last."""
    with door.connection() as plain:
        first = door.fetch(plain, 0)
        assert VALUE in bytes(first.records)
        last = door.fetch(plain, first.high_watermark - 1)
        assert VALUE in bytes(last.records)
        found: int = first.high_watermark
        return found


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_node_outlives_its_full_disk_and_keeps_what_it_acknowledged(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(os.urandom(3 * MEGABYTE))
    with fencepost(small_disk / "data") as node:
        door = Door(node)
        door.create_topic("topic")
        written = write_until_full(door)
        assert end_of(door) == written
        assert write_until_full(door) == 0
        ballast.unlink()  # room again: nobody has to tell the node
        with door.connection() as plain:
            assert door.produce(plain, batch(VALUE)) is E.none
        assert end_of(door) == written + 1
        written += 1 + write_until_full(door)
        topic_id = door.topic_id
    with fencepost(small_disk / "data") as node:  # stopped and started on a full disk
        door = Door(node)
        door.topic_id = topic_id
        assert end_of(door) == written
