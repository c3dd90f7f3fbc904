"""Whose request this code runs for: the id that stands in log lines and travels to other nodes.

INVARIANT  a task that outlives a request carries none; a request's id goes wherever its own task, or a peer's
           request that it waits for, goes.
PREVENTS   lines of a flusher or a replicator that claim to belong to whichever client happened to start them.
PROVED BY  tests/cluster/base/test_request_scope.py::test_a_long_lived_task_does_not_inherit_the_request_that_started_it

A connection has one scope, set once for its task and told the number of each request: two attributes a request, and
no text is made unless a line is written or a peer is asked.
"""

from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import Final

# As sent by a peer: more is cut off. Requests that travel together have their ids joined by commas.
ID_CHARS_MAX: Final = 200
JOINED_MAX: Final = 8


class RequestScope:
    """`prefix` is `NODE-CONNECTION`; with the correlation id behind it, it names one request of a cluster's life."""

    __slots__ = ("_peers", "correlation_id", "is_told", "prefix", "trace")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.correlation_id = -1
        self.is_told = False  # whether every step of it is to be logged (`request.log`)
        self.trace = ""  # W3C's traceparent of the span that it is part of, or empty
        self._peers = (-1, 0.0)  # of which request, and how long it has waited for other nodes

    @property
    def request_id(self) -> str:
        return f"{self.prefix}-{self.correlation_id}" if self.correlation_id != -1 else self.prefix

    def waited_for_peer(self, seconds: float) -> None:
        of, before = self._peers
        same = of == self.correlation_id
        self._peers = (self.correlation_id, before + seconds if same else seconds)

    @property
    def peers_s(self) -> float:
        """How long this request has waited for other nodes; what was asked of them at one time counts twice."""
        of, seconds = self._peers
        return seconds if of == self.correlation_id else 0.0

    def copy(self) -> "RequestScope":
        """For what goes on when the connection is at its next request."""
        return scope_of(self.request_id, is_told=self.is_told, trace=self.trace)


def scope_of(request_id: str, *, is_told: bool = False, trace: str = "") -> RequestScope:
    """The scope of one request, known by its id."""
    scope = RequestScope(request_id)
    scope.is_told, scope.trace = is_told, trace
    return scope


_SCOPE: Final[ContextVar[RequestScope | None]] = ContextVar("fencepost_request", default=None)


def current_scope() -> RequestScope | None:
    return _SCOPE.get()


def kept_scope() -> RequestScope | None:
    """For what goes on when whoever runs now is at another request, or gone."""
    scope = _SCOPE.get()
    return None if scope is None else scope.copy()


def enter_scope(scope: RequestScope | None) -> Token[RequestScope | None]:
    """From here on this task, and what it calls, runs for that request."""
    return _SCOPE.set(scope)


def leave_scope(token: Token[RequestScope | None]) -> None:
    _SCOPE.reset(token)


def current_request_id() -> str | None:
    scope = _SCOPE.get()
    return None if scope is None else scope.request_id


def joined(of: Iterable[RequestScope | None]) -> RequestScope | None:
    """One scope for several requests that are sent together."""
    scopes = [each for each in of if each is not None]
    if not scopes:
        return None
    if len(scopes) == 1:
        return scopes[0]
    named = list(dict.fromkeys(scope.request_id for scope in scopes))[:JOINED_MAX]
    first_traced = next((scope.trace for scope in scopes if scope.trace), "")
    return scope_of(
        ",".join(named), is_told=any(scope.is_told for scope in scopes), trace=first_traced
    )


# --- between nodes ------------------------------------------------------------------------------

HEADER: Final = "request"  # of a peer's request: [id, whether it is told, traceparent]


def as_header(scope: RequestScope) -> list[str | bool]:
    return [scope.request_id, scope.is_told, scope.trace]


def from_header(value: object) -> RequestScope | None:
    """What a peer sent; None for what is no scope: a line without an id is better than a connection that is cut."""
    match value:
        case [str(request_id), bool(is_told), str(trace)]:
            clean = "".join(each for each in request_id[:ID_CHARS_MAX] if each.isprintable())
            return scope_of(clean, is_told=is_told, trace=trace[:ID_CHARS_MAX])
        case _:
            return None
