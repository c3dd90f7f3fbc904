"""Requests and responses of the client door: frames to messages and back.

INVARIANT  whatever a frame holds, `decode_request` returns a Request or raises RequestRefused, and a response
           starts with the header version that its request's version asks for.
PREVENTS   a stranger's bytes raising through a connection's task; a client out of step after one reply.
PROVED BY  tests/cluster/wire/test_wire_api.py::test_a_request_with_mutated_bytes_is_decoded_or_refused

A frame here is what stands behind its four bytes of length. What the `encode_…` functions give has the length in
front: it goes to `Connection.write` as it is.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Any, Final

from ..base.ports import Buffer, Chunk
from .reader import MALFORMED, Budget, Malformed, Reader, read_text, read_uvarint, struct_reader
from .schema import EntityClass, is_flexible, load_class
from .versions import ADVERTISED_MIN, SUPPORTED, ApiKey
from .writer import Collector, RecordsValue, struct_writer

__all__ = ["ADVERTISED_MIN", "SUPPORTED", "ApiKey", "RecordsValue", "Request", "RequestRefused"]
__all__ += ["decode_request", "decode_response", "encode_request", "encode_response"]
__all__ += ["request_class", "response_class"]

_REQUEST_HEADER: Final = Struct(">hhih")
_INT32: Final = Struct(">i")
# Of a stranger's message, which is read in one turn of the loop: an element takes 1 to 4 us.
REQUEST_ELEMENTS_MAX: Final = 100_000
_KEYS: Final = {int(key): key for key in ApiKey}


class RequestRefused(Exception):
    """A frame that is no request we take: the connection is closed, as Kafka does (it has no reply for this)."""

    def __init__(
        self, reason: str, api_key: int | None = None, api_version: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.api_key = api_key
        self.api_version = api_version


class Request:
    """One request. `unsupported` marks an ApiVersions of a version we do not have: it is answered as version 0
    with UNSUPPORTED_VERSION and what we have (KIP-511), so `api_version` is 0 and `body` is empty.
    """

    __slots__ = ("api_key", "api_version", "body", "client_id", "correlation_id", "unsupported")

    def __init__(
        self,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
        *,
        unsupported: bool = False,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.unsupported = unsupported

    def __repr__(self) -> str:
        return f"<{self.api_key.name} v{self.api_version} #{self.correlation_id} {self.client_id}>"


@cache
def request_class(key: ApiKey, version: int) -> EntityClass:
    return load_class(key.name, version, "request")


@cache
def response_class(key: ApiKey, version: int) -> EntityClass:
    return load_class(key.name, version, "response")


@cache
def _request_plan(number: int, version: int) -> tuple[ApiKey, Reader, bool]:
    """What is refused here is not cached, so a stranger can't fill the cache."""
    key = _KEYS.get(number)
    if key is None or key not in SUPPORTED:
        raise RequestRefused(f"no API has the key {number}", number, version)
    low, high = SUPPORTED[key]
    if not low <= version <= high:
        raise RequestRefused(
            f"{key.name} version {version} is not between {low} and {high}", number, version
        )
    entity = request_class(key, version)
    return key, struct_reader(entity), is_flexible(entity)


@cache
def _response_header_is_flexible(key: ApiKey, version: int) -> bool:
    """An ApiVersions response always has the oldest header: its reader may not know the version yet (KIP-511)."""
    return key != ApiKey.api_versions and is_flexible(response_class(key, version))


def decode_request(frame: Buffer) -> Request:
    """The request in `frame`; record bytes in it stay views of `frame`. RequestRefused for anything else.

    Bytes behind the message are ignored, as Kafka ignores them.
    """
    buffer = memoryview(frame)
    if len(buffer) < _REQUEST_HEADER.size:
        raise RequestRefused(f"{len(buffer)} bytes are too few for a request header")
    number, version, correlation_id, client_id_length = _REQUEST_HEADER.unpack_from(buffer)
    low, high = SUPPORTED[ApiKey.api_versions]
    if number == ApiKey.api_versions and not low <= version <= high:
        client_id, _ = _read_client_id(buffer, client_id_length)
        body = request_class(ApiKey.api_versions, 0)()
        return Request(ApiKey.api_versions, 0, correlation_id, client_id, body, unsupported=True)
    key, read, flexible = _request_plan(number, version)
    client_id, position = _read_client_id(buffer, client_id_length)
    budget = Budget(REQUEST_ELEMENTS_MAX)
    try:
        if flexible:
            position = _skip_tags(buffer, position, budget)
        body, _ = read(buffer, position, budget)
    except MALFORMED as error:
        reason = f"not a {key.name} request of version {version}: {error}"
        raise RequestRefused(reason, number, version) from None
    return Request(key, version, correlation_id, client_id, body)


def _read_client_id(buffer: memoryview, length: int) -> tuple[str | None, int]:
    """In the old string format in every header version, so that a broker can always read it."""
    start = _REQUEST_HEADER.size
    if length < 0:
        return None, start
    end = start + length
    if end > len(buffer):
        raise RequestRefused(f"the client id claims {length} bytes, the frame has {len(buffer)}")
    try:
        return read_text("the client id", buffer[start:end]), end
    except Malformed as error:
        raise RequestRefused(str(error)) from None


def _skip_tags(buffer: memoryview, position: int, budget: Budget) -> int:
    count, position = read_uvarint(buffer, position)
    if count:
        budget.take("the header", count, len(buffer) - position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise ValueError("the header's tagged fields run over the end")
    return position


def encode_response(api_key: ApiKey, version: int, correlation_id: int, body: Any) -> list[Chunk]:
    """The response with its length in front, for `Connection.write`. `body` is of that version's class."""
    out = Collector()
    header = _INT32.pack(correlation_id)
    out.small.append(header + b"\x00" if _response_header_is_flexible(api_key, version) else header)
    struct_writer(body.__class__)(out, body)
    return _framed(out)


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Any
) -> list[Chunk]:
    out = Collector()
    name = None if client_id is None else client_id.encode()
    length = -1 if name is None else len(name)
    out.small.append(_REQUEST_HEADER.pack(api_key, version, correlation_id, length))
    out.small.append(name or b"")
    if is_flexible(body.__class__):
        out.small.append(b"\x00")
    struct_writer(body.__class__)(out, body)
    return _framed(out)


def _framed(out: Collector) -> list[Chunk]:
    out.join()
    chunks: Sequence[Chunk] = out.chunks
    length = _INT32.pack(out.size)
    first = chunks[0]
    assert isinstance(first, bytes), "a message starts with its header"
    return [length + first, *chunks[1:]]


def decode_response(api_key: ApiKey, version: int, frame: Buffer) -> tuple[int, Any]:
    """Correlation id and body. RequestRefused when the bytes are not that response."""
    buffer = memoryview(frame)
    budget = Budget()
    try:
        (correlation_id,) = _INT32.unpack_from(buffer)
        position = 4
        if _response_header_is_flexible(api_key, version):
            position = _skip_tags(buffer, position, budget)
        body, _ = struct_reader(response_class(api_key, version))(buffer, position, budget)
    except MALFORMED as error:
        raise RequestRefused(
            f"not a {api_key.name} response of version {version}: {error}", api_key, version
        ) from None
    return correlation_id, body
