"""`fencepost health`: an exit code for containers, the node's own sentence for people."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fencepost.chaos.harness.processes import free_port
from fencepost.node.cli.children import ADMIN_PORTS_APART
from fencepost.node.main import main

ANSWERS = {
    "/health/ready": (503, {"ready": False, "why": "partition orders-1 is still catching up"}),
    "/health/live": (200, {"live": True, "why": "the loop turns"}),
}


class Door(BaseHTTPRequestHandler):
    says: bytes | None = None

    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        self.send_response(status if self.says is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode() if self.says is None else self.says)

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
    assert "--admin 127.0.0.1:10092" in said


def test_the_door_of_the_cluster_that_the_shell_knows_is_named(monkeypatch, capsys) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", "[::1]:23092,127.0.0.1:23093")
    assert main(["health", "--admin", f"127.0.0.1:{free_port()}"]) == 1
    assert "--admin [::1]:24092" in capsys.readouterr().err


def test_nodes_are_asked_where_dev_has_their_doors(door: int, monkeypatch, capsys) -> None:
    """It asked 127.0.0.1:9644, whatever $FENCEPOST_BOOTSTRAP said; nobody is there after `make run`."""
    node = f"127.0.0.1:{door - ADMIN_PORTS_APART}"
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", node)
    assert main(["health", "--live"]) == 0
    assert capsys.readouterr().out == "the loop turns\n"
    other = free_port()
    two = f"{node}, 127.0.0.1:{other}"
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", two)
    for words in ([], ["--bootstrap", two]):
        assert main(["health", "--live", *words]) == 1
        said = capsys.readouterr()
        assert said.out == f"127.0.0.1:{door}: the loop turns\n"
        assert f"no answer from the admin door 127.0.0.1:{other + ADMIN_PORTS_APART} " in said.err


def test_who_is_named_on_purpose_is_asked_before_a_variables_door(
    door: int, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("FENCEPOST_ADMIN_LISTENER", "127.0.0.1:1")
    node = f"127.0.0.1:{door - ADMIN_PORTS_APART}"
    assert main(["health", "--live", "--bootstrap", node]) == 0
    monkeypatch.setenv(
        "FENCEPOST_BOOTSTRAP", node
    )  # of a container's commands: its node's is its own door
    assert main(["health", "--live"]) == 1
    assert main(["health", "--bootstrap", "127.0.0.1:65000"]) == 2
    assert "there is no port 1000 above" in capsys.readouterr().err


@pytest.mark.parametrize(
    "said",
    [
        b"<html>It works!</html>",
        b'{"status": "UP"}',
        b'{"live": true, "why": "the loop turns"}',
        b'{"ready": "no", "why": "\x1b[2K"}',
        b"[1]",
        b"[" * 100_000,
        b"x" * (1 << 20),
        b"",
    ],
    ids=["page", "other", "live", "word", "list", "deep", "long", "nothing"],
)
def test_whatever_answers_with_200_is_not_a_node_that_is_ready(
    door: int, said: bytes, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(Door, "says", said)
    assert main(["health", "--admin", f"127.0.0.1:{door}"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        f"fencepost: what answers at 127.0.0.1:{door} is no admin door: it does not say whether it is `ready`. Name one"
        " with --admin.\n"
    )


def test_a_node_that_says_that_it_is_not_ready_is_believed_whatever_the_status(
    door: int, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(Door, "says", b'{"ready": false, "why": "it catches up"}')
    assert main(["health", "--admin", f"127.0.0.1:{door}"]) == 1
    assert capsys.readouterr().out == "it catches up\n"


@pytest.mark.parametrize("word", ["localhost", "ftp://localhost:1", "http://a b"])
def test_an_address_without_a_port_is_not_understood(word: str, capsys) -> None:
    assert main(["health", "--admin", word]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_a_door_behind_a_proxy_is_asked_as_txn_asks_it(door: int, monkeypatch, capsys) -> None:
    """$FENCEPOST_ADMIN_URL is one word for both: over TLS, and below a path."""
    monkeypatch.setitem(ANSWERS, "/broker-1/health/live", ANSWERS["/health/live"])
    assert main(["health", "--live", "--admin", f"http://127.0.0.1:{door}/broker-1/"]) == 0
    assert main(["health", "--live", "--admin", f"https://127.0.0.1:{door}"]) == 1
    assert "SSL" in capsys.readouterr().err
