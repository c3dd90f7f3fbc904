"""What nodes say to each other: frames of a msgpack header and bytes that nobody between the ends looks at.

INVARIANT  whatever bytes come in, they are a frame, an envelope of a known type, or FrameRefused.
PREVENTS   a node ended by an exception of a parser, because a peer is older, newer, broken or no peer at all.
PROVED BY  tests/cluster/wire/test_peer_frames.py::test_any_bytes_are_a_frame_or_refused

    4 bytes length ‖ 2 bytes length of the header ‖ header (a msgpack map) ‖ payload

A frame whose header has no bytes is a ping: it says that the process at the other end still runs, and nothing else.
On the connection that carries messages and requests the header is an envelope; on a stream it is its user's own.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgpack

from ..base.errors import FrameRefused, Outcome, Trouble
from ..base.ports import Chunk

PAYLOAD_MAX: Final = 64 * 1024 * 1024
HEADER_MAX: Final = 0xFFFF
SENTENCE_MAX: Final = 4096  # characters of what went wrong: it is in a header
FRAME_MAX: Final = PAYLOAD_MAX + HEADER_MAX + 1

_PREFIX: Final = Struct(">iH")
_HEADER_LENGTH: Final = Struct(">H")
PING: Final = _PREFIX.pack(_HEADER_LENGTH.size, 0)

# Types of envelopes.
MESSAGE: Final = "message"
ASK: Final = "ask"
ANSWER: Final = "answer"
TROUBLE: Final = "trouble"


def pack_frame(header: Mapping[str, Any], chunks: Sequence[Chunk] = ()) -> list[Chunk]:
    """A frame with its length in front. The chunks are handed on as they are, never copied. Trouble: too large."""
    packed = msgpack.packb(header)
    assert len(packed) <= HEADER_MAX, f"a header of {len(packed)} bytes; what is large is payload"
    size = _HEADER_LENGTH.size + len(packed) + sum(map(len, chunks))
    if size > FRAME_MAX:  # what is in it may be a client's
        raise Trouble(f"A frame of {size} bytes is too large for a peer: {FRAME_MAX} are allowed.")
    return [_PREFIX.pack(size, len(packed)) + packed, *(chunk for chunk in chunks if len(chunk))]


def unpack_frame(frame: memoryview) -> tuple[dict[str, Any] | None, memoryview]:
    """Header and payload of a frame (without its length); None for the header of a ping."""
    if len(frame) < _HEADER_LENGTH.size:
        raise FrameRefused(f"a peer's frame of {len(frame)} bytes has no header")
    stop: int = _HEADER_LENGTH.size + _HEADER_LENGTH.unpack_from(frame)[0]
    if stop == _HEADER_LENGTH.size and len(frame) == stop:
        return None, frame[stop:]
    if stop > len(frame):
        raise FrameRefused(f"a peer's frame of {len(frame)} bytes ends inside its header")
    try:
        header = msgpack.unpackb(frame[_HEADER_LENGTH.size : stop], strict_map_key=False)
    except (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
        raise FrameRefused(f"a peer's header is not msgpack: {error}") from error
    if not isinstance(header, dict):
        raise FrameRefused(f"a peer's header is a {type(header).__name__}, not a map")
    return header, frame[stop:]


class Envelope(NamedTuple):
    """What the header says around its user's own: `number` joins an answer to what was asked."""

    type: str
    kind: str
    number: int
    header: dict[str, Any]
    outcome: Outcome = Outcome.UNKNOWN
    sentence: str = ""


def message(kind: str, header: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": MESSAGE, "kind": kind, "header": header}


def ask(number: int, kind: str, header: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": ASK, "id": number, "kind": kind, "header": header}


def answer(number: int, header: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": ANSWER, "id": number, "header": header}


def trouble(number: int, sentence: str, outcome: Outcome) -> dict[str, Any]:
    said = sentence[:SENTENCE_MAX]
    return {"type": TROUBLE, "id": number, "sentence": said, "outcome": outcome.value}


def read_envelope(header: dict[str, Any]) -> Envelope:
    """FrameRefused for every map that is none."""
    match header:
        case {"type": "message", "kind": str(kind), "header": dict(inner)}:
            return Envelope(MESSAGE, kind, 0, inner)
        case {"type": "ask", "id": int(number), "kind": str(kind), "header": dict(inner)}:
            return Envelope(ASK, kind, number, inner)
        case {"type": "answer", "id": int(number), "header": dict(inner)}:
            return Envelope(ANSWER, "", number, inner)
        case {
            "type": "trouble",
            "id": int(number),
            "sentence": str(sentence),
            "outcome": ("refused" | "unknown") as outcome,
        }:
            return Envelope(TROUBLE, "", number, {}, Outcome(outcome), sentence)
    shown = repr(header)
    raise FrameRefused(f"a peer's header is no envelope: {shown[:200]}")
