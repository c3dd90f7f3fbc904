"""What `sendfile` has handed to the kernel is the page itself, for as long as the reader has not read it."""

import socket
from pathlib import Path

import pytest
import uvloop
from fencepost.cluster.base.real_env import open_env
from fencepost.replication.log.pool import FilePool
from fencepost.replication.log.shrinking import PIECE_BYTES, shrink

SENT = 40_000


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("behind", [1, 300_001])
def test_what_is_on_its_way_to_a_reader_stays_what_it_was(
    tmp_path: Path, pieces: int, behind: int
) -> None:
    """Of a file whose size is nothing round, around each place where it might be cut."""

    async def sent_while_it_shrinks(start: int) -> bytes:
        path = str(tmp_path / f"{start}.log.deleted")
        async with open_env() as env:
            file = env.disk.open(path, create=True)
            file.append((b"\xff" * size,))
            with (
                socket.create_server(("127.0.0.1", 0)) as door,
                socket.create_connection(door.getsockname()) as reader,
            ):
                served, _ = door.accept()
                with served:
                    assert file.send_cached(served.fileno(), start, SENT) == SENT
                    file.close()  # nobody holds it any more, but the kernel
                    await shrink(env, path, str(tmp_path), FilePool(env.disk))
                    assert env.disk.size(path) <= max(PIECE_BYTES, env.disk.cut_bytes)
                    served.shutdown(socket.SHUT_WR)
                    with reader.makefile("rb") as answer:
                        return answer.read()

    size = pieces * PIECE_BYTES + behind
    for cut in (size - PIECE_BYTES, PIECE_BYTES):
        start = max(0, min(cut - SENT // 2, size - SENT))
        got = uvloop.run(sent_while_it_shrinks(start))
        assert got.count(b"\xff") == len(got) == SENT
