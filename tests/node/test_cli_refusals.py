"""What a cluster's refusals are called, and the next step of each."""

import socketserver
import threading
from collections.abc import Iterator

import pytest
from cli_said import refused, runs
from confluent_kafka import KafkaError
from fencepost.chaos.harness.processes import free_port
from fencepost.cluster.base.errors import ErrorCode
from fencepost.node.cli.refusals import explain, of_the_start


class _Door(socketserver.BaseRequestHandler):
    """What a node's says to what is no HTTP."""

    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


@pytest.fixture
def admin_door() -> Iterator[int]:
    with socketserver.TCPServer(("127.0.0.1", 0), _Door) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_error_of_kafkas_has_kafkas_name() -> None:
    """librdkafka calls some otherwise, which Kafka's documentation does not know: UNKNOWN_TOPIC_OR_PART, TOPIC_EXCEPTION."""
    for each in ErrorCode:
        error = KafkaError(each.value)
        if each is ErrorCode.none or error.name().startswith("ERR_"):  # newer than this librdkafka
            continue
        assert explain("can't", error).startswith(f"can't: {each.name.upper()}: "), each


def test_a_setting_that_is_read_at_the_start_is_put_into_the_file() -> None:
    told = "INVALID_REQUEST: Cannot update these configs dynamically: [log.dirs, num.partitions]."
    step = of_the_start(told, ["log.dir", "log.dirs", "num.partitions", "log.retention.ms"])
    assert "each node's file (or $FENCEPOST_LOG_DIRS, $FENCEPOST_NUM_PARTITIONS)" in step
    assert "restart them" in step
    assert of_the_start("INVALID_REQUEST: Invalid value x", ["num.partitions"]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("topic", "list"), ("consume", "orders")])
def test_an_admin_door_is_no_broker_and_that_is_said(words, admin_door: int, capsys) -> None:
    """It was an answer of 1,213,486,160 bytes, for which receive.message.max.bytes was to be raised."""
    others = f"127.0.0.1:{free_port()},127.0.0.1:{admin_door}"
    said = runs(capsys)(*words, "--bootstrap", others)
    refused(said, f'(127.0.0.1:{admin_door} begins its answer with "HTTP": is this an admin door')
    assert "receive.message.max.bytes" not in said.err
