"""The classic consumer's metadata and assignment, which the classic protocol carries unread.

INVARIANT  whatever a client sent, reading it ends in a value or in RecordRefused.
PREVENTS   a group that can't change its protocol, or a coordinator that dies, for one member's odd bytes.
PROVED BY  tests/txn/test_consumer_embedded.py::test_any_bytes_are_read_or_refused

Layouts: Kafka 4.3, ConsumerProtocol{Subscription,Assignment}.json, versions 0 to 3. A newer version is read as
version 3: Kafka's own rule is that later ones only add fields behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..runtime.codec import Reader, RecordRefused, Writer

VERSION_MAX: Final = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3

Partitions = Mapping[str, tuple[int, ...]]  # by topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Partitions
    generation_id: int = -1
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    partitions: Partitions
    user_data: bytes | None = None


def read_version(data: bytes) -> int:
    version = Reader(data).int16()
    if version < 0:
        raise RecordRefused(f"version {version} of the consumer protocol")
    return min(version, VERSION_MAX)


def version_to_write(data: bytes) -> int:
    """The version to answer a member in that sent `data`, and 0, which every reader knows, if that can't be read.

    A log may hold such a member: Kafka reads only the first of its protocols, or the one that was agreed on.
    """
    try:
        return read_version(data)
    except RecordRefused:
        return 0


def read_subscription(data: bytes) -> Subscription:
    version = read_version(data)
    reader = Reader(data, 2)
    topics = tuple(reader.string() for _ in range(reader.length()))
    user_data = _nullable_bytes(reader)
    owned = _read_partitions(reader) if version >= _OWNED_SINCE else {}
    generation_id = reader.int32() if version >= _GENERATION_SINCE else -1
    rack_id = reader.nullable_string() if version >= _RACK_SINCE else None
    return Subscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned=owned,
        generation_id=generation_id,
        rack_id=rack_id or None,
    )


def read_assignment(data: bytes) -> Assignment:
    read_version(data)
    reader = Reader(data, 2)
    partitions = _read_partitions(reader)
    return Assignment(partitions=partitions, user_data=_nullable_bytes(reader))


def write_assignment(partitions: Partitions, version: int) -> bytes:
    """Every version has had the same fields so far."""
    out = Writer()
    out.int16(version)
    out.int32(len(partitions))
    for topic in sorted(partitions):
        out.string(topic)
        out.int32(len(partitions[topic]))
        for partition in partitions[topic]:
            out.int32(partition)
    out.int32(-1)  # no user data
    return bytes(out.data)


def _read_partitions(reader: Reader) -> Partitions:
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(reader.length()):
        topic = reader.string()
        partitions = tuple(reader.int32() for _ in range(reader.length()))
        found[topic] = found.get(topic, ()) + partitions
    return found


def _nullable_bytes(reader: Reader) -> bytes | None:
    length = reader.int32()
    return None if length == -1 else reader.take(length)
