"""A small client of the Kafka door over `Env`: for the command line, tests and simulated workloads.

INVARIANT  a request has exactly one outcome: its own response, or Trouble that says whether it may have happened.
PREVENTS   the answer to one request being taken for another's after a timeout.
PROVED BY  tests/cluster/wire/test_wire_client.py::test_a_late_answer_is_not_taken_for_the_next_requests

It connects when it is first asked, and anew when it is asked after the connection was lost. Requests may be in
flight side by side; the broker answers them in order. Nothing is ever sent twice: retrying is the caller's choice.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from ..base.errors import ConnectionLost, ErrorCode, FrameRefused, Outcome, Trouble
from ..base.ports import Connection, Env
from .api import (
    SUPPORTED,
    ApiKey,
    RequestRefused,
    decode_response,
    encode_request,
)
from .render import render_request

REQUEST_TIMEOUT_S: Final = 30.0  # Kafka's request.timeout.ms
CONNECT_TIMEOUT_S: Final = 10.0
IN_FLIGHT_MAX: Final = 1000
FRAME_SIZE_MAX: Final = 256 << 20
_VERSIONS_ASKED: Final = 3


class _Asked(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int
    answer: asyncio.Future[Any]


class _Link:
    """One connection and what was asked on it. Once `broken`, all that was asked on it is told so."""

    __slots__ = ("asked", "broken", "connection", "versions")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.asked: deque[_Asked] = deque()
        self.broken: Trouble | None = None
        self.versions: dict[int, tuple[int, int]] = {}


class WireClient:
    """`await client.request(ApiKey.metadata, topics=None)` gives the response body of the version agreed on."""

    def __init__(
        self,
        env: Env,
        host: str,
        port: int,
        *,
        client_id: str = "fencepost",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.address = (host, port)
        self._env = env
        self._client_id = client_id
        self._tls = tls
        self._timeout_s = timeout_s
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()
        self._next_id = 0
        self._closed = False

    async def request(
        self,
        api_key: ApiKey,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Any:
        """Ask and wait. None at once for a Produce with acks=0, which has no response."""
        deadline = self._deadline(timeout_s)
        link = await self._connected(deadline)
        if version is None:
            version = self._best(link, api_key)
        body = render_request(api_key, version, fields)
        async with _until(deadline, f"{api_key.name} at {self._name}", Outcome.UNKNOWN):
            return await self._ask(link, api_key, version, body)

    async def version_of(self, api_key: ApiKey) -> int:
        """The highest version that both ends have. Trouble (REFUSED) when there is none."""
        return self._best(await self._connected(self._deadline(None)), api_key)

    async def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._break(self._link, ConnectionLost(f"the connection to {self._name} was closed"))

    @property
    def _name(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    def _best(self, link: _Link, api_key: ApiKey) -> int:
        ours, theirs = SUPPORTED[api_key], link.versions.get(api_key)
        if theirs is None or max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
            raise Trouble(
                f"{self._name} has {api_key.name} {theirs}, here are {ours}", Outcome.REFUSED
            )
        return min(ours[1], theirs[1])

    def _deadline(self, timeout_s: float | None) -> float:
        wait = self._timeout_s if timeout_s is None else timeout_s
        return asyncio.get_running_loop().time() + wait

    async def _connected(self, deadline: float) -> _Link:
        """Trouble here is always REFUSED: nothing of the request has been sent."""
        async with (
            _until(deadline, f"to connect to {self._name}", Outcome.REFUSED),
            self._connecting,
        ):
            if self._closed:
                raise Trouble(f"the client of {self._name} is closed", Outcome.REFUSED)
            if self._link is None or self._link.broken is not None:
                self._link = await self._connect()
            return self._link

    async def _connect(self) -> _Link:
        host, port = self.address
        connection = await self._env.net.connect(
            host, port, tls=self._tls, timeout_s=CONNECT_TIMEOUT_S
        )
        link = _Link(connection)
        self._env.tasks.spawn(self._receive(link), name=f"answers from {self._name}")
        try:
            link.versions = await self._agree(link)
        except Trouble as trouble:
            raise Trouble(str(trouble), Outcome.REFUSED) from trouble
        finally:
            if not link.versions:
                self._break(link, ConnectionLost(f"{self._name} agreed on no versions"))
        return link

    async def _agree(self, link: _Link) -> dict[int, tuple[int, int]]:
        """Ask for versions; a broker too old for the question answers as version 0 (KIP-511)."""
        asked = {"client_software_name": "fencepost", "client_software_version": "0"}
        for version in (_VERSIONS_ASKED, 0):
            body = render_request(ApiKey.api_versions, version, asked)
            reply = await self._ask(link, ApiKey.api_versions, version, body)
            if reply.error_code is not ErrorCode.unsupported_version:
                return {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
        raise Trouble(f"{self._name} does not say what it supports", Outcome.REFUSED)

    async def _ask(self, link: _Link, api_key: ApiKey, version: int, body: Any) -> Any:
        if link.broken is not None:
            raise Trouble(str(link.broken), Outcome.REFUSED)
        if len(link.asked) >= IN_FLIGHT_MAX:
            raise Trouble(
                f"{IN_FLIGHT_MAX} requests wait for {self._name} already", Outcome.REFUSED
            )
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        frame = encode_request(api_key, version, self._next_id, self._client_id, body)
        if api_key == ApiKey.produce and body.acks == 0:
            link.connection.write(frame)
            return None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        link.asked.append(_Asked(self._next_id, api_key, version, answer))
        link.connection.write(frame)
        return await answer

    async def _receive(self, link: _Link) -> None:
        """Hand answers out in the order of the questions; whatever goes wrong ends the connection."""
        try:
            while link.broken is None:
                frame = await link.connection.read_frame(FRAME_SIZE_MAX)
                if frame is None:
                    raise ConnectionLost(f"{self._name} closed the connection")
                self._take(link, frame)
        except Trouble as trouble:
            self._break(link, ConnectionLost(str(trouble)))
        except RequestRefused as refused:
            self._break(link, ConnectionLost(f"{self._name} answered {refused.reason}"))
        finally:  # also when the task is cancelled
            self._break(link, ConnectionLost(f"the connection to {self._name} has ended"))

    def _take(self, link: _Link, frame: memoryview) -> None:
        if not link.asked:
            raise FrameRefused("an answer to nothing")
        asked = link.asked[0]
        version = asked.version
        if asked.api_key == ApiKey.api_versions and _is_unsupported(frame):
            version = 0  # whatever was asked
        correlation_id, body = decode_response(asked.api_key, version, frame)
        if correlation_id != asked.correlation_id:
            raise FrameRefused(f"an answer to {correlation_id}, not to {asked.correlation_id}")
        link.asked.popleft()
        if not asked.answer.done():  # its asker may have given up
            asked.answer.set_result(body)

    def _break(self, link: _Link, trouble: ConnectionLost) -> None:
        if link.broken is not None:
            return
        link.broken = trouble
        link.connection.close()
        while link.asked:
            answer = link.asked.popleft().answer
            if not answer.done():
                answer.set_exception(ConnectionLost(str(trouble)))


@contextlib.asynccontextmanager
async def _until(deadline: float, what: str, outcome: Outcome) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise Trouble(f"{what} took too long", outcome) from None


def _is_unsupported(frame: memoryview) -> bool:
    return len(frame) >= 6 and int.from_bytes(frame[4:6]) == ErrorCode.unsupported_version
