"""What `ports.Net` and `ports.Connection` promise, asked of the real network and of the simulated one."""

import asyncio
import os
import random
import struct
from typing import Any

import pytest
from fencepost.cluster.base.errors import ConnectionLost, FrameRefused, Outcome
from fencepost.cluster.base.ports import FileSlice

MIB = 1 << 20


def scenario(test: Any) -> Any:
    def run(host: Any) -> None:
        async def bounded(place: Any) -> None:
            async with asyncio.timeout(30):
                await test(place)

        host.run(bounded)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def framed(data: bytes) -> list[Any]:
    return [struct.pack(">i", len(data)), data]


async def echo(connection: Any) -> None:
    while (frame := await connection.read_frame(100 * MIB)) is not None:
        connection.write([struct.pack(">i", len(frame)), frame])
        await connection.drain()


@scenario
async def test_frames_of_every_size_come_back_whole_and_in_order(place: Any) -> None:
    connection = await place.connected(echo)
    rng = random.Random(7)
    sizes = [0, 1, 3, 4, 5, 1000, 16 * 1024, 65_532, 65_536, 65_537, 200_000, MIB, 3 * MIB + 1]
    sizes += [rng.choice((rng.randrange(100), rng.randrange(100_000))) for _ in range(60)]
    frames = [rng.randbytes(size) for size in sizes]

    async def send() -> None:
        for frame in frames:
            connection.write(framed(frame))
            await connection.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        for frame in frames:
            got = await connection.read_frame(100 * MIB)
            assert got is not None
            assert not got.readonly, "offsets are spliced into record batches in place"
            assert bytes(got) == frame
    connection.close()
    await connection.wait_closed()


@scenario
async def test_a_frame_over_the_limit_is_refused(place: Any) -> None:
    client, server = await place.pair()
    client.write(framed(b"fits"))
    client.write(framed(b"x" * 101))
    client.write(framed(b"behind"))
    assert bytes(await server.read_frame(100)) == b"fits"
    with pytest.raises(FrameRefused, match="101 bytes"):
        await server.read_frame(100)
    # Whoever may send more after all (it has shown who it is) is heard.
    assert bytes(await server.read_frame(200)) == b"x" * 101
    assert bytes(await server.read_frame(200)) == b"behind"


@scenario
async def test_a_limit_that_is_lowered_holds_for_frames_already_received(place: Any) -> None:
    client, server = await place.pair()
    client.write([*framed(b"first"), *framed(b"second, and longer")])
    assert bytes(await server.read_frame(100)) == b"first"
    await asyncio.sleep(0.05)
    with pytest.raises(FrameRefused):
        await server.read_frame(10)


@scenario
async def test_a_negative_length_is_refused(place: Any) -> None:
    client, server = await place.pair()
    client.write([b"\xff\xff\xff\xff", b"garbage"])
    with pytest.raises(FrameRefused, match="-1 bytes"):
        await server.read_frame(100)


@scenario
async def test_an_end_between_frames_is_clean_and_one_inside_is_a_loss(place: Any) -> None:
    client, server = await place.pair()
    client.write(framed(b"last words"))
    client.close()
    assert bytes(await server.read_frame(100)) == b"last words"
    assert await server.read_frame(100) is None
    for part in (b"\0\0", b"\0\0\0\5abc", struct.pack(">i", 90_000) + bytes(80_000)):
        client, server = await place.pair()
        client.write([part])
        client.close()
        with pytest.raises(ConnectionLost, match="inside a frame"):
            await server.read_frame(100_000)


@scenario
async def test_what_was_written_before_close_arrives(place: Any) -> None:
    client, server = await place.pair()
    client.write(framed(bytes(3 * MIB)))
    client.close()
    client.write(framed(b"too late"))
    assert len(await server.read_frame(4 * MIB)) == 3 * MIB
    assert await server.read_frame(100) is None
    await client.wait_closed()


@scenario
async def test_replies_to_a_peer_that_closed_are_no_error_until_drained(place: Any) -> None:
    client, server = await place.pair()
    client.close()
    assert await server.read_frame(100) is None
    with pytest.raises(ConnectionLost):
        for _ in range(200):
            server.write(framed(bytes(100_000)))
            await server.drain()
            await asyncio.sleep(0.01)


@scenario
async def test_an_abort_loses_the_connection_for_both(place: Any) -> None:
    client, server = await place.pair()
    waiting = asyncio.ensure_future(server.read_frame(100))
    await asyncio.sleep(0.02)
    client.abort()
    with pytest.raises(ConnectionLost):
        await client.read_frame(100)
    with pytest.raises(ConnectionLost):
        await client.drain()
    # The peer sees a reset or an end, as its kernel has it.
    try:
        assert await waiting is None
    except ConnectionLost:
        pass
    await client.wait_closed()


@scenario
async def test_closing_ends_ones_own_read(place: Any) -> None:
    client, server = await place.pair()
    waiting = asyncio.ensure_future(server.read_frame(100))
    await asyncio.sleep(0.02)
    server.close()
    assert await waiting is None
    assert await server.read_frame(100) is None
    client.close()


@scenario
async def test_nobody_there_is_a_refusal(place: Any) -> None:
    listener = await place.server.net.listen(place.host, 0, echo)
    address = listener.address
    await listener.close()
    with pytest.raises(ConnectionLost) as caught:
        await place.client.net.connect(*address)
    assert caught.value.outcome is Outcome.REFUSED


@scenario
async def test_a_closed_listener_leaves_open_connections(place: Any) -> None:
    listener = await place.server.net.listen(place.host, 0, echo)
    connection = await place.client.net.connect(*listener.address)
    connection.write(framed(b"one"))
    assert bytes(await connection.read_frame(100)) == b"one"
    await listener.close()
    connection.write(framed(b"two"))
    assert bytes(await connection.read_frame(100)) == b"two"
    connection.close()


@scenario
async def test_a_port_in_use_is_an_os_error(place: Any) -> None:
    listener = await place.server.net.listen(place.host, 0, echo)
    with pytest.raises(OSError, match="in use"):
        await place.server.net.listen(place.host, listener.address[1], echo)
    await listener.close()


@scenario
async def test_trouble_in_a_handler_closes_its_connection_only(place: Any) -> None:
    async def serve(connection: Any) -> None:
        frame = await connection.read_frame(100)
        if bytes(frame) == b"bad":
            raise FrameRefused("not one of ours")
        connection.write(framed(frame))

    listener = await place.server.net.listen(place.host, 0, serve)
    bad = await place.client.net.connect(*listener.address)
    good = await place.client.net.connect(*listener.address)
    bad.write(framed(b"bad"))
    assert await bad.read_frame(100) is None
    good.write(framed(b"good"))
    assert bytes(await good.read_frame(100)) == b"good"


@scenario
async def test_a_read_that_is_given_up_loses_nothing(place: Any) -> None:
    client, server = await place.pair()
    client.write([b"\0\0\0\4ab"])
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await server.read_frame(100)
    client.write([b"cd"])
    assert bytes(await server.read_frame(100)) == b"abcd"


@scenario
async def test_a_peer_that_does_not_read_holds_its_sender_back(place: Any) -> None:
    client, server = await place.pair()
    sent = 0

    async def send() -> None:
        nonlocal sent
        while sent < 100 * MIB:
            client.write(framed(bytes(64 * 1024)))
            sent += 64 * 1024
            await client.drain()

    sending = asyncio.ensure_future(send())
    await server.read_frame(MIB)
    await asyncio.sleep(0.3)
    assert not sending.done()
    held = sent
    assert held < 40 * MIB  # what kernels and we hold, not what was offered
    for _ in range(held // (64 * 1024) - 1):
        await server.read_frame(MIB)
    while sent == held:  # `scenario` bounds it
        await asyncio.sleep(0.01)
    sending.cancel()


@scenario
async def test_file_ranges_leave_between_the_bytes_they_were_written_with(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    content = os.urandom(2 * MIB)
    file.append([content])
    client, server = await place.pair()
    expected = b""
    rng = random.Random(3)
    parts: list[Any] = []
    for _ in range(30):
        position, length = rng.randrange(MIB), rng.choice((1, 5000, 300_000))
        words = rng.randbytes(rng.choice((1, 100, 10_000)))
        parts += [words, FileSlice(file, position, length), words]
        expected += words + content[position : position + length] + words
    server.write([struct.pack(">i", len(expected)), *parts[:7]])
    for part in parts[7:]:
        server.write([part])
    file.close()  # whoever closes it takes nothing from what is on its way
    assert bytes(await client.read_frame(100 * MIB)) == expected


class ColdFile:
    """A file that is never in the page cache."""

    def __init__(self, file: Any) -> None:
        self.path, self.read, self.size = file.path, file.read, file.size

    def read_cached(self, position: int, length: int) -> None:
        return None


@scenario
async def test_a_slow_file_does_not_let_later_bytes_overtake_it(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"cold " * 10])
    file = ColdFile(file)
    client, server = await place.pair()
    server.write([b"\0\0\0\x12", b"before ", FileSlice(file, 0, 5), b"after "])
    server.write(framed(b"next"))
    assert bytes(await client.read_frame(100)) == b"before cold after "
    assert bytes(await client.read_frame(100)) == b"next"


@scenario
async def test_a_file_shorter_than_promised_ends_the_connection(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"short"])
    client, server = await place.pair()
    server.write([b"\0\0\0\x10", FileSlice(file, 0, 16)])
    with pytest.raises(ConnectionLost):
        if await client.read_frame(100) is None:
            raise ConnectionLost("a clean end would also do, had nothing been sent")
    with pytest.raises(ConnectionLost):
        await server.drain()


@scenario
async def test_each_end_knows_the_other(place: Any) -> None:
    client, server = await place.pair()
    assert isinstance(server.remote[0], str) and server.remote[1] > 0
    assert client.remote[1] > 0 and client.peer_certificate is None
