"""What strangers send to a real node: Kafka's error or a closed connection, and a line in the log.

After each of them the node serves a well-behaved client, and holds no connection more than before.
"""

import os
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from fencepost.chaos.harness.processes import DidNotStart
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey, decode_response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lying_batches import GOOD, LIES
from raw_door import PATIENCE_S, Door, answer, exactly, framed, is_closed, with_length
from support.fencepost_process import fencepost

E = ErrorCode
IDLE_MS = 1_500
REQUEST_BYTES_MAX = 1 << 20
MANY = 10_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]  # a real process is started once for all


@pytest.fixture(scope="module")
def running() -> Iterator[Door]:
    environment = {"FENCEPOST_SOCKET_REQUEST_MAX_BYTES": str(REQUEST_BYTES_MAX)}
    with fencepost(environment=environment) as node:
        door = Door(node)
        door.create_topic("topic")
        door.wait_at_rest()
        yield door


@pytest.fixture(scope="module")
def impatient() -> Iterator[Door]:
    """A node of its own: on a busy machine a well-behaved client is silent for as long as this one bears it."""
    with fencepost(environment={"FENCEPOST_CONNECTIONS_MAX_IDLE_MS": str(IDLE_MS)}) as node:
        yield Door(node)


@pytest.fixture
def door(running: Door) -> Iterator[Door]:
    yield running
    assert running.node.process.alive
    running.check_serves()
    running.wait_at_rest()
    assert "client_request_failed" not in running.node.process.said()


def refusals(door: Door) -> int:
    return door.node.process.said().count('"client_request_refused"')


def is_refused(door: Door, sent: bytes) -> None:
    before = refusals(door)
    with door.connection() as plain:
        plain.sendall(sent)
        assert is_closed(plain)
    assert refusals(door) == before + 1


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\0" * 8,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 100,
        struct.pack(">hhih", 0, 9, 1, 30_000),  # a client id that is not there
        struct.pack(">hhih", 1, 18, 1, -1) + b"\0" + b"\xff" * 50,
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),  # an array without end
        struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", -2),
    ],
)
def test_a_frame_of_garbage_closes_its_connection(door: Door, frame: bytes) -> None:
    is_refused(door, with_length(frame))


@pytest.mark.parametrize("size", [-1, -(2**31), REQUEST_BYTES_MAX + 1, 2**31 - 1])
def test_a_frame_of_an_impossible_size_closes_its_connection_at_once(door: Door, size: int) -> None:
    is_refused(door, struct.pack(">i", size) + b"x")


@pytest.mark.parametrize(
    ("number", "version"),
    [(999, 0), (-1, 0), (4, 0), (52, 0), (17, 0), (26, 3), (0, 2), (0, 99), (3, -1), (1, 19)],
)
def test_an_api_or_version_that_is_not_served_closes_the_connection(
    door: Door, number: int, version: int
) -> None:
    is_refused(door, with_length(struct.pack(">hhih", number, version, 7, -1) + b"\0" * 40))


@pytest.mark.parametrize("version", [-1, 5, 99, 32_767])
def test_an_unknown_version_of_api_versions_is_told_what_is_served(
    door: Door, version: int
) -> None:
    with door.connection() as plain:
        plain.sendall(with_length(struct.pack(">hhih", 18, version, 7, -1) + b"\xff" * 5))
        correlation_id, reply = decode_response(ApiKey.api_versions, 0, answer(plain))
        assert (correlation_id, reply.error_code) == (7, E.unsupported_version)
        assert len(reply.api_keys) > 20
        assert door.ask(plain, ApiKey.api_versions, 0).error_code is E.none


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_survived(running: Door, sent: bytes) -> None:
    with running.connection() as plain:
        plain.sendall(sent)


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused_with_kafkas_error(door: Door, lie: str) -> None:
    sent, error = LIES[lie]
    with door.connection() as plain:
        assert door.produce(plain, sent) is error
        assert door.fetch(plain, 0).high_watermark == door.written


def test_a_bad_batch_without_acknowledgement_closes_the_connection(door: Door) -> None:
    is_refused(
        door,
        framed(ApiKey.produce, 13, **door.produced(LIES["wrong checksum"][0], acks=0)),
    )


def test_a_client_that_says_nothing_is_closed(impatient: Door) -> None:
    with impatient.connection() as plain:
        assert is_closed(plain)
    impatient.wait_at_rest()


def test_a_client_that_never_ends_its_frame_is_closed(impatient: Door) -> None:
    """Byte by byte, for as long as it likes: what counts is a request, not a sign of life."""
    sent = with_length(bytes(10_000))
    deadline = time.monotonic() + PATIENCE_S
    with impatient.connection() as plain:
        plain.settimeout(0.1)
        for place in range(len(sent)):
            assert time.monotonic() < deadline, "it was never closed"
            try:
                plain.sendall(sent[place : place + 1])
                if plain.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
    impatient.wait_at_rest()


def test_a_client_that_half_closes_gets_its_answer(door: Door) -> None:
    with door.connection() as plain:
        plain.sendall(framed(ApiKey.api_versions, 0))
        plain.shutdown(socket.SHUT_WR)
        _, reply = decode_response(ApiKey.api_versions, 0, answer(plain))
        assert reply.error_code is E.none
        assert is_closed(plain)


def test_a_client_that_closes_in_the_middle_of_a_frame_leaves_nothing(door: Door) -> None:
    whole = framed(ApiKey.produce, 13, **door.produced(GOOD))
    for size in (1, 3, 4, 5, 20, len(whole) - 1):
        with door.connection() as plain:
            plain.sendall(whole[:size])


def test_a_client_that_pipelines_and_leaves_is_forgotten(door: Door) -> None:
    """Its batches may be there or not; nobody waits for them, and nothing is held."""
    for reset in (True, False):
        with door.connection() as plain:
            plain.sendall(framed(ApiKey.metadata, 12, topics=None) * 200)
            part = {"partition": 0, "fetch_offset": door.written, "partition_max_bytes": 1000}
            topics = [{"topic_id": door.topic_id, "partitions": [part]}]
            plain.sendall(
                framed(ApiKey.fetch, 13, max_wait=30_000, min_bytes=1, topics=topics, max_bytes=9)
            )
            if reset:  # close with a reset instead of a goodbye
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_client_that_never_reads_is_not_answered_into_memory(door: Door) -> None:
    before = door.node.process.resident_bytes()
    question = framed(ApiKey.api_versions, 4) * 1_000
    with door.connection() as plain:
        plain.settimeout(1.0)
        with pytest.raises(TimeoutError):  # the node stops to read, so sending stops
            for _ in range(1_000):
                plain.sendall(question)
        assert door.node.process.resident_bytes() < before + (32 << 20)
        door.check_serves()


def test_impossible_settings_end_the_start_with_a_reason() -> None:
    for name, value in (
        ("FENCEPOST_NUM_PARTITIONS", "many"),
        ("FENCEPOST_NUM_PARTITIONS", "0"),
        ("FENCEPOST_NO_SUCH_SETTING", "1"),
    ):
        with pytest.raises(DidNotStart) as failed, fencepost(environment={name: value}):
            pass
        assert "exit code 2" in str(failed.value)
        assert "Traceback" not in str(failed.value)


def test_ten_thousand_connections_are_held_while_the_node_serves(door: Door) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MANY * 4 // 3 + 500  # a node gives three quarters of its descriptors to connections
    if soft < needed:
        pytest.skip(f"needs RLIMIT_NOFILE of {needed}, it is {soft}: ulimit -n {needed}")
    before = door.node.process.resident_bytes()
    held: list[socket.socket] = []
    try:
        for _ in range(MANY):
            held.append(  # noqa: PERF401 - one by one: those there are closed when one fails
                socket.create_connection(("127.0.0.1", door.node.port), PATIENCE_S)
            )
        door.check_serves()
        assert door.sockets() >= door.sockets_at_rest + MANY  # none was closed to make room
        grown = door.node.process.resident_bytes() - before
        assert grown < MANY * 16 * 1024, f"{grown / MANY:.0f} bytes a connection"
    finally:
        for plain in held:
            plain.close()


def test_the_log_of_it_all_is_short(running: Door) -> None:
    """One line for each refused client, none for those that just went."""
    said = running.node.process.said()
    assert len(said) < 200_000
    assert "Traceback" not in said
    assert os.path.exists(running.node.data)
    with running.connection() as plain:
        plain.sendall(framed(ApiKey.api_versions, 0))
        exactly(plain, 4)
