"""From a frame to a reply: decode, look the API up in the registry, call its handler, encode.

The registry is plain data (`node/handlers/__init__.py`) and handed in; ApiVersions is answered from the same rows,
so a version is never advertised that is not dispatched.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fencepost.cluster.base.ports import Chunk, Clock
from fencepost.cluster.base.request_scope import RequestScope
from fencepost.cluster.wire.api import (
    ApiKey,
    Request,
    RequestRefused,
    decode_request,
    encode_response,
)
from fencepost.cluster.wire.render import render

from .metrics import PARTS, ApiCounters
from .overtaking import RefusedBatches, Room

Services = TypeVar("Services")
Fields = dict[str, Any]
Encoded = list[Chunk]


class UnspeakableReply(Exception):
    """A handler's reply that its API's version can't say: a fault of ours, answered by a closed connection."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The connection that a request came by."""

    host: str
    port: int
    listener: str
    connection: int = 0  # its number on this node: a later connection has a higher one
    refused: RefusedBatches = field(default_factory=lambda: RefusedBatches(Room()), compare=False)
    software: list[str] = field(default_factory=list, compare=False)  # what it said of itself


@dataclass(slots=True)
class Context(Generic[Services]):
    """What a handler knows of the request besides its body."""

    services: Services
    api_version: int
    client_id: str
    origin: Origin
    prepared: Any = None  # what `Api.prepare` has left for `Api.begin`
    unsupported: bool = False  # an ApiVersions of a version that we don't have: answered in v0

    @property
    def client_host(self) -> str:
        return self.origin.host

    @property
    def connection(self) -> int:
        return self.origin.connection


Handler = Callable[[Context[Any], Any], Awaitable[Fields | None]]
# The hot path, without a task: `begin` does at once what must be in order, and says the reply then or later, once.
# What it returns, if anything, takes the rest back when the client has gone.
Answer = Callable[[Fields | None], None]
Cancel = Callable[[], None]
Begin = Callable[[Context[Any], Any, Answer], Cancel | None]
# What must be done before, if anything: the connection's next request waits for it, nobody else does.
Prepare = Callable[[Context[Any], Any], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One row of the registry."""

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    advertised_min: int
    handle: Handler | None = None
    begin: Begin | None = None  # one of the two
    prepare: Prepare | None = None  # of one that begins
    parks: bool = False  # may wait long for something that is not its own work


@dataclass(slots=True)
class Call:
    """One request on its way to a reply."""

    api: Api
    context: Context[Any]
    request: Request
    dispatcher: "Dispatcher"
    counters: ApiCounters
    arrived_s: float = 0.0
    is_told: bool = False  # whether every step of it is to be logged
    span: Any = None

    async def run(self) -> Encoded | None:
        """The encoded reply, or None where the protocol has none (a produce request with acks=0)."""
        assert self.api.handle is not None
        started = self.dispatcher.clock.steady()
        fields = await self.api.handle(self.context, self.request.body)
        self._count(started, fields)
        return None if fields is None else self._encode(fields)

    def prepare(self) -> Awaitable[None] | None:
        return (
            None if self.api.prepare is None else self.api.prepare(self.context, self.request.body)
        )

    def begin(self, answered: Callable[[Encoded | UnspeakableReply | None], None]) -> Cancel | None:
        """The same for an API that begins: the reply, or why there is none to be said, by `answered`."""
        assert self.api.begin is not None
        started = self.dispatcher.clock.steady()

        def answer(fields: Fields | None) -> None:
            self._count(started, fields)
            try:
                reply = None if fields is None else self._encode(fields)
            except UnspeakableReply as unspeakable:
                answered(unspeakable)
            else:
                answered(reply)

        return self.api.begin(self.context, self.request.body, answer)

    def _count(self, started: float, fields: Fields | None) -> None:
        took_s = self.dispatcher.clock.steady() - started
        self.counters.answered(took_s, fields)
        tracing = self.dispatcher.tracing
        if tracing is not None and took_s >= tracing.tell_from_s:
            tracing.answered(self, started, took_s, fields)

    def _encode(self, fields: Fields) -> Encoded:
        api, request = self.api, self.request
        try:
            body = render(api.key, request.api_version, fields)
            reply = encode_response(api.key, request.api_version, request.correlation_id, body)
        except AssertionError as broken:
            # The request is done and its effects are whole; only its words are wrong. Ending the process for
            # that would let whoever finds such a request end every node.
            raise UnspeakableReply(f"{api.name} v{request.api_version}: {broken}") from broken
        self.counters.response_bytes += sum(map(len, reply))
        return reply


class Tracing(Protocol):
    """Whoever follows requests (`node/tracing`). It is told of those that took so long, and, if it `begins`, of all."""

    tell_from_s: float
    begins: bool

    def scope_of(self, connection: int) -> RequestScope: ...

    def began(self, scope: RequestScope, call: Call) -> None: ...

    def answered(
        self, call: Call, started_s: float, took_s: float, fields: Fields | None
    ) -> None: ...


class Dispatcher:
    """Turns frames into calls. One for all connections of a listener."""

    def __init__(
        self, clock: Clock, apis: Mapping[ApiKey, Api], services: Any, *, request_bytes_max: int
    ) -> None:
        self.clock = clock
        self.apis = apis
        self.services = services
        self.request_bytes_max = request_bytes_max
        self.counters = {key: ApiCounters(PARTS.get(key)) for key in apis}
        self.connections = itertools.count(1)
        self.room = Room()
        self.tracing: Tracing | None = None

    def open(self, frame: memoryview, origin: Origin, arrived_s: float = 0.0) -> Call:
        """Raises RequestRefused where Kafka closes the connection: no such API, no such version, garbage."""
        request = decode_request(frame)
        api = self.apis.get(request.api_key)
        if api is None:
            raise RequestRefused(f"api key {request.api_key} is not served on this door")
        if not api.min_version <= request.api_version <= api.max_version:
            raise RequestRefused(
                f"{api.name} v{request.api_version} is not served; "
                f"v{api.min_version} to v{api.max_version} are"
            )
        counters = self.counters[request.api_key]  # once: to look up by an enum's member is slow
        counters.request_bytes += len(frame)
        context = Context(
            self.services,
            request.api_version,
            request.client_id or "",
            origin,
            unsupported=request.unsupported,
        )
        return Call(api, context, request, self, counters, arrived_s)
