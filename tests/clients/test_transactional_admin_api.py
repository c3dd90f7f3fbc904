"""The client of the admin door: which answers it believes, and when it asks again."""

import contextlib
import socket
import threading
import time
from contextlib import ExitStack

import pytest
from admin_door import told
from fencepost.clients.transactional import AdminApi, AdminRefused, AdminUnreachable
from fencepost.clients.transactional.admin_api import in_path

REFUSED = {"error": "PRODUCER_FENCED", "message": "it was fenced.", "next_step": "End it."}


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    asked = []

    def answer(method, path, body):
        asked.append((method, path, body))
        return None if len(asked) < 3 else (200, {"done": True})

    with told(answer) as door:
        assert AdminApi(door).call("POST", "/x", {"number": 7}) == {"done": True}
    assert asked == [("POST", "/x", {"number": 7})] * 3


def test_a_coordinator_that_is_away_is_waited_for() -> None:
    statuses = [503, 429, 200]
    with told(lambda *_: (statuses.pop(0), {"message": "loading"})) as door:
        AdminApi(door).call("GET", "/x")
    assert statuses == []


def test_a_proxy_that_reaches_no_node_has_refused_nothing() -> None:
    """What was asked may have been done, and a driver that is told AdminRefused counts on the opposite."""
    answers = [(502, {"message": "bad gateway"}), (504, {"message": "timeout"}), (200, {})]
    with told(lambda *_: answers.pop(0)) as door:
        assert AdminApi(door).call("POST", "/x", {"number": 7}) == {}
    assert answers == []


def test_a_transaction_before_it_that_has_not_ended_is_waited_for() -> None:
    """A group whose commit was told so had not been refused: its driver took everything back."""
    answers = [(409, {"error": "CONCURRENT_TRANSACTIONS", "message": "not yet"}), (200, {})]
    with told(lambda *_: answers.pop(0)) as door:
        assert AdminApi(door).call("POST", "/x", {"number": 7}) == {}
    assert answers == []


def test_a_refusal_is_believed_at_once_and_tells_what_to_do() -> None:
    asked = []

    def answer(*each):
        asked.append(each)
        return 409, REFUSED

    with told(answer) as door, pytest.raises(AdminRefused) as refused:
        AdminApi(door).call("GET", "/x")
    assert len(asked) == 1
    assert (refused.value.status, refused.value.error) == (409, "PRODUCER_FENCED")
    assert str(refused.value) == "PRODUCER_FENCED: it was fenced. End it."


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_a_door_that_lets_us_not_in_does_not_answer_for_the_one_that_heard_us(status) -> None:
    """The first one committed and died; the other one, with another token, had a batch reported as not committed."""
    here = {"error": "SASL_AUTHENTICATION_FAILED", "message": "no token.", "next_step": "Send it."}
    asked: list[str] = []

    def lost(method, *_):
        asked.append(method)

    with told(lost) as first, told(lambda *_: (status, here)) as second:
        with pytest.raises(AdminUnreachable, match=r"SASL_AUTHENTICATION_FAILED: no token. Send"):
            AdminApi([first, second], timeout_s=1).call("POST", "/x")
        assert len(asked) > 1, "whoever heard it is asked again"
        with pytest.raises(AdminRefused):
            AdminApi([second, first], timeout_s=1).call("POST", "/x")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dead = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with told(lambda *_: (status, here)) as door, pytest.raises(AdminRefused):
        AdminApi([dead, door], timeout_s=5).call("POST", "/x")  # nobody has heard it


def test_what_the_coordinator_says_is_believed_whoever_was_asked_before() -> None:
    unknown = 404, {"error": "TRANSACTIONAL_ID_NOT_FOUND", "message": "nobody."}
    with (
        told(lambda *_: None) as first,
        told(lambda *_: unknown) as second,
        pytest.raises(AdminRefused, match="nobody"),
    ):
        AdminApi([first, second], timeout_s=1).call("POST", "/x")


def test_another_node_is_asked_when_one_is_dead_and_from_then_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dead = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with told(lambda *_: (200, {})) as door:
        api = AdminApi(f"{dead},{door}", timeout_s=30)
        assert api.call("GET", "/x") == {}
        assert api._first % 2 == 1


@pytest.mark.slow
@pytest.mark.parametrize("timeout_s", [4.0, 6.0])
def test_a_door_that_is_well_is_asked_behind_two_that_say_nothing(timeout_s: float) -> None:
    """Nodes that are stopped still take connections: the first ones had all of the time."""
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        doors = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in silent]

        def answer(*_: object) -> tuple[int, dict[str, bool]]:
            time.sleep(0.3)
            return 200, {"done": True}

        doors.append(stack.enter_context(told(answer)))
        began = time.monotonic()
        assert AdminApi(doors, timeout_s=timeout_s).call("GET", "/x") == {"done": True}
        assert time.monotonic() - began < 2 * timeout_s, "each of the silent ones had all of it"


def test_a_message_without_a_full_stop_does_not_run_into_what_to_do() -> None:
    assert str(AdminRefused(409, "X", "it is prepared, as h1", "Ask.")) == (
        "X: it is prepared, as h1. Ask."
    )
    assert str(AdminRefused(409, "X", "Is it?", "Ask.")) == "X: Is it? Ask."
    assert str(AdminRefused(409, "X", "", "")) == "X:"


@pytest.mark.slow
def test_nobody_there_is_said_with_the_last_trouble() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dead = f"127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(AdminUnreachable, match="refused"):
        AdminApi(dead, timeout_s=0.3).call("GET", "/x")


@pytest.mark.slow
def test_something_else_that_answers_there_is_no_admin_door() -> None:
    for nonsense in (b"<html>", b"[1]", b""):
        answering = told(lambda *_, nonsense=nonsense: (200, nonsense))
        with answering as door, pytest.raises(AdminUnreachable):
            AdminApi(door, timeout_s=0.2).call("GET", "/x")


@pytest.mark.parametrize("address", ["", "https://a:1", "http://a", "ftp://a:1", "a b:x"])
def test_what_is_no_address_is_said_before_anything_is_asked(address) -> None:
    with pytest.raises(ValueError, match=r"admin door|Port"):
        AdminApi(address)


def test_the_doors_of_dev_are_found_from_its_bootstrap() -> None:
    api = AdminApi.of_dev("127.0.0.1:9092,127.0.0.1:9093")
    assert api._nodes == [("127.0.0.1", 10092), ("127.0.0.1", 10093)]


@pytest.mark.parametrize("bootstrap", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:9092,", ":9092"])
def test_what_is_no_bootstrap_of_dev_is_said_with_what_is_wanted(bootstrap) -> None:
    with pytest.raises(ValueError, match=r"say HOST:PORT of each node's client door"):
        AdminApi.of_dev(bootstrap)


def test_a_name_with_a_slash_stays_one_part_of_a_path() -> None:
    assert in_path("a/b c::d%") == "a%2Fb%20c%3A%3Ad%25"


@pytest.mark.parametrize("told_first", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_door_that_gives_a_byte_now_and_then_is_given_up(told_first: bytes) -> None:
    """Each byte had a time-out of its own: the call came back when the whole answer had."""
    is_over = threading.Event()

    def drip(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not is_over.is_set():
                taken, _ = listening.accept()
                with taken, contextlib.suppress(OSError):
                    taken.sendall(told_first)
                    while not is_over.wait(0.05):
                        taken.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        api = AdminApi(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=0.5)
        ending = threading.Timer(10.0, is_over.set)
        ending.start()
        with pytest.raises(AdminUnreachable, match=r"^GET /x: no answer in 0\.5 s"):
            api.call("GET", "/x")
        assert not is_over.is_set(), "it came back because the door ended"
        ending.cancel()
        is_over.set()
