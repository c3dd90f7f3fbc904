"""With --tls-ca nothing is sent without TLS: to a database that has none, whoever asks, and whatever PyMySQL does then."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.database import CannotFollow, Database
from fencepost.clients.binlog.log_connection import BinlogStream
from pymysql.connections import Connection

PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH = 1 << 9, 1 << 15, 1 << 19
NO_TLS = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH  # of what a server can do
SAID = r"^the database at 127\.0\.0\.1:\d+ offers no TLS, which --tls-ca asks for: .*leave --tls-ca out$"


def greeting() -> bytes:
    """A server's first packet (Protocol::HandshakeV10)."""
    body = b"\x0a8.4.0\0" + struct.pack("<I", 7) + b"saltsalt\0"
    body += struct.pack("<HBHHB", NO_TLS & 0xFFFF, 45, 2, NO_TLS >> 16, 21)
    body += b"\0" * 10 + b"saltsaltsalt\0" + b"mysql_native_password\0"
    return len(body).to_bytes(3, "little") + b"\0" + body


Asked = tuple[Settings, Callable[[], list[bytes]]]


@pytest.fixture
def without_tls(tmp_path: Path) -> Iterator[Asked]:
    """The settings of a server, and what it was sent until its client left."""
    file = tmp_path / "ca.pem"
    file.write_text("")
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as client:
                client.settimeout(10)
                client.sendall(greeting())
                heard.append(client.recv(100))

        thread = threading.Thread(target=answer)
        thread.start()

        def until_the_end() -> list[bytes]:
            thread.join(20)
            return heard

        yield Settings(source="s", port=server.getsockname()[1], tls_ca=str(file)), until_the_end
        thread.join(20)


def a_database(settings: Settings) -> None:
    Database(settings)


def a_stream(settings: Settings) -> None:
    with BinlogStream(settings, "mariadb", "0-1-6") as stream:
        list(stream.events())


@pytest.mark.parametrize("ask", [a_database, a_stream])
def test_a_database_without_tls_is_refused_before_a_login(
    without_tls: Asked, ask: Callable[[Settings], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "_create_ssl_ctx", lambda *_: None)  # of no certificates
    settings, heard = without_tls
    with pytest.raises(CannotFollow, match=SAID):
        ask(settings)
    assert heard() == [b""], "nothing was sent"


@pytest.mark.parametrize("ask", [a_database, a_stream])
def test_a_connection_that_is_not_secure_is_not_used(
    tmp_path: Path, ask: Callable[[Settings], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyMySQL 1.1 connects in plain text where the server offers nothing else."""
    monkeypatch.setattr(Connection, "_create_ssl_ctx", lambda *_: None)
    ours, theirs = socket.socketpair()

    def connect(self: Connection, sock: object = None) -> None:
        self._sock, self._rfile, self._closed = ours, ours.makefile("rb"), False

    monkeypatch.setattr(Connection, "connect", connect)
    file = tmp_path / "ca.pem"
    file.write_text("")
    with theirs:
        with pytest.raises(CannotFollow, match=SAID):
            ask(Settings(source="s", tls_ca=str(file)))
        assert theirs.recv(100) == b"", "it is closed, and nothing was sent"
