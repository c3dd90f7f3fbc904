"""The admin door: HTTP requests to operations, whatever comes in to an answer in JSON.

INVARIANT  every request is answered with a JSON object; an error says what is wrong and what to do next.
PREVENTS   a person in the middle of the night who is told "500".
PROVED BY  tests/node/test_admin_door.py::test_whatever_comes_in_is_answered_with_a_sentence

Numbers and health are told to whoever reaches the door. Everything else is for those who show the token, unless
only this machine's own users reach it. Nobody's body is read before that is known.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from fencepost.cluster.base.complaints import Complaints
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.exit_codes import EXIT_LATER, CannotRun
from fencepost.cluster.base.host_names import is_loopback
from fencepost.cluster.base.ports import Env, HttpReply, HttpRequest, Listener

from . import inputs
from .access import Access
from .answers import Answer, bad_input, refused
from .calls import AdminCalls
from .operations import OPERATIONS, Match, match
from .turns import TURNS_PER_S, Turns

E = ErrorCode
BODY_BYTES_MAX: Final = 1 << 20
PRETTY_MAX: Final = 8_192  # characters that are laid out for people
# Requests at a time; who comes later is told to come again. Checkers that wait leave room for people.
REQUESTS_MAX: Final = 2_000
POLLS_MAX: Final = 1_500
POLL: Final = "checks.poll"
# What is told to everybody, by its path.
Told = Mapping[str, Callable[[HttpRequest], Awaitable[HttpReply]]]


class AdminDoor:
    def __init__(
        self,
        env: Env,
        calls: AdminCalls,
        *,
        is_ready: Callable[[], bool],
        token: str = "",
        told: Told | None = None,
    ) -> None:
        self._env = env
        self._calls = calls
        self._is_ready = is_ready
        self._told = told or {}
        self.access = Access(token)
        self._complaints = Complaints(env.log, env.clock.steady)
        self._listener: Listener | None = None
        self._serving = 0
        self._turns = Turns(env.clock)

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Trouble, in a sentence, when that address can't be had."""
        self.access.is_local = is_loopback(host)
        try:
            self._listener = await self._env.net.listen_http(
                host, port, self.serve, body_bytes_max=BODY_BYTES_MAX, judge=self.judge
            )
        except OSError as refusal:
            raise CannotRun(
                f"can't listen on {host}:{port} (admin.listener): {refusal.strerror or refusal}. Stop "
                "what holds that address, or choose another with admin.listener.",
                EXIT_LATER,
            ) from refusal
        self._env.log.info("admin_open", address=self._listener.address)
        if not self.access.is_local and not self.access.has_token:
            self._env.log.warn(
                "admin_closed_to_all",
                address=self._listener.address,
                cause="other machines reach it and admin.token is not set: it serves only /metrics and /health",
            )
        return self._listener.address

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it is open."""
        return None if self._listener is None else self._listener.address

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    async def handle(self, request: HttpRequest) -> HttpReply:
        """A request that is here with its body."""
        return await self.judge(request) or await self.serve(request)

    async def judge(self, request: HttpRequest) -> HttpReply | None:
        """What its body would not change; None: read it, and `serve`."""
        told = self._told.get(request.path) if request.method == "GET" else None
        refusal = None if told is not None else self._refusal(request)
        if told is None and refusal is None:
            return None
        if not self.access.is_shown(request.authorization) and not await self._turns.take(
            request.remote
        ):
            why = f"more than {TURNS_PER_S} answers a second are asked for at {request.remote}"
            return _reply(refused(E.throttling_quota_exceeded, f"{why}, without a token"))
        if told is not None:
            return await told(request)
        return None if refusal is None else _reply(refusal)

    async def serve(self, request: HttpRequest) -> HttpReply:
        """One that `judge` has nothing against."""
        found = match(request.method, request.path)
        assert isinstance(found, Match), "nothing is served that was not judged"
        # Meanwhile its body came: others may have come, too, and the node have been told to stop.
        refusal = self._busy(found)
        if refusal is not None:
            return _reply(refusal)
        self._serving += 1
        try:
            return _reply(await self._run(request, found))
        except inputs.BadInput as bad:
            return _reply(bad_input(str(bad)))
        finally:
            self._serving -= 1

    def _refusal(self, request: HttpRequest) -> Answer | None:
        if request.origin and request.origin.partition("://")[2] != request.host:
            # A browser on this machine that looks at somebody's page: it could reach what only this machine may.
            why = f"a page of {request.origin[:200]} must not ask in its reader's name"
            return refused(E.cluster_authorization_failed, why)
        if request.path in self._told:
            return _nowhere(request, ["GET"])
        refusal = self.access.refusal(request.authorization, request.host)
        if refusal is not None:
            self._complaints.warn(
                "admin",
                "admin_request_refused",
                remote=request.remote,
                asked=f"{request.method[:20]} {request.path[:200]}",
                cause=refusal.fields["message"],
            )
            return refusal
        found = match(request.method, request.path)
        if isinstance(found, list):
            return _nowhere(request, found)
        return self._busy(found)

    def _busy(self, found: Match) -> Answer | None:
        if self._serving >= (POLLS_MAX if found.operation == POLL else REQUESTS_MAX):
            why = f"{self._serving} requests wait at this node already"
            return refused(E.throttling_quota_exceeded, why)
        if not self._is_ready():
            why = "this node has not come up yet, or is about to stop"
            return refused(E.coordinator_not_available, why)
        return None

    async def _run(self, request: HttpRequest, found: Match) -> Answer:
        fields = {**request.query, **inputs.read_body(request.body)}
        for name, value in found.fields.items():
            if name in fields:
                raise inputs.BadInput(f"{name} stands in the path and must not be said again")
            fields[name] = unquote(value)
        args = OPERATIONS[found.operation].read(fields)
        return await self._calls.ask(found.operation, args)


def _reply(answer: Answer) -> HttpReply:
    return HttpReply(answer.status, _written(answer.fields))


def _nowhere(request: HttpRequest, allowed: list[str]) -> Answer:
    if allowed:
        why = f"{request.path[:200]} knows {', '.join(allowed)}, not {request.method[:20]}"
        answer = refused(E.invalid_request, why)
        return Answer(405, answer.fields)
    answer = refused(E.invalid_request, f"there is no {request.path[:200]} here")
    return Answer(404, answer.fields)


def _written(fields: Mapping[str, Any]) -> bytes:
    """For people line by line; a thousand members that way would take 90 ms, and nobody reads them."""
    text = json.dumps(fields, ensure_ascii=False, default=repr, skipkeys=True)
    if len(text) <= PRETTY_MAX:
        text = json.dumps(fields, ensure_ascii=False, indent=1, default=repr, skipkeys=True)
    # What a name has that is no Unicode (a lone surrogate) can't be written otherwise.
    return f"{text}\n".encode(errors="backslashreplace")
