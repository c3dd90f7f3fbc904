"""How the records of transactional workloads are written, apart from the wire: client processes start faster without it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

# A tombstone has no value: what it is stands in a header of this name.
OF: Final = "of"
PAD: Final = "pad"


class Written(NamedTuple):
    """A record that is more than its value."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def written(record: "bytes | Written") -> Written:
    return Written(None, record) if isinstance(record, bytes) else record


def identity(value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """What `payload` said, wherever it stands."""
    return value if value is not None else dict(headers).get(OF) or b""


def padded(number: int, value: int, extra: int, size: int) -> Written:
    """A record of about so many bytes."""
    return Written(None, payload(number, value, extra), ((PAD, b"." * size),))


def payload(number: int, value: int, extra: int = 0) -> bytes:
    """What a record of these workloads holds: whose it is, which it is, and what the workload wants."""
    return f"{number}/{value}/{extra}".encode()


def life_key(topic: str, topic_id: object, partition: int) -> str:
    """A partition of one life of a topic: another one of the same name has another id."""
    return f"{topic}@{topic_id}-{partition}"


def key_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
