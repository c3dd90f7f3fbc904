"""Which record a key of `__transaction_state` announces: Kafka's one kind, and Fencepost's own from 1000 on.

A further kind is one more row here, and a row of its record in an `Addition` (`additions.py`).
"""

from collections.abc import Callable, Mapping
from typing import Final

from ..runtime.codec import Reader, RecordRefused
from ..runtime.decision import LogRecord
from ..runtime.ports import Codec
from .added_records import GROUP_DECISION, HALF_MESSAGE, VALUE_VERSION
from .check_back_records import decode_half_message
from .group_commit_records import decode_group_decision
from .records import STATUS_AT, TRANSACTION, VALUE_VERSION_MAX, decode_transaction
from .transaction import IDLE

# kind -> what reads the whole key and the value (None is a tombstone). ValueError when they can't be read.
Decoder = Callable[[bytes, bytes | None], LogRecord | None]


def _decode_transaction(key: bytes, value: bytes | None) -> LogRecord:
    reader = Reader(key)
    return decode_transaction(reader.int16(), reader, value)


DECODERS: Final[Mapping[int, Decoder]] = {
    TRANSACTION: _decode_transaction,
    GROUP_DECISION: decode_group_decision,
    HALF_MESSAGE: decode_half_message,
}
# kind -> the newest version of its values that is known
NEWEST: Final[Mapping[int, int]] = {
    TRANSACTION: VALUE_VERSION_MAX,
    GROUP_DECISION: VALUE_VERSION,
    HALF_MESSAGE: VALUE_VERSION,
}


def decode(key: bytes, value: bytes | None) -> LogRecord | None:
    """The record, or None for a kind that this version does not know: Kafka skips those too."""
    kind = Reader(key).int16()
    decoder = DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        return decoder(key, value)
    except ValueError as refused:
        raise RecordRefused(f"record of kind {kind}: {refused}") from None


def owner_of(key: bytes, value: bytes | None) -> bytes | None:
    """Whom a record is about: every kind's key goes on with an id. Runs for each record of a log."""
    if len(key) < 4:
        raise RecordRefused(f"{len(key)} bytes are no key of __transaction_state")
    newest = NEWEST.get(key[0] << 8 | key[1])
    if newest is None:
        return None
    if value is not None and (len(value) < 2 or value[0] << 8 | value[1] > newest):
        raise RecordRefused(f"a value that begins with {value[:2].hex()} is not known")
    return key[4 : 4 + (key[2] << 8 | key[3])]


_AT_REST: Final = frozenset(int(phase) for phase in IDLE)


def is_urgent(key: bytes, value: bytes | None) -> bool:
    """A transaction that is decided or open: markers are to be sent, or its time runs. Ids at rest can wait."""
    if value is None or key[0] << 8 | key[1] != TRANSACTION:
        return False
    return len(value) <= STATUS_AT or value[STATUS_AT] not in _AT_REST


CODEC: Final = Codec(decode, owner_of, is_urgent)
