"""Which record a key of `__consumer_offsets` announces: one row for each kind that Kafka 4.3 writes."""

from collections.abc import Callable, Mapping
from typing import Final

from ..runtime.decision import LogRecord
from .codec import Reader, RecordRefused
from .consumer_decode import DECODERS as CONSUMER_DECODERS
from .records import (
    GROUP_METADATA,
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
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
