"""What a node keeps of lives: its peers' in a file, its own begun anew by and by."""

import asyncio
import pathlib
import threading
from uuid import uuid4

import pytest
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.cluster.wire.peer_lives import Folder, Life, Seen
from fencepost.node import kept_lives
from fencepost.node.kept_lives import KeptLives, read_lives, write_lives
from fencepost.node.node_folder import NodeFolder

SEEN: dict[Folder, Seen] = {
    (BrokerId(3), b"d" * 16): Seen(7, 0),
    (BrokerId(1), b"o" * 16): Seen(1, (1 << 62) - 1),
}


def test_what_was_seen_is_read_as_it_was_written_in_its_order() -> None:
    assert list(read_lives(write_lives(SEEN)).items()) == list(SEEN.items())
    assert read_lives(write_lives({})) == {}


def test_no_flipped_bit_of_it_is_believed() -> None:
    written = write_lives(SEEN)
    for at in range(len(written)):
        for bit in range(8):
            flipped = bytearray(written)
            flipped[at] ^= 1 << bit
            try:
                assert read_lives(bytes(flipped)) == SEEN  # blanks at an end, large letters
            except ValueError:
                continue


def test_a_node_that_stops_has_written_all_of_its_life_before_another_may_begin(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one's would be written over, and it would come to lack in its past what it had told."""
    monkeypatch.setattr(kept_lives, "RENEW_S", 0.0)

    async def scenario() -> Life:
        async with open_env() as env:
            folder = NodeFolder(env.disk, str(tmp_path), BrokerId(1), uuid4)
            folder.open()
            folder.join("c1")
            door = PeerDoor(
                env,
                BrokerId(1),
                secret=b"",
                cluster_id=lambda: "c1",
                address_of=lambda _: None,
            )
            begun, go_on = threading.Event(), threading.Event()
            write = folder.write_life

            def slow(life: tuple[int, tuple[int, ...]]) -> None:
                begun.set()
                assert go_on.wait(10)
                write(life)

            folder.write_life = slow  # type: ignore[method-assign]
            lives = KeptLives(env, folder)
            lives.start(door)
            while not begun.is_set():
                await asyncio.sleep(0.001)
            closing = asyncio.ensure_future(lives.close())
            await asyncio.sleep(0.05)
            assert not closing.done()
            go_on.set()
            await closing
            await door.close()
            folder.close()
            again = NodeFolder(env.disk, str(tmp_path), BrokerId(1), uuid4)
            again.open()
            assert again.told_life.number == folder.told_life.number + 1 == 3
            assert again.told_life.has_been(folder.told_life.number, folder.told_life.name)
            return again.told_life

    asyncio.run(scenario())
