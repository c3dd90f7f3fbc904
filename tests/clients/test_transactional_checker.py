"""What a checker says to the coordinator, in which order, and what it makes of an application that fails."""

import socket
import threading
import time
from typing import Any

import pytest
from admin_door import told
from fencepost.clients.transactional import (
    AdminApi,
    AdminUnreachable,
    Checker,
    Verdict,
    checker,
)

CHECK = {"transactional_id": "pay::p", "half_id": "order-1", "attempt": 2}


class Coordinator:
    def __init__(self, *, has_been_decided: bool = False) -> None:
        self.said: list[tuple[str, Any]] = []
        self.checks = [[CHECK]]
        self.has_been_decided = has_been_decided

    def answer(self, _method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/checks/poll":
            self.said.append(("poll", body["delivered"]))
            return 200, {"checks": self.checks.pop() if self.checks and body["checks_max"] else []}
        self.said.append(("answer", body["verdict"]))
        if self.has_been_decided:
            return 404, {"error": "TRANSACTIONAL_ID_NOT_FOUND", "message": "", "next_step": ""}
        return 200, {"as_wanted": False, "message": "it was rolled back"}


def stepped(coordinator: Coordinator, check: Any) -> int:
    with told(coordinator.answer) as door:
        return Checker("pay", "c", AdminApi(door), check, wait_s=0.1).step()


def test_a_check_is_acknowledged_before_the_application_is_asked() -> None:
    """Else a slow lookup would have it offered to every other member in turn."""
    coordinator = Coordinator()

    def check(half_id: str, transactional_id: str) -> Verdict:
        coordinator.said.append(("asked", (half_id, transactional_id)))
        return Verdict.COMMIT

    assert stepped(coordinator, check) == 1
    assert coordinator.said == [
        ("poll", []),
        ("poll", [CHECK]),
        ("asked", ("order-1", "pay::p")),
        ("answer", "commit"),
    ]


def test_a_lookup_that_fails_is_unknown_and_not_a_rollback(caplog) -> None:
    coordinator = Coordinator()

    def check(half_id: str, transactional_id: str) -> Verdict:
        raise ConnectionError("the database is away")

    stepped(coordinator, check)
    assert coordinator.said[-1] == ("answer", "unknown")
    assert "the database is away" in caplog.text


@pytest.mark.parametrize("given", [None, "commit", True])
def test_a_check_that_gives_no_verdict_is_unknown_and_says_what_is_allowed(caplog, given) -> None:
    coordinator = Coordinator()
    assert stepped(coordinator, lambda *_: given) == 1
    assert coordinator.said[-1] == ("answer", "unknown")
    wanted = "order-1 must be Verdict.COMMIT, Verdict.ROLLBACK or Verdict.UNKNOWN, not"
    assert f"{wanted} {given!r}" in caplog.text


@pytest.mark.parametrize("decided", [True, False])
def test_what_was_decided_otherwise_is_told_in_the_log(caplog, decided) -> None:
    coordinator = Coordinator(has_been_decided=decided)
    assert stepped(coordinator, lambda *_: Verdict.COMMIT) == 1
    assert "order-1" in caplog.text


def test_a_checker_stops_when_it_is_told_to() -> None:
    coordinator = Coordinator()
    coordinator.checks = []
    with told(coordinator.answer) as door:
        checks = Checker("pay", "c", AdminApi(door), lambda *_: Verdict.COMMIT, wait_s=0.01)
        checks.start()
        checks.stop()
    assert all(what == "poll" for what, _ in coordinator.said)


@pytest.mark.slow
def test_a_checker_whose_doors_say_nothing_stops_without_them() -> None:
    """A service that is told to end while the cluster is away took half a minute for it, which is when it is killed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        door = AdminApi(f"http://127.0.0.1:{silent.getsockname()[1]}")
        checks = Checker("pay", "c", door, lambda *_: Verdict.COMMIT, wait_s=0.1)
        checks.start()
        began = time.monotonic()
        checks.stop()
        assert time.monotonic() - began < 15


def test_a_check_that_comes_to_a_checker_which_was_stopped_is_left_to_others() -> None:
    """Its database may be closed: the answer would be UNKNOWN, and the check be counted."""
    coordinator = Coordinator()

    def answer(method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        checks.stop(0)
        return coordinator.answer(method, path, body)

    with told(answer) as door:
        checks = Checker("pay", "c", AdminApi(door), lambda *_: Verdict.COMMIT, wait_s=0.1)
        assert checks.step() == 0
    assert coordinator.said == [("poll", [])]


def test_what_is_being_looked_up_is_answered_before_a_checker_stops(monkeypatch) -> None:
    monkeypatch.setattr(checker, "PAUSE_S", 0.01)
    coordinator, asked, known = Coordinator(), threading.Event(), threading.Event()

    def check(*_: str) -> Verdict:
        asked.set()
        assert known.wait(30)
        return Verdict.COMMIT

    with told(coordinator.answer) as door:
        checks = Checker("pay", "c", AdminApi(door), check, wait_s=0.01)
        checks.start()
        assert asked.wait(30)
        threading.Timer(0.2, known.set).start()
        checks.stop()
        assert coordinator.said[-1] == ("answer", "commit")


def test_a_checker_that_is_started_again_checks_again() -> None:
    """It answered nothing any more, and said nothing of it."""
    coordinator, asked = Coordinator(), threading.Semaphore(0)

    def check(*_: str) -> Verdict:
        asked.release()
        return Verdict.COMMIT

    with told(coordinator.answer) as door:
        checks = Checker("pay", "c", AdminApi(door), check, wait_s=0.01)
        for _ in range(2):
            coordinator.checks = [[CHECK]]
            checks.start()
            assert asked.acquire(timeout=30)
            checks.stop()


def test_a_checker_that_is_started_twice_has_one_thread() -> None:
    """`stop` would end the second, and the first would go on for ever."""
    coordinator = Coordinator()
    coordinator.checks = []
    with told(coordinator.answer) as door:
        checks = Checker("pay", "c", AdminApi(door), lambda *_: Verdict.COMMIT, wait_s=0.01)
        checks.start()
        thread = checks._thread
        checks.start()
        assert checks._thread is thread
        checks.stop()


def test_a_checker_goes_on_after_what_nobody_foresaw(caplog, monkeypatch) -> None:
    """Else its thread would end, and half messages wait for checks that nobody answers."""
    monkeypatch.setattr(checker, "PAUSE_S", 0.01)
    coordinator, asked = Coordinator(), threading.Event()
    answers = [{"an older": "answer"}]

    def answer(method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (200, answers.pop()) if answers else coordinator.answer(method, path, body)

    def check(*_: str) -> Verdict:
        asked.set()
        return Verdict.COMMIT

    with told(answer) as door:
        checks = Checker("pay", "c", AdminApi(door), check, wait_s=0.01)
        checks.start()
        assert asked.wait(30)
        checks.stop()
    assert "KeyError: 'checks'" in caplog.text


def test_an_interrupt_ends_a_checker() -> None:
    def check(*_: str) -> Verdict:
        checks.stop()  # so that a checker that goes on ends, too
        raise KeyboardInterrupt

    with told(Coordinator().answer) as door:
        checks = Checker("pay", "c", AdminApi(door), check, wait_s=0.01)
        with pytest.raises(KeyboardInterrupt):
            checks.run()


def test_checks_behind_one_whose_answer_no_door_takes_are_answered(monkeypatch) -> None:
    """They count as made, since they are said to have arrived: fifteen such, and a half message is parked that nobody looked up."""
    coordinator = Coordinator()
    coordinator.checks = [[{**CHECK, "half_id": f"order-{number}"} for number in range(3)]]
    asked: list[str] = []

    def check(half_id: str, _transactional_id: str) -> Verdict:
        asked.append(half_id)
        return Verdict.COMMIT

    with told(coordinator.answer) as door:
        made = Checker("pay", "c", AdminApi(door), check, wait_s=0.1)
        call = made._admin.call

        def first_is_lost(method: str, path: str, body: Any, **wait: float) -> Any:
            if path == "/v1/checks/answer" and len(asked) == 1:
                raise AdminUnreachable("no answer in 30 s")
            return call(method, path, body, **wait)

        monkeypatch.setattr(made._admin, "call", first_is_lost)
        with pytest.raises(AdminUnreachable):
            made.step()
    assert asked == ["order-0", "order-1", "order-2"]
    assert coordinator.said[2:] == [("answer", "commit")] * 2


def test_a_poll_that_was_left_behind_asks_nobody_though_the_checker_was_started_again() -> None:
    hangs, asked = threading.Event(), []
    let_go, left_behind = threading.Event(), []

    class Admin:
        def call(self, _method: str, _path: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
            if left_behind or "delivered" not in body or body["delivered"]:
                let_go.wait(0.01)
                return {"checks": []}
            left_behind.append(threading.current_thread())
            hangs.set()
            let_go.wait(10)
            return {"checks": [{"half_id": "h", "transactional_id": "pay::p", "attempt": 1}]}

    def check(*_: str) -> Verdict:
        asked.append(threading.current_thread())
        return Verdict.UNKNOWN

    checker = Checker("pay", "m", Admin(), check, wait_s=0.0)
    checker.start()
    assert hangs.wait(10)
    checker.stop(0.01)
    checker.start()
    let_go.set()
    left_behind[0].join(10)
    checker.stop()
    assert not left_behind[0].is_alive() and asked == []
