"""TLS over real sockets: frames both ways, and an end in the middle of a handshake."""

import asyncio
import os
import shutil
import ssl
import subprocess
from typing import Any

import pytest
from echo_door import SOON_S, Notes, echo
from fencepost.cluster.base.errors import ConnectionLost
from fencepost.cluster.base.real_env import RealEnv, open_env


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate: there is none on the PATH")
    path = str(tmp_path_factory.mktemp("tls") / "both.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += f" -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout {path}.key"
    subprocess.run([*command.split(), "-out", path], check=True, capture_output=True)
    with open(path, "a") as both, open(f"{path}.key") as key:
        both.write(key.read())
    return path


def test_tls_both_ways_carries_frames_and_shows_the_peers_certificate(
    run: Any, certificate: str
) -> None:
    def context(purpose: ssl.Purpose) -> ssl.SSLContext:
        made = ssl.create_default_context(purpose, cafile=certificate)
        made.load_cert_chain(certificate)
        made.verify_mode = ssl.CERT_REQUIRED
        return made

    async def main() -> None:
        shown: list[Any] = []

        async def serve(connection: Any) -> None:
            await connection.secure()
            shown.append(connection.peer_certificate)
            await echo(connection)

        async with open_env(log=Notes()) as env:
            listener = await env.net.listen(
                "127.0.0.1", 0, serve, tls=context(ssl.Purpose.CLIENT_AUTH)
            )
            client = await env.net.connect(
                "localhost", listener.address[1], tls=context(ssl.Purpose.SERVER_AUTH)
            )
            for size in (0, 10, 70_000, 3_000_000):
                frame = os.urandom(size)
                client.write([size.to_bytes(4, "big"), frame])
                assert await client.read_frame(1 << 22) == frame
            assert shown[0]["subject"] == ((("commonName", "localhost"),),)
            assert client.peer_certificate is not None
            plain = await env.net.connect("127.0.0.1", listener.address[1])
            plain.write([b"\0\0\0\5hello"])
            with pytest.raises(ConnectionLost):
                if await plain.read_frame(100) is None:
                    raise ConnectionLost("closed without a word")
            assert await answers_tls(env, listener.address[1], context(ssl.Purpose.SERVER_AUTH))

    run(main())


@pytest.mark.parametrize("begun", [False, True])
def test_a_connection_that_shakes_hands_still_can_be_ended_at_once(
    run: Any, certificate: str, begun: bool
) -> None:
    """Whoever bounds strangers ends the oldest, from another task; its descriptor is free then."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)

    async def main() -> None:
        accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve(connection: Any) -> None:
            accepted.set_result(connection)
            if not begun:
                await asyncio.sleep(0.05)
            try:
                await connection.secure()
            except ConnectionLost as lost:
                told.set_result(str(lost))

        async with open_env(log=Notes()) as env, asyncio.timeout(SOON_S):
            listener = await env.net.listen("127.0.0.1", 0, serve, tls=server)
            reader, writer = await asyncio.open_connection(*listener.address)
            connection = await accepted
            assert connection.remote == writer.get_extra_info("sockname")
            await asyncio.sleep(0.01)
            connection.abort()
            assert await reader.read() == b""
            assert "was aborted here" in await told
            await connection.wait_closed()
            writer.close()

    run(main())


async def answers_tls(env: RealEnv, port: int, context: ssl.SSLContext) -> bool:
    connection = await env.net.connect("localhost", port, tls=context)
    connection.write([b"\0\0\0\2hi"])
    return await connection.read_frame(10) == b"hi"
