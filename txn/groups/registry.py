"""Which record a key of `__consumer_offsets` announces: one row for each kind that Kafka 4.3 writes."""

from collections.abc import Callable, Mapping
from typing import Final

from ..runtime.codec import Reader, RecordRefused
from ..runtime.decision import LogRecord
from ..runtime.ports import Codec
from .consumer_decode import DECODERS as CONSUMER_DECODERS
from .consumer_records import VALUE_VERSION
from .records import (
    GROUP_METADATA,
    GROUP_VERSION_MAX,
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    OFFSET_VERSION_MAX,
    decode_group,
    decode_offset,
)

# kind of key -> what reads the rest of the key and the value (None is a tombstone)
Decoder = Callable[[int, Reader, bytes | None], LogRecord | None]

DECODERS: Final[Mapping[int, Decoder]] = {
    LEGACY_OFFSET_COMMIT: decode_offset,
    OFFSET_COMMIT: decode_offset,
    GROUP_METADATA: decode_group,
    **CONSUMER_DECODERS,
}


def decode(key: bytes, value: bytes | None) -> LogRecord | None:
    """The record, or None for a kind that this version does not know: Kafka skips those too.

    A kind that is known and a value that is not is RecordRefused: to skip it would be to forget a group.
    """
    reader = Reader(key)
    kind = reader.int16()
    decoder = DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        return decoder(kind, reader, value)
    except RecordRefused as refused:
        raise RecordRefused(f"record of kind {kind}: {refused}") from None


# kind -> the newest version of its values that is known, in the two bytes that a value begins with
_NEWEST: Final[Mapping[int, bytes]] = {
    LEGACY_OFFSET_COMMIT: OFFSET_VERSION_MAX.to_bytes(2, "big"),
    OFFSET_COMMIT: OFFSET_VERSION_MAX.to_bytes(2, "big"),
    GROUP_METADATA: GROUP_VERSION_MAX.to_bytes(2, "big"),
    **dict.fromkeys(CONSUMER_DECODERS, VALUE_VERSION.to_bytes(2, "big")),
}


def owner_of(key: bytes, value: bytes | None) -> bytes | None:
    """The group that a record is about: every kind's key goes on with its id. Runs for each record of a log."""
    if len(key) < 4:
        raise RecordRefused(f"{len(key)} bytes are no key of __consumer_offsets")
    newest = _NEWEST.get(key[0] << 8 | key[1])
    if newest is None:
        return None
    if value is not None and value[:2] > newest:
        raise RecordRefused(f"a value of version {value[:2].hex()} and kind {key[1]} is not known")
    return key[4 : 4 + (key[2] << 8 | key[3])]


CODEC: Final = Codec(decode, owner_of)
