"""`fencepost health`: an exit code for containers, the node's own sentence for people."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fencepost.chaos.harness.processes import free_port
from fencepost.node.main import main

ANSWERS = {
    "/health/ready": (503, {"ready": False, "why": "partition orders-1 is still catching up"}),
    "/health/live": (200, {"live": True, "why": "the loop turns"}),
}


class Door(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def door() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_node_that_is_not_ready_is_1_with_its_own_sentence(door: int, capsys) -> None:
    assert main(["health", "--admin", f"127.0.0.1:{door}"]) == 1
    assert capsys.readouterr().out == "partition orders-1 is still catching up\n"
    assert main(["health", "--admin", f"http://127.0.0.1:{door}/", "--live"]) == 0
    assert capsys.readouterr().out == "the loop turns\n"


def test_a_node_that_listens_everywhere_is_asked_on_this_machine(
    door: int, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("FENCEPOST_ADMIN_LISTENER", f"0.0.0.0:{door}")
    assert main(["health", "--live"]) == 0
    monkeypatch.setenv("FENCEPOST_ADMIN_URL", "127.0.0.1:1")  # named on purpose: it comes first
    assert main(["health", "--live"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_node_that_does_not_answer_is_1_with_what_to_look_for(capsys) -> None:
    assert main(["health", "--admin", f"127.0.0.1:{free_port()}"]) == 1
    said = capsys.readouterr().err
    assert "no answer" in said
    assert "admin.listener" in said


def test_an_address_without_a_port_is_not_understood(capsys) -> None:
    assert main(["health", "--admin", "localhost"]) == 2
    assert "HOST:PORT" in capsys.readouterr().err
