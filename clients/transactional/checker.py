"""Answers the coordinator's questions about half messages whose producer never said how they end.

INVARIANT  a check is said to have been delivered before the application is asked, and every check is answered.
PREVENTS   a slow database having one check go to every member of the group in turn.
PROVED BY  tests/clients/test_transactional_checker.py::test_a_check_is_acknowledged_before_the_application_is_asked

Every process that can look up what became of a local transaction may run one, whether it produces or not. To poll is to
be alive: there is nothing to register.
"""

import enum
import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from .admin_api import AdminApi, AdminRefused, AdminUnreachable
from .names import group_name

WAIT_S: Final = 2.0  # as long as `stop` waits for a poll, beside a pause
PAUSE_S: Final = 1.0
CHECKS_MAX: Final = 20

log = logging.getLogger("fencepost.clients")


class Verdict(enum.Enum):
    """How a local transaction ended; UNKNOWN while it can't be told: the coordinator asks again later."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


def as_verdict(given: object, half_id: str) -> Verdict:
    """TypeError for anything else: None and "commit" must not pass for a rollback."""
    if not isinstance(given, Verdict):
        raise TypeError(
            f"the outcome of half message {half_id} must be Verdict.COMMIT, Verdict.ROLLBACK or Verdict.UNKNOWN, not "
            f"{given!r}. It is left to the next check: return one of the three"
        )
    return given


class Checker:
    """`check` is given the name of a half message (and its transactional id) and looks up what became of it."""

    def __init__(
        self,
        group: str,
        member: str,
        admin: AdminApi,
        check: Callable[[str, str], Verdict],
        *,
        wait_s: float = WAIT_S,
    ) -> None:
        self._group = group_name(group)
        self._member = member
        self._admin = admin
        self._check = check
        self._wait_s = wait_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._asking: threading.Thread | None = None  # who asks the application, or is about to

    def start(self) -> None:
        """Check in a thread of its own; also again, after `stop`."""
        if self._thread is not None and self._thread.is_alive() and not self._stopping.is_set():
            return
        self._stopping = threading.Event()  # a thread that was told to stop keeps the one before
        self._thread = threading.Thread(target=self.run, name=f"checks {self._group}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """What is being looked up is answered first. A poll that hangs is left behind: nobody is asked what it brings."""
        self._stopping.set()
        if self._thread is None:
            return
        for_poll_s = min(self._wait_s + PAUSE_S, timeout_s)
        self._thread.join(for_poll_s)
        if self._asking is self._thread:
            self._thread.join(timeout_s - for_poll_s)

    def run(self) -> None:
        """Until `stop`."""
        stopping = self._stopping
        while not stopping.is_set():
            try:
                self.step(stopping)
            except (AdminRefused, AdminUnreachable) as trouble:
                log.warning("checks of %s: %s", self._group, trouble)
                stopping.wait(PAUSE_S)
            except Exception as bug:  # noqa: BLE001 - nobody would notice that this thread had ended
                where = "".join(traceback.format_exception(bug))
                log.warning("checks of %s go on after %r: %s", self._group, bug, where)
                stopping.wait(PAUSE_S)

    def step(self, stopping: threading.Event | None = None) -> int:
        """Wait once for checks and answer them; how many there were. `stopping` is of the thread that asks: another may have begun
        while it waited."""
        stopping = stopping or self._stopping
        checks = self._poll(self._wait_s, CHECKS_MAX, [])
        if not checks or stopping.is_set():
            return 0  # what is not said to have arrived is offered to others
        self._asking = threading.current_thread()
        try:
            self._poll(0.0, 0, checks)  # they have arrived
            unheard: AdminUnreachable | None = None
            for each in checks:
                try:
                    self._answer(each)
                except AdminUnreachable as trouble:
                    # The others count as checks that were made, too.
                    unheard = trouble
                    if stopping.is_set():
                        break
            if unheard is not None:
                raise unheard
        finally:
            if self._asking is threading.current_thread():
                self._asking = None
        return len(checks)

    def _poll(
        self, wait_s: float, checks_max: int, delivered: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        body = {
            "group": self._group,
            "member": self._member,
            "wait_ms_max": int(wait_s * 1000),
            "checks_max": checks_max,
            "delivered": delivered,
        }
        answer = self._admin.call("POST", "/v1/checks/poll", body, wait_s=wait_s)
        found: list[dict[str, Any]] = answer["checks"]
        return found

    def _answer(self, each: dict[str, Any]) -> None:
        try:
            given = self._check(each["half_id"], each["transactional_id"])
            verdict = as_verdict(given, each["half_id"])
        except Exception as failure:  # noqa: BLE001 - the application's own: the outcome is not known
            log.warning("check of %s: %r; it is asked again", each["half_id"], failure)
            verdict = Verdict.UNKNOWN
        body = {**each, "verdict": verdict.value, "member": self._member}
        try:
            answer = self._admin.call("POST", "/v1/checks/answer", body)
        except AdminRefused as refused:
            log.warning("answer about %s: %s", each["half_id"], refused)
            return
        if not answer.get("as_wanted", True):
            log.warning("answer about %s: %s", each["half_id"], answer.get("message", ""))
