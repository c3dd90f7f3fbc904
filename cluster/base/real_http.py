"""The real HTTP door: aiohttp reads requests off sockets that `real_net.py` has accepted.

INVARIANT  whatever comes in, a request is answered, refused or hung up on in bounded time and memory.
PREVENTS   a client that sends a header a minute holding a task and a megabyte of the node for ever.
PROVED BY  tests/cluster/base/test_real_http.py::test_a_body_that_does_not_come_is_hung_up_on
           tests/cluster/base/test_real_http.py::test_a_client_that_reads_no_answer_is_hung_up_on
           tests/cluster/base/test_real_http_strangers.py::test_all_bodies_together_are_bounded

What aiohttp would do of itself for strangers is done here in the door's own way: it unpacks nothing, logs no tracebacks,
and answers what is not understood in the words of everything else.
"""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from .complaints import Complaints
from .log import reason_of
from .ports import HttpReply, HttpRequest, Log, OnHttp, OnHttpHead, Tasks
from .real_tls import address_of

# A request must be whole so long after its connection began, or after its headers came.
REQUEST_S: Final = 10.0
IDLE_S: Final = 30.0  # between two requests of one connection
# So long one answer may take to be read, and so long what is left of them when the connection ends.
REPLY_S: Final = 30.0
CONNECTIONS_MAX: Final = 4_000
# Of one address. Who holds all that it may leaves places for those who ask whether the node lives.
PER_ADDRESS_MAX: Final = 3_000
LINE_BYTES_MAX: Final = 8_190
R = TypeVar("R")
# After an answer to a request that was not read to its end: so long the rest is thrown away as it comes, unread. Who is
# hung up on at once may lose the answer on its way.
LINGER_S: Final = 1.0
# Of a connection, before its request has been taken up and while it is answered: a head, and what is sent ahead.
AHEAD_BYTES_MAX: Final = 64 << 10
# What aiohttp holds of a body before its reader takes it, and what the kernel does (twice what it is told).
READ_BYTES: Final = 16 << 10
KERNEL_BYTES: Final = 32 << 10
# Of all requests of a door that are read or served at a time.
BODIES_BYTES_MAX: Final = 64 << 20
CAUSE_CHARS_MAX: Final = 200


class _Protocol(web.RequestHandler):
    """aiohttp's, which also tells when its connection has ended."""

    def __init__(self, server: web.Server, complaints: Complaints, **limits: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **limits)
        self._complaints = complaints
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self._line: asyncio.Transport | None = None  # aiohttp forgets it when it closes it
        self._is_serving = False
        self._body: StreamReader | None = None
        self._ahead = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._line = cast("asyncio.Transport", transport)  # uvloop's is none of that class
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._line = None
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        """Aiohttp bounds the lines of a head and the requests ahead by their number: 128 of 8 KiB, and 32 of such.

        A body is bounded by who reads it: no more comes in until that has taken what there is.
        """
        super().data_received(data)
        if self._messages and not self._is_serving:
            return  # a head is whole, and taken up in a turn or two
        if self._body is not None and not self._body.is_eof():
            return
        self._ahead += len(data)
        if self._ahead > AHEAD_BYTES_MAX:
            self._hang_up()

    def take_up(self, request: web.BaseRequest) -> None:
        self.began.set()
        self._is_serving = True
        self._body = request.content
        if not self._messages:
            self._ahead = 0

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Whatever was not understood; or a bug of ours. aiohttp would log a traceback of each."""
        cause = _first_line(message or getattr(exc, "message", "") or repr(exc))
        self._complain(exc, cause)
        if request.writer.output_size > 0:
            raise ConnectionError("half an answer has been sent already")
        if exc is None or _is_theirs(exc):
            reply = _refused(
                400, f"this is no request: {cause}", "Speak HTTP/1.1 as it is written."
            )
        else:
            reply = _refused(500, "this node failed at the request", "See the node's log.")
        response = _response(reply)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **fields: Any) -> None:
        """What goes wrong after an answer: the rest of a body, for example."""
        error = fields.get("exc_info")
        if isinstance(error, BaseException):
            self._complain(error, _first_line(repr(error)))
        else:
            self._complain(None, _first_line(" ".join(map(str, args))))

    def _complain(self, error: BaseException | None, cause: str) -> None:
        """A bug of ours is said with its traceback, and no more often."""
        fields: dict[str, object] = {"remote": self.peername, "cause": cause}
        event = "http_request_refused"
        if error is not None and not _is_theirs(error):
            event, fields["traceback"] = "http_request_failed", reason_of(error)
        self._complaints.warn("http", event, **fields)

    async def finish_response(self, *answer: Any) -> tuple[web.StreamResponse, bool]:
        """Of itself aiohttp waits for ever until a client has read enough of what is sent."""
        late = asyncio.get_running_loop().call_later(REPLY_S, self._hang_up)
        try:
            return await super().finish_response(*answer)
        finally:
            late.cancel()
            self._is_serving = False

    async def start(self) -> None:
        """When it ends nothing more is answered. A closed transport waits for ever until what is left has been read."""
        try:
            await super().start()
        finally:
            if self._line is not None:
                asyncio.get_running_loop().call_later(REPLY_S, self._hang_up)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.abort()


class RealHttp:
    """One listener's server."""

    def __init__(
        self,
        tasks: Tasks,
        log: Log,
        serve: OnHttp,
        judge: OnHttpHead | None,
        body_bytes_max: int,
    ) -> None:
        self._tasks = tasks
        self._log = log
        self._serve = serve
        self._judge = judge
        self._bodies_bytes = 0
        self._body_bytes_max = body_bytes_max
        self._open: Counter[str] = Counter()  # by address
        self._complaints = Complaints(log, asyncio.get_running_loop().time)
        self._server = web.Server(self._answer, handler_cancellation=True)

    async def serve(self, accepted: socket.socket) -> None:
        """The task of one accepted connection."""
        address = address_of(accepted)[0]
        if self._open.total() >= CONNECTIONS_MAX or self._open[address] >= PER_ADDRESS_MAX:
            accepted.close()
            return
        loop = asyncio.get_running_loop()
        protocol = _Protocol(
            self._server,
            self._complaints,
            access_log=None,
            keepalive_timeout=IDLE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            lingering_time=LINGER_S,
            read_bufsize=READ_BYTES,
            auto_decompress=False,  # a megabyte of it may be a gigabyte
        )
        self._open[address] += 1
        try:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
            await loop.connect_accepted_socket(lambda: protocol, accepted)
            if not await self._has_begun(protocol):
                protocol.force_close()
            await protocol.ended.wait()
        except OSError as error:
            accepted.close()
            self._log.info("http_connection_failed", cause=str(error))
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
            protocol.force_close()

    async def _has_begun(self, protocol: _Protocol) -> bool:
        """Whether the first request's headers came in time; later ones have the keep-alive's."""
        waits = [asyncio.ensure_future(event.wait()) for event in (protocol.began, protocol.ended)]
        try:
            await asyncio.wait(waits, timeout=REQUEST_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return protocol.began.is_set() or protocol.ended.is_set()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol
        assert isinstance(protocol, _Protocol)
        protocol.take_up(request)
        head = _head_of(request)
        reply = None
        if self._judge is not None:
            reply = await self._run(self._judge, head)
        if reply is None and "Content-Encoding" in request.headers:
            reply = PACKED
        if reply is None and (request.content_length or 0) > self._body_bytes_max:
            reply = _too_large(self._body_bytes_max)
        if reply is None:
            reply = await self._with_body(request, head)
        if reply is None:
            protocol.force_close()
            return web.Response(status=408)
        return _response(reply)

    async def _with_body(self, request: web.BaseRequest, head: HttpRequest) -> HttpReply | None:
        """None when it did not come in time."""
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(REQUEST_S):
                    refusal = await self._read(request, body)
            except TimeoutError:
                return None
            return refusal or await self._run(self._serve, head._replace(body=bytes(body)))
        finally:
            self._bodies_bytes -= len(body)

    async def _read(self, request: web.BaseRequest, body: bytearray) -> HttpReply | None:
        """A refusal when it is too much; what is left of it then is thrown away, for LINGER_S."""
        while chunk := await request.content.readany():
            body += chunk
            self._bodies_bytes += len(chunk)
            if len(body) > self._body_bytes_max:
                return _too_large(self._body_bytes_max)
            if self._bodies_bytes > BODIES_BYTES_MAX:
                return TOO_MANY
        return None

    async def _run(
        self, work: Callable[[HttpRequest], Coroutine[Any, Any, R]], asked: HttpRequest
    ) -> R:
        """In a task of the node's: what raises there is no 500 but the end of the node."""
        reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            answer = await work(asked)
            if not reply.done():
                reply.set_result(answer)

        task = self._tasks.spawn(run(), name=f"http {asked.method} {asked.path[:80]}")
        try:
            return await reply
        finally:
            task.cancel()


def _head_of(request: web.BaseRequest) -> HttpRequest:
    address = request.protocol.peername
    return HttpRequest(
        request.method,
        request.rel_url.raw_path,
        dict(request.query),
        b"",
        host=request.headers.get("Host", ""),
        origin=request.headers.get("Origin", ""),
        accept=request.headers.get("Accept", ""),
        authorization=request.headers.get("Authorization", ""),
        remote=str(address[0]) if address else "",
    )


def _is_theirs(error: BaseException) -> bool:
    """Whether it is what they sent that raised it."""
    return isinstance(error, HttpProcessingError | web.RequestPayloadError)


def _first_line(text: str) -> str:
    """What could not be read is shown by aiohttp in lines of its own, all of it."""
    return text.partition("\n")[0].strip()[:CAUSE_CHARS_MAX]


def _response(reply: HttpReply) -> web.StreamResponse:
    return web.Response(
        status=reply.status, body=reply.body, headers={"Content-Type": reply.content_type}
    )


def _refused(
    status: int, message: str, next_step: str, *, error: str = "INVALID_REQUEST"
) -> HttpReply:
    said = {"error": error, "message": message, "next_step": next_step}
    return HttpReply(status, json.dumps(said).encode() + b"\n")


PACKED: Final = _refused(
    415, "the body has a Content-Encoding, and this door unpacks nothing", "Send it as it is."
)

TOO_MANY: Final = _refused(
    503,
    f"the bodies that this door reads and serves have {BODIES_BYTES_MAX >> 20} MiB together, all it has for them",
    "Ask again later, from fewer clients, or with less at a time.",
    error="THROTTLING_QUOTA_EXCEEDED",
)


def _too_large(limit: int) -> HttpReply:
    return _refused(413, f"the body is over {limit} bytes", "Send less at a time.")
