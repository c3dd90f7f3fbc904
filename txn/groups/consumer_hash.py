"""One number for all that a group's assignment depends on in the cluster's metadata (KIP-1101).

The number is Kafka's own (XXH3, 64 bits, over topic id, name, partitions and racks), bit for bit, so that a
`__consumer_offsets` that Kafka wrote is read here without a rebalance of every group, and the other way round.
The vectors of `tests/txn/test_consumer_hash.py` come from the library that Kafka uses (hash4j).
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

_M64: Final = (1 << 64) - 1
_M32: Final = (1 << 32) - 1

# The constants of XXH3 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_MX1: Final = 0x165667919E3779F9
_MX2: Final = 0x9FB21C651E98DF25
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE: Final = 64
_STRIPES_A_BLOCK: Final = (len(_SECRET) - _STRIPE) // 8
_LANES: Final = struct.Struct("<8Q")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _secret(at: int) -> int:
    return _u64(_SECRET, at)


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _M64) ^ (product >> 64)


def _swap(value: int, size: int) -> int:
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def _avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * _MX1 & _M64
    return h ^ (h >> 32)


def _avalanche_64(h: int) -> int:
    h ^= h >> 33
    h = h * _P64_2 & _M64
    h ^= h >> 29
    h = h * _P64_3 & _M64
    return h ^ (h >> 32)


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    low, high = _u64(data, at), _u64(data, at + 8)
    return _fold(low ^ _secret(secret_at), high ^ _secret(secret_at + 8))


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _u64(data, 0) ^ _secret(24) ^ _secret(32)
        high = _u64(data, size - 8) ^ _secret(40) ^ _secret(48)
        return _avalanche((size + _swap(low, 8) + high + _fold(low, high)) & _M64)
    if size >= 4:
        keyed = (_u32(data, size - 4) + (_u32(data, 0) << 32)) ^ (_secret(8) ^ _secret(16))
        keyed ^= _rotate(keyed, 49) ^ _rotate(keyed, 24)
        keyed = keyed * _MX2 & _M64
        keyed ^= (keyed >> 35) + size
        keyed = keyed * _MX2 & _M64
        return keyed ^ (keyed >> 28)
    if size:
        spread = (data[0] << 16) | (data[size >> 1] << 24) | data[-1] | (size << 8)
        return _avalanche_64(spread ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    return _avalanche_64(_secret(56) ^ _secret(64))


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _M64


def _up_to_128(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1 & _M64
    for pair in range((size - 1) // 32, -1, -1):
        total += _mix16(data, 16 * pair, 32 * pair)
        total += _mix16(data, size - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(total & _M64)


def _up_to_240(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    for index in range(8):
        total += _mix16(data, 16 * index, 16 * index)
    total = _avalanche(total & _M64)
    for index in range(8, size // 16):
        total += _mix16(data, 16 * index, 16 * (index - 8) + 3)
    total += _mix16(data, size - 16, 136 - 17)
    return _avalanche(total & _M64)


def _accumulate(lanes: list[int], stripe: Sequence[int], keys: Sequence[int]) -> None:
    for lane in range(8):
        value = stripe[lane]
        keyed = value ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & _M64
        lanes[lane] = (lanes[lane] + (keyed & _M32) * (keyed >> 32)) & _M64


def _long(data: bytes) -> int:
    size = len(data)
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    keys = [_LANES.unpack_from(_SECRET, 8 * index) for index in range(_STRIPES_A_BLOCK)]
    scramble = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    stripes = (size - 1) // _STRIPE
    for stripe in range(stripes):
        step = stripe % _STRIPES_A_BLOCK
        _accumulate(lanes, _LANES.unpack_from(data, stripe * _STRIPE), keys[step])
        # A block is scrambled when it is full and more follows; the last stripe counts as more.
        if step == _STRIPES_A_BLOCK - 1:
            for lane in range(8):
                mixed = lanes[lane] ^ (lanes[lane] >> 47) ^ scramble[lane]
                lanes[lane] = mixed * _P32_1 & _M64
    last_keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE - 7)
    _accumulate(lanes, _LANES.unpack_from(data, size - _STRIPE), last_keys)
    merged = size * _P64_1 & _M64
    for pair in range(4):
        low, high = _secret(11 + 16 * pair), _secret(19 + 16 * pair)
        merged += _fold(lanes[2 * pair] ^ low, lanes[2 * pair + 1] ^ high)
    return _avalanche(merged & _M64)


def xxh3_64(data: bytes) -> int:
    """XXH3 with 64 bits and seed 0, as a signed number (Java's long, as it stands in the records)."""
    size = len(data)
    if size <= 16:
        value = _up_to_16(data)
    elif size <= 128:
        value = _up_to_128(data)
    elif size <= 240:
        value = _up_to_240(data)
    else:
        value = _long(data)
    return value - (1 << 64) if value >> 63 else value


class HashedTopic(Protocol):
    """What of a topic an assignment may depend on."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def partition_count(self) -> int: ...
    def racks(self, partition: int) -> Sequence[str]:
        """The racks of the partition's replicas, one for each replica that has a rack."""


def _text(value: str) -> bytes:
    """hash4j's putString: the UTF-16 units, then how many there were."""
    units = value.encode("utf-16-le")
    return units + struct.pack("<i", len(units) // 2)


def topic_hash(topic: HashedTopic) -> int:
    """Kafka's Utils.computeTopicHash; the leading zero is its version of the format."""
    number = topic.topic_id.int
    parts = [b"\0", struct.pack("<QQ", number >> 64, number & _M64), _text(topic.name)]
    parts.append(struct.pack("<i", topic.partition_count))
    for partition in range(topic.partition_count):
        parts.append(struct.pack("<i", partition))
        for rack in sorted(topic.racks(partition)):
            text = _text(rack)
            parts.append(text[-4:] + text)
    return xxh3_64(b"".join(parts))


def group_hash(topic_hashes: Mapping[str, int] | Iterable[tuple[str, int]]) -> int:
    """Kafka's Utils.computeGroupHash: the topics' hashes in the order of their names; 0 when there are none."""
    entries = sorted(dict(topic_hashes).items())
    if not entries:
        return 0
    return xxh3_64(b"".join(struct.pack("<q", value) for _, value in entries))
