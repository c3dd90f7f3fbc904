"""The names of a partition's files, which are Kafka's."""

from typing import Final

from .producer_snapshot import SNAPSHOT_SUFFIX

LOG: Final = ".log"
INDEX: Final = ".index"
TIMEINDEX: Final = ".timeindex"
TXNINDEX: Final = ".txnindex"
PRODUCERS: Final = SNAPSHOT_SUFFIX
# In the order in which they are renamed: the log last, so that its name says that all are there.
SEGMENT_FILES: Final = (INDEX, TIMEINDEX, TXNINDEX, LOG)

DELETED: Final = ".deleted"  # to be removed after file.delete.delay.ms, or at the next start
CLEANED: Final = ".cleaned"  # being written by the cleaner: worth nothing after a crash
SWAP: Final = ".swap"  # written and durable: takes the place of what it was made from
TORN: Final = ".torn"  # cut off by recovery though valid batches were in it: kept for a person

EPOCHS: Final = "leader-epoch-checkpoint"
METADATA: Final = "partition.metadata"

DIGITS: Final = 20


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def split(name: str) -> tuple[int, str] | None:
    """The base offset and the suffix of a segment's or snapshot's file; None for any other name."""
    digits = name[:DIGITS]
    if len(digits) < DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits), name[DIGITS:]
