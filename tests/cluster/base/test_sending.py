"""What leaves a connection, write by write: each is a system call, and wakes the peer."""

import asyncio
from pathlib import Path
from typing import Any

from fencepost.cluster.base.ports import Chunk, FileSlice
from fencepost.cluster.base.real_env import RealEnv, open_env
from fencepost.cluster.base.sending import DIRECT_MIN, JOIN_MAX, Sender


class Wire:
    """A transport that takes everything, and counts."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def set_write_buffer_limits(self, *, high: int, low: int = 0) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, data: Any) -> None:
        self.writes.append(b"".join(bytes(each) for each in data))


def sent(path: Path, content: bytes, *chunks: bytes | tuple[int, int]) -> list[bytes]:
    """The writes that these cause; a pair is a range of a file."""

    async def go() -> list[bytes]:
        async with open_env() as env:
            return await _sent(env, path, content, chunks)

    return asyncio.run(go())


async def _sent(
    env: RealEnv, path: Path, content: bytes, chunks: tuple[bytes | tuple[int, int], ...]
) -> list[bytes]:
    file = env.disk.open(str(path / "file"), create=True)
    file.append((content,))
    wire: Any = Wire()
    ended: list[str] = []
    over = asyncio.Event()

    def failed() -> None:
        ended.append("failed")
        over.set()

    sender = Sender(
        env.disk,
        env.tasks,
        env.log,
        failed=failed,
        emptied=over.set,
    )
    sender.attach(wire, None)
    given: list[Chunk] = [
        each if isinstance(each, bytes) else FileSlice(file, *each) for each in chunks
    ]
    sender.write(given)
    await over.wait()
    await asyncio.sleep(0.01)  # nothing comes behind it
    file.close()
    return [*wire.writes, *(each.encode() for each in ended)]


def test_a_short_range_of_a_file_leaves_with_its_header(tmp_path: Path) -> None:
    content = bytes(range(200))
    assert sent(tmp_path, content, b"head", (10, 20)) == [b"head" + content[10:30]]
    several = sent(tmp_path, content, b"a", (0, 5), (7, 5), b"b", (20, 1))
    assert several == [b"a" + content[:5] + content[7:12] + b"b" + content[20:21]]


def test_ranges_that_are_not_worth_joining_keep_their_order(tmp_path: Path) -> None:
    content = b"".join(number.to_bytes(4) for number in range(3 * DIRECT_MIN))
    middle, large = JOIN_MAX + 100, DIRECT_MIN + 100
    ranges = [(0, 10), (10, middle), (50, large), (7, 3), (90, middle)]
    parts: list[bytes | tuple[int, int]] = [b"first", *ranges, b"last"]
    writes = sent(tmp_path, content, *parts)
    whole = b"".join(
        each if isinstance(each, bytes) else content[each[0] : each[0] + each[1]] for each in parts
    )
    assert b"".join(writes) == whole
    assert len(writes) <= 3  # before the long range, itself, and behind it


def test_a_short_range_that_is_not_there_ends_the_connection(tmp_path: Path) -> None:
    """Nothing of the frame leaves: the peer would wait for the rest."""
    assert sent(tmp_path, b"short", b"head", (3, 20)) == [b"failed"]
