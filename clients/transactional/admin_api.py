"""Asks the admin door of any node. Everything that is asked may be asked twice, so lost answers are asked for again.

INVARIANT  a call ends with the answer, with a refusal, or with AdminUnreachable when its time is over. Once it may have been heard,
           the refusal is the coordinator's: a door that lets us not in knows nothing of what another one has done.
PREVENTS   a driver that takes a broken connection for "nothing was decided".
PROVED BY  tests/clients/test_transactional_admin_api.py::test_an_answer_that_was_lost_is_asked_for_again,
           tests/clients/test_transactional_admin_api.py::test_a_door_that_lets_us_not_in_does_not_answer_for_the_one_that_heard_us
"""

import http.client
import json
import socket
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

TIMEOUT_S: Final = 30.0
ASK_S: Final = 15.0  # one node; it looks for the coordinator itself for up to ten
DOOR_S: Final = 1.0  # for each at least, also when the time is over: a call may be as much late
PAUSE_S: Final = 0.1
ANSWER_BYTES_MAX: Final = 64 << 20
# Too many ask, or the coordinator is away; 502 and 504 are a proxy's own, whose node did not answer it.
AGAIN: Final = (429, 502, 503, 504)
# 409, as it is Kafka's word for "not yet": the transaction before it has not ended. It may be done by the next time.
NOT_YET: Final = "CONCURRENT_TRANSACTIONS"
# Who is not let in, and a path that a door does not know; a name that the coordinator does not know is another 404.
DOORS_OWN: Final = (401, 403, 404, 405)
NOT_THERE: Final = "TRANSACTIONAL_ID_NOT_FOUND"
TOO_MANY: Final = 429
DEV_PORTS_APART: Final = 1_000  # of the client door and the admin door of `fencepost dev`


class AdminRefused(Exception):
    """The cluster understood and does not do it: `error` is Kafka's word for why."""

    def __init__(self, status: int, error: str, message: str, next_step: str) -> None:
        super().__init__(f"{error}: {_sentence(message)} {next_step}".strip())
        self.status = status
        self.error = error
        self.message = message
        self.next_step = next_step

    @property
    def is_the_doors_own(self) -> bool:
        """No coordinator was asked: it says nothing of what was asked for before, at this door or another one."""
        return self.status in DOORS_OWN and self.error != NOT_THERE


class AdminUnreachable(Exception):
    """No node gave an answer in time. What was asked may have been done: ask again."""


class AdminApi:
    """`AdminApi("http://10.0.0.1:9644,http://10.0.0.2:9644")`; safe to be used by several threads."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        token: str | None = None,
    ) -> None:
        """`token` is the nodes' `admin.token`, where they have one."""
        each = addresses.split(",") if isinstance(addresses, str) else addresses
        self._nodes = [_address(one) for one in each]
        if not self._nodes:
            raise ValueError("name at least one admin door, such as http://127.0.0.1:10092")
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._first = 0

    @classmethod
    def of_dev(cls, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> "AdminApi":
        """The admin doors of `fencepost dev`, each 1000 ports above its node's client door."""
        doors = []
        for each in bootstrap.split(","):
            host, _, port = each.strip().rpartition(":")
            if not host or not port.isdecimal():
                raise ValueError(
                    f"{bootstrap!r}: {each!r} is no address: say HOST:PORT of each node's client door, such as 127.0.0.1:9092"
                )
            doors.append(f"http://{host}:{int(port) + DEV_PORTS_APART}")
        return cls(doors, timeout_s=timeout_s)

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, wait_s: float = 0.0
    ) -> dict[str, Any]:
        """The answer's fields. `wait_s` is how long the node was asked to keep us waiting."""
        deadline = time.monotonic() + self._timeout_s + wait_s
        encoded = None if body is None else json.dumps(body).encode()
        was_heard = False  # perhaps
        while True:
            for waiting in range(len(self._nodes), 0, -1):
                host, port = self._nodes[self._first % len(self._nodes)]
                # Each has its part of the time: of three that are asked, two may say nothing for as long as one lets them.
                share_s = (deadline - time.monotonic()) / waiting
                least_s = wait_s + min(DOOR_S, self._timeout_s)
                ask_s = max(min(ASK_S + wait_s, share_s), least_s)
                try:
                    status, fields = _ask(host, port, method, path, encoded, self._headers, ask_s)
                except (OSError, http.client.HTTPException, ValueError) as trouble:
                    why = f"http://{host}:{port}: {trouble!r}"
                    was_heard |= not isinstance(trouble, ConnectionRefusedError)
                else:
                    refused = _refusal(status, fields)
                    if refused is None:
                        return fields
                    is_passing = status in AGAIN or refused.error == NOT_YET
                    if not is_passing and not (was_heard and refused.is_the_doors_own):
                        raise refused
                    why = f"http://{host}:{port}: {refused}"
                    was_heard |= status != TOO_MANY
                self._first += 1  # the next one, now and for whoever asks after us
            if time.monotonic() + PAUSE_S >= deadline:
                raise AdminUnreachable(
                    f"{method} {path}: no answer in {self._timeout_s + wait_s:g} s from the admin doors {self._named()}; the last "
                    f"trouble was {why}. Are these the nodes' admin doors (their admin.listener; Spark's option adminUrl), and do they run?"
                )
            time.sleep(PAUSE_S)

    def _named(self) -> str:
        return ", ".join(f"http://{host}:{port}" for host, port in self._nodes)


class _Watched(socket.socket):
    """Its `settimeout` is of what comes next alone: who gets a byte now and then would wait for ever."""

    deadline = 0.0

    def recv_into(self, *place: Any, **named: Any) -> int:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the whole answer has not come in time")
        self.settimeout(left_s)
        return super().recv_into(*place, **named)


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        """All of an answer has as much time as is said for a connection."""
        deadline = time.monotonic() + (self.timeout or 0.0)
        super().connect()
        self.sock.settimeout(None)  # a new object takes over what the system knows
        watched = _Watched(fileno=self.sock.detach())
        watched.settimeout(self.timeout)
        watched.deadline = deadline
        self.sock = watched


def _ask(
    host: str,
    port: int,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    timeout_s: float,
) -> tuple[int, dict[str, Any]]:
    connection = _Connection(host, port, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read(ANSWER_BYTES_MAX))
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError(f"http://{host}:{port} is no admin door")  # noqa: TRY004 - of its answer
    return response.status, answer


def _refusal(status: int, fields: dict[str, Any]) -> AdminRefused | None:
    if status < 400:
        return None
    error, message = str(fields.get("error", status)), str(fields.get("message", ""))
    return AdminRefused(status, error, message, str(fields.get("next_step", "")))


def _sentence(message: str) -> str:
    """Something follows it."""
    return message if not message or message.endswith((".", "!", "?", ":")) else f"{message}."


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(text.strip() if "://" in text else f"http://{text.strip()}")
    if parts.scheme != "http" or not parts.hostname or parts.port is None:
        raise ValueError(f"{text!r} is no admin door: say http://HOST:PORT")
    return parts.hostname, parts.port


def in_path(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
