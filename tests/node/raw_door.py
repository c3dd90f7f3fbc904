"""Plain sockets at a node's door, for clients that don't keep to the protocol; and what the node holds meanwhile."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from fencepost.chaos.harness.processes import Node
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey, decode_response, encode_request
from fencepost.cluster.wire.render import render_request
from fencepost.cluster.wire.versions import SUPPORTED
from sim_node import batch

PATIENCE_S = 30.0
PATIENCE_MS = int(PATIENCE_S * 1000)


def framed(key: ApiKey, version: int, correlation_id: int = 1, **fields: Any) -> bytes:
    body = render_request(key, version, fields)
    chunks = encode_request(key, version, correlation_id, "tests", body)
    return b"".join(bytes(chunk) for chunk in chunks)


def with_length(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class Door:
    """The client door of one running node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.topic_id: UUID
        self.written = 0
        self.sockets_at_rest = self.sockets()

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.node.port), PATIENCE_S) as plain:
            yield plain

    def sockets(self) -> int:
        """How many sockets the process holds."""
        folder = f"/proc/{self.node.process.pid}/fd"
        found = 0
        for name in os.listdir(folder):
            try:
                found += os.readlink(f"{folder}/{name}").startswith("socket:")
            except FileNotFoundError:
                continue
        return found

    def wait_at_rest(self, seconds: float = PATIENCE_S) -> None:
        """Until no connection is left; those that asked whether it runs may have been there at first."""
        deadline = time.monotonic() + seconds
        while (found := self.sockets()) > self.sockets_at_rest:
            assert time.monotonic() < deadline, f"{found} sockets are still open"
            time.sleep(0.01)
        self.sockets_at_rest = found

    def ask(
        self, plain: socket.socket, key: ApiKey, version: int | None = None, **fields: Any
    ) -> Any:
        if version is None:
            version = SUPPORTED[key][1]
        plain.sendall(framed(key, version, **fields))
        return decode_response(key, version, answer(plain))[1]

    def create_topic(self, name: str) -> None:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        with self.connection() as plain:
            reply = self.ask(plain, ApiKey.create_topics, timeout=PATIENCE_MS, topics=[topic])
        self.topic_id = reply.topics[0].topic_id

    def produce(self, plain: socket.socket, records: bytes, acks: int = -1) -> ErrorCode:
        reply = self.ask(plain, ApiKey.produce, **self.produced(records, acks))
        error: ErrorCode = reply.responses[0].partition_responses[0].error_code
        return error

    def produced(self, records: bytes, acks: int = -1) -> dict[str, Any]:
        data = [{"index": 0, "records": records}]
        topics = [{"topic_id": self.topic_id, "partition_data": data}]
        return {"acks": acks, "timeout": PATIENCE_MS, "topic_data": topics}

    def fetch(self, plain: socket.socket, offset: int) -> Any:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        reply = self.ask(
            plain,
            ApiKey.fetch,
            max_wait=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[{"topic_id": self.topic_id, "partitions": [part]}],
        )
        return reply.responses[0].partitions[0]

    def check_serves(self) -> None:
        """A well-behaved client writes a record and reads it back."""
        with self.connection() as plain:
            error = self.produce(plain, batch(b"fine %d" % self.written))
            assert error is ErrorCode.none, f"record {self.written} was answered with {error!r}"
            found = self.fetch(plain, self.written)
            end = found.high_watermark
            assert end == self.written + 1, f"the end is {end} behind record {self.written}"
            assert b"fine %d" % self.written in bytes(found.records)
        self.written += 1


def answer(plain: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", exactly(plain, 4))
    return exactly(plain, size)


def exactly(plain: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = plain.recv(size - len(parts))
        if not part:
            raise EOFError(f"the node closed after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def is_closed(plain: socket.socket, seconds: float = PATIENCE_S) -> bool:
    """Whether the node closes the connection without a further byte."""
    plain.settimeout(seconds)
    try:
        return plain.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
