"""Kafka's four codecs, packed as Java's clients can read them and unpacked with a bound.

INVARIANT  `decompress` never holds more than `size_max` bytes of output.
PREVENTS   a bomb: 33 kB of zstd unpack to a gigabyte.
PROVED BY  tests/cluster/wire/test_wire_records.py::test_a_bomb_is_refused_before_it_is_unpacked
"""

from struct import Struct
from typing import Final

import cramjam

from ..base.errors import ErrorCode
from ..base.ports import Buffer
from .batch import BatchRefused

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODECS: Final = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka has no such bound. Clients pack batches of about a megabyte, and text packs tenfold.
SIZE_MAX: Final = 128 << 20

# snappy-java ("xerial") puts raw snappy blocks behind a header: magic, version, lowest compatible version.
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK: Final = 32 << 10  # what snappy-java writes
_BLOCK_SIZE: Final = Struct(">i")

# An LZ4 frame whose blocks stand alone, 64 KiB each, no checksums; the last byte is the descriptor's own.
# Kafka's Java reader refuses linked blocks, which is what cramjam's frame writer makes.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK: Final = 64 << 10
_LZ4_BLOCK_SIZE: Final = Struct("<I")
_LZ4_STORED: Final = 1 << 31

_MAGICS: Final = {GZIP: b"\x1f\x8b", LZ4: b"\x04\x22\x4d\x18", ZSTD: b"\x28\xb5\x2f\xfd"}
_TOO_SMALL: Final = "failed to write whole buffer"  # cramjam's words for a full output buffer
_SNAPPY_RATIO_MAX: Final = 64  # an element of three bytes stands for 64 at most


def compress(codec: int, data: Buffer) -> bytes:
    match codec:
        case 0:
            return bytes(data)
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return _compress_snappy(data)
        case 3:
            return _compress_lz4(data)
        case 4:
            return bytes(cramjam.zstd.compress(data, level=3))
        case _:
            raise BatchRefused(
                ErrorCode.unsupported_compression_type, f"no codec has the number {codec}"
            )


def decompress(codec: int, packed: Buffer, size_max: int = SIZE_MAX) -> bytes:
    """BatchRefused: INVALID_RECORD for what is not this codec's (sending it again can't help, which CORRUPT_MESSAGE
    would ask a client to do), MESSAGE_TOO_LARGE above `size_max`."""
    if codec == NONE:
        return bytes(packed)
    if codec > ZSTD:
        raise BatchRefused(
            ErrorCode.unsupported_compression_type, f"no codec has the number {codec}"
        )
    try:
        if codec == SNAPPY:
            return _decompress_snappy(packed, size_max)
        return _decompress_stream(codec, packed, size_max)
    except cramjam.DecompressionError as error:
        raise BatchRefused(
            ErrorCode.invalid_record, f"records are not {NAMES[codec]}: {error}"
        ) from None


def looks_like(codec: int, packed: Buffer) -> bool:
    """Whether the first bytes are those of this codec: all that is asked of a packed batch on the hot path."""
    if codec != SNAPPY:
        magic = _MAGICS[codec]
        return bytes(packed[: len(magic)]) == magic
    if bytes(packed[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
        return True
    try:  # raw snappy has no magic, but begins with the length that it unpacks to
        size = int(cramjam.snappy.decompress_raw_len(packed))
    except cramjam.DecompressionError:
        return False
    return 0 < size <= _SNAPPY_RATIO_MAX * len(packed)


def _decompress_stream(codec: int, packed: Buffer, size_max: int) -> bytes:
    module = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
    size = min(size_max, max(4 * len(packed), 64 << 10))
    while True:
        out = bytearray(size)
        try:
            written = module.decompress_into(packed, out)
            return bytes(memoryview(out)[:written])
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
        if size == size_max:
            raise _too_large(codec, size_max)
        size = min(size_max, size * 4)


def _too_large(codec: int, size_max: int) -> BatchRefused:
    return BatchRefused(
        ErrorCode.message_too_large,
        f"{NAMES[codec]} records unpack to more than {size_max} bytes",
    )


def _snappy_block(block: Buffer, room: int, size_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > room:
        raise _too_large(SNAPPY, size_max)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise cramjam.DecompressionError(f"{len(block)} bytes can't hold {size}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_snappy(packed: Buffer, size_max: int) -> bytes:
    """Framed as snappy-java writes it, or raw as librdkafka does; both occur under one codec number."""
    if bytes(packed[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(packed, size_max, size_max)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(packed):
        if position + 4 > len(packed):
            raise cramjam.DecompressionError("ends inside a block's length")
        (size,) = _BLOCK_SIZE.unpack_from(packed, position)
        position += 4
        if size < 0 or size > len(packed) - position:
            raise cramjam.DecompressionError(f"a block claims {size} bytes")
        out += _snappy_block(packed[position : position + size], size_max - len(out), size_max)
        position += size
    return bytes(out)


def _compress_snappy(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for position in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK]))
        out += _BLOCK_SIZE.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(data: Buffer) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for position in range(0, len(data), _LZ4_BLOCK):
        plain = data[position : position + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += _LZ4_BLOCK_SIZE.pack(len(block))
            out += block
        else:
            out += _LZ4_BLOCK_SIZE.pack(len(plain) | _LZ4_STORED)
            out += plain
    out += _LZ4_BLOCK_SIZE.pack(0)
    return bytes(out)
