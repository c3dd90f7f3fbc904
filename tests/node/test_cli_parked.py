"""`txn parked` and `txn release` at an admin door: what is missing is said, and whoever answers instead is found out."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fencepost.node.main import main

HALF = {
    "transactional_id": "shop::a",
    "half_id": "h",
    "state": "parked",
    "checks": 3,
    "prepared_ms": 1,
    "changed_ms": 2,
}
TOKEN = "sekret"
Serve = Callable[[bytes], "Stranger"]


class Stranger:
    """Listens on the loopback, and answers all that comes with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.heard: list[bytes] = []
        self._answer = answer
        self._door = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._door.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._door.accept()
            with connection:
                heard = connection.recv(65_536)
                if not heard:
                    return
                self.heard.append(heard)
                connection.sendall(self._answer)

    def close(self) -> None:
        host, port = self._door.getsockname()
        socket.create_connection((host, port)).close()
        self._thread.join()
        self._door.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setenv("FENCEPOST_ADMIN_TOKEN", TOKEN)
    strangers: list[Stranger] = []

    def serve(answer: bytes) -> Stranger:
        strangers.append(Stranger(answer))
        return strangers[-1]

    yield serve
    for each in strangers:
        each.close()


def http(body: Any, *, status: str = "200 OK", headers: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("all_of_them", [(), ("--all",)])
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ({"partitions_without_a_coordinator": [3]}, "nobody answers for __transaction_state-3"),
        (
            {"partitions_without_a_coordinator": ["__transaction_state-3"]},
            "nobody answers for __transaction_state-3",
        ),
        (
            {"partitions_without_a_coordinator": list(range(50))},
            "__transaction_state-2 and 47 more: the half messages",
        ),
        ({"nodes_not_reached": [2]}, "node 2 could not be asked"),
    ],
)
def test_nothing_is_not_said_where_something_is_missing(
    missing: dict[str, Any], said: str, all_of_them: tuple[str, ...], serve: Serve, capsys
) -> None:
    door = serve(http({"half_messages": [], "nodes_not_reached": [], **missing}))
    assert main(["txn", "parked", *all_of_them, "--admin", door.place]) == 1
    told = capsys.readouterr()
    assert told.out == "Those that could be asked know of none.\n"
    assert said in told.err and "missing here" in told.err


def test_a_program_gets_what_there_is_and_1_when_something_is_missing(serve: Serve, capsys) -> None:
    answer = {"half_messages": [HALF], "partitions_without_a_coordinator": [0]}
    assert main(["txn", "parked", "--json", "--admin", serve(http(answer)).place]) == 1
    assert json.loads(capsys.readouterr().out) == [HALF]


def test_an_older_node_that_does_not_tell_of_partitions_is_believed(serve: Serve, capsys) -> None:
    door = serve(http({"half_messages": [], "nodes_not_reached": []}))
    assert main(["txn", "parked", "--admin", door.place]) == 0
    assert capsys.readouterr().out == "Nothing is parked.\n"


# --- whoever answers ------------------------------------------------------------------------------


def test_a_token_goes_to_no_proxy_and_follows_no_redirect(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    thief = serve(http({"half_messages": []}))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{thief.place}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    door = serve(http({"half_messages": []}))
    assert main(["txn", "parked", "--admin", door.place]) == 0
    assert f"Bearer {TOKEN}".encode() in door.heard[0]
    location = f"Location: http://{thief.place}/steal\r\n"
    away = serve(http(b"", status="302 Found", headers=location))
    assert main(["txn", "parked", "--admin", f"http://{away.place}"]) == 1
    assert "which is not followed" in capsys.readouterr().err
    assert thief.heard == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "is no admin door: it answers with what is not whole HTTP"),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"half',
            "is no admin door: it answers with what is not whole HTTP",
        ),
        (http({"status": "success"}), "is no admin door: it tells of no half messages"),
        (http({"half_messages": [{}]}), "what it tells of half messages can't be read"),
        (http({"half_messages": ["x"]}), "what it tells of half messages can't be read"),
        (http(["x"]), "what it says has no fields"),
        (http(b"hi!\n"), "it does not speak JSON"),
        (http(b"[" * 200_000), "it does not speak JSON"),
        (http(b"\xff"), "it does not speak JSON"),
        (b"", "no admin door"),
    ],
)
def test_whatever_answers_at_the_port_is_told_in_a_sentence(
    answer: bytes, said: str, serve: Serve, capsys
) -> None:
    assert main(["txn", "parked", "--admin", serve(answer).place]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err and told.err.count("\n") == 1


def test_a_decision_that_is_not_answered_may_have_been_made(serve: Serve, capsys) -> None:
    door = serve(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"sta')
    words = ("--half-id", "h", "--outcome", "commit", "--admin", door.place)
    assert main(["txn", "release", "shop::a", *words]) == 1
    assert "It may have been done all the same: look with" in capsys.readouterr().err
    assert main(["txn", "release", "shop::a", "--admin", serve(http({})).place]) == 1
    assert "it does not tell `half_id`" in capsys.readouterr().err


def test_a_token_that_can_not_be_sent_is_not_shown(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    door = serve(http({"half_messages": []}))
    for token in ("sek\nret", "sekrèt"):
        monkeypatch.setenv("FENCEPOST_ADMIN_TOKEN", token)
        assert main(["txn", "parked", "--admin", door.place]) == 2
        said = capsys.readouterr().err
        assert said.startswith("fencepost: $FENCEPOST_ADMIN_TOKEN has characters")
        assert "sek" not in said
    monkeypatch.setenv("FENCEPOST_ADMIN_TOKEN", f"{TOKEN}\n")  # as a file has it
    assert main(["txn", "parked", "--admin", door.place]) == 0
    assert b"Bearer sekret\r\n" in door.heard[0]


def above(place: str) -> str:
    """The client door, a thousand below."""
    host, port = place.split(":")
    return f"{host}:{int(port) - 1000}"


def test_a_door_that_is_shut_is_not_the_last_of_bootstrap(serve: Serve, capsys) -> None:
    door = serve(http({"half_messages": [HALF]}))
    shut = "127.0.0.1:2"
    assert main(["txn", "parked", "--bootstrap", f"{shut},{above(door.place)}"]) == 0
    assert "shop::a" in capsys.readouterr().out
    assert main(["txn", "parked", "--bootstrap", f"{shut},127.0.0.1:3"]) == 1
    said = capsys.readouterr().err
    assert "no admin door answers at http://127.0.0.1:1002, http://127.0.0.1:1003 (" in said


def test_what_is_wrong_with_an_answer_is_said_of_who_gave_it(serve: Serve, capsys) -> None:
    door = serve(http({}))
    assert main(["txn", "parked", "--bootstrap", f"127.0.0.1:2,{above(door.place)}"]) == 1
    assert f"http://{door.place}" in capsys.readouterr().err
