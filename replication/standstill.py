"""Why a partition's last stable offset stands still, and since when."""

import enum
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import LogDamaged

from .log.finding import headers_of
from .log.walk import Cold
from .partition_reads import COLD_READS_MAX, ReadablePartition

# How long a coordinator may be late to abort what has timed out (Kafka's LATE_TRANSACTION_BUFFER_MS).
LATE_MS: Final = 300_000


class Reason(enum.Enum):
    OPEN = "a transaction is open"
    ENDED = "a transaction has ended, and its marker is not committed yet"


class Standstill(NamedTuple):
    """The first transaction that readers of committed records stop at."""

    reason: Reason
    last_stable_offset: int
    high_watermark: int
    first_offset: int
    since_ms: (
        int  # when its first record was written, by its producer's clock; -1 when that is gone
    )
    # Of the one that is open; else -1.
    producer_id: int = -1
    producer_epoch: int = -1
    coordinator_epoch: int = (
        -1
    )  # of the last marker that this producer had here; -1 when there is none
    last_write_ms: int = -1
    # Longer than any transaction may be: its coordinator has forgotten it, or can't reach this partition.
    is_late: bool = False

    def age_ms(self, now_ms: int) -> int:
        return -1 if self.since_ms < 0 else max(0, now_ms - self.since_ms)


def standstill(
    partition: ReadablePartition, now_ms: int, *, timeout_ms_max: int
) -> Standstill | None:
    """None while it stands where the high watermark does. May read one header from the disk."""
    stable, high_watermark = partition.last_stable_offset, partition.high_watermark
    first = partition.log.first_unstable_offset
    if first is None or stable >= high_watermark:
        return None
    since_ms = _written_ms(partition, first)
    found = partition.producers.oldest_open()
    if found is None or found.txn_first_offset > first:
        return Standstill(Reason.ENDED, stable, high_watermark, first, since_ms)
    return Standstill(
        Reason.OPEN,
        stable,
        high_watermark,
        first,
        since_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=found.coordinator_epoch,
        last_write_ms=found.last_timestamp,
        is_late=is_late(found.last_timestamp, now_ms, timeout_ms_max),
    )


def is_late(last_write_ms: int, now_ms: int, timeout_ms_max: int) -> bool:
    return last_write_ms > 0 and now_ms - last_write_ms > timeout_ms_max + LATE_MS


def has_late_transaction(partition: ReadablePartition, now_ms: int, timeout_ms_max: int) -> bool:
    """Kafka's PartitionsWithLateTransactionsCount counts these. Costs nothing where no transaction is open."""
    log = partition.log
    if not log.producers_loaded:
        return False  # nobody has written since a clean start: whoever is open is known to its coordinator
    found = log.producers.oldest_open()
    return found is not None and is_late(found.last_timestamp, now_ms, timeout_ms_max)


async def written_ms(partition: ReadablePartition, offset: int) -> int:
    """When the batch at `offset` was written, with the disk waited for off the loop; -1 when that is gone."""
    for attempt in range(COLD_READS_MAX):
        try:
            return _written_ms(partition, offset, block=attempt == COLD_READS_MAX - 1)
        except Cold as cold:
            try:
                await partition.log.env.disk.run(cold.work)
            except (OSError, LogDamaged):
                return -1
    raise AssertionError("a search that may block was cold")


def _written_ms(partition: ReadablePartition, offset: int, *, block: bool = True) -> int:
    log = partition.log
    if offset < log.log_start_offset:
        return -1
    try:
        for _, header in headers_of(log.segments[log.index_of(offset)], offset, block=block):
            return header.base_timestamp if header.delete_horizon is None else header.max_timestamp
    except (OSError, LogDamaged):
        pass  # whoever reads there is told
    return -1
