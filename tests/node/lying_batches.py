"""Batches whose header does not say what is in them, and what Kafka answers to each."""

import struct
from typing import Final

from crc32c import crc32c
from fencepost.cluster.base.errors import ErrorCode
from sim_node import batch

E = ErrorCode
GOOD: Final = bytes(batch(b"one", b"two"))


def changed(position: int, layout: str, value: int) -> bytes:
    """The good batch with one field of its header changed, and a checksum that fits again."""
    data = bytearray(GOOD)
    struct.pack_into(layout, data, position, value)
    if position >= 21:
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


# Kafka meets these unprepared and says UNKNOWN_SERVER_ERROR. We say what is wrong.
UNKNOWN_TO_KAFKA: Final = ("no such compression", "not compressed as said")
# What is sent -> what Kafka 4.3.0 answered to it, but for those two.
LIES: Final[dict[str, tuple[bytes, ErrorCode]]] = {
    "wrong checksum": (changed(17, ">I", 1), E.corrupt_message),
    "a flipped bit": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), E.corrupt_message),
    "cut off": (GOOD[:-1], E.invalid_record),
    "an old format": (changed(16, ">b", 1), E.invalid_record),
    "no such format": (changed(16, ">b", 9), E.corrupt_message),
    "a length of zero": (changed(8, ">i", 0), E.corrupt_message),
    "a length below zero": (changed(8, ">i", -5), E.corrupt_message),
    "more records than there are": (changed(57, ">i", 3), E.invalid_record),
    "fewer records than there are": (changed(57, ">i", 1), E.invalid_record),
    "a count below zero": (changed(57, ">i", -1), E.invalid_record),
    "an offset delta too large": (changed(23, ">i", 9), E.invalid_record),
    "an offset delta below zero": (changed(23, ">i", -1), E.invalid_record),
    "a control batch": (changed(21, ">h", 0x20), E.invalid_record),
    "no such compression": (changed(21, ">h", 7), E.unsupported_compression_type),
    "not compressed as said": (changed(21, ">h", 1), E.invalid_record),
    "two batches": (GOOD + GOOD, E.invalid_record),
    "no batch": (b"", E.invalid_record),
}
