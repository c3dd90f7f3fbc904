"""What compaction keeps of one batch. No IO: bytes in, bytes or nothing out.

INVARIANT  the newest record of every key stays, with its offset; no record of an aborted transaction does; a marker stays
           while its transaction has records; a producer's last batches stay, and the first of each leader epoch, empty if
           need be.
PREVENTS   a key that reads as it never was, an aborted write that comes back, a producer that is forgotten because
           its records were superseded.
PROVED BY  tests/replication/log/test_compaction.py::test_compaction_keeps_the_last_value_of_every_key
           tests/replication/log/test_compaction_transactions.py::test_a_marker_stays_while_its_transaction_has_records_and_goes_in_time_without

The rules are Kafka's (Cleaner.cleanInto, CleanedTransactionMetadata, MemoryRecords.filterTo). Tombstones, and markers of
transactions without records, get a delete horizon when they are met first (KIP-534: it stands in the batch's base
timestamp) and go when that has passed. Two rules are ours. They stay while a replica may lack them (a round that does not
`forget`). And the last batch of each cleaned segment stays, so that every segment ends where the next begins and a missing
one can be told from a cleaned one.
"""

from collections.abc import Callable, Container, Iterable
from struct import Struct
from typing import Final

from fencepost.cluster.base.ports import Buffer
from fencepost.cluster.wire.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    compute_crc,
)
from fencepost.cluster.wire.records import Record, build_batch, read_control, read_records

from .key_map import KeyMap
from .txn_index import AbortedTxn

FOR_EVER_MS: Final = 2**63 - 1
_KEPT_FLAGS: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG | LOG_APPEND_TIME_FLAG


class Transactions:
    """Which transactions are open at the point that a pass over the log has reached."""

    __slots__ = ("_aborted", "_committed", "_next", "_open", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = sorted(set(aborted), key=lambda txn: (txn.first_offset, txn.last_offset))
        self._next = 0
        self._open: dict[int, tuple[AbortedTxn, bool]] = {}  # and whether it has records yet
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []  # the new index: those whose records were still there

    def copy(self) -> "Transactions":
        """At the same point, with a new index."""
        made = type(self)(())
        made._aborted, made._next = self._aborted, self._next
        made._open, made._committed = dict(self._open), set(self._committed)
        return made

    def _advance(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            txn = self._aborted[self._next]
            self._open.setdefault(txn.producer_id, (txn, False))
            self._next += 1

    def is_aborted(self, header: BatchHeader) -> bool:
        """Of a batch of data."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._open[header.producer_id] = (found[0], True)
        return True

    def is_done_with(self, header: BatchHeader, records: list[Record]) -> bool:
        """Of a control batch: whether its transaction has no records left, so that it may go in time."""
        self._advance(header.last_offset)
        if not records:
            return True  # emptied by an earlier round
        marker = read_control(records[0])
        if marker is None:
            return False
        if marker.commit:
            had_records = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not had_records
        found = self._open.pop(header.producer_id, None)
        if found is None or not found[1]:
            return True
        self.kept.append(found[0])
        return False


class Cleaner:
    """One round over one log."""

    def __init__(
        self,
        key_map: KeyMap,
        transactions: Transactions,
        still_needs: Callable[[BatchHeader], bool],
        *,
        now_ms: int,
        delete_retention_ms: int,
        round_end: int,
        epoch_starts: Container[int] = (),
    ) -> None:
        self.epoch_starts = epoch_starts
        self.keys = key_map
        self.transactions = transactions
        self.still_needs = still_needs
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.round_end = round_end
        self.records_read = self.records_kept = 0
        self.begin(forgets=True)

    def begin(self, *, forgets: bool) -> None:
        """A cleaned segment. `forgot`: whether something of it went that only one that `forgets` may drop."""
        self.forgets, self.forgot = forgets, False
        self._before = self.transactions.copy(), self.records_read, self.records_kept
        self.transactions.kept = []

    def begin_again(self) -> None:
        """The same one, without forgetting anything."""
        self.transactions, self.records_read, self.records_kept = self._before
        self.begin(forgets=False)

    def keep(self, batch: Buffer, header: BatchHeader, *, is_last: bool) -> Buffer | None:
        """What of a whole, checked batch goes into the cleaned segment. `is_last`: of that segment."""
        records = read_records(batch)
        self.records_read += len(records)
        horizon = header.delete_horizon
        if header.is_control:
            may_go = self.transactions.is_done_with(header, records)
            drop = may_go and self._is_over(horizon)
            kept = [] if drop else records
        else:
            may_go = False
            kept = []
            if not self.transactions.is_aborted(header):
                kept = [record for record in records if self._is_kept(record, horizon)]
        if not kept:
            if is_last or self._stays_empty(header):
                return emptied(header)
            return None
        self.records_kept += len(kept)
        wants_horizon = horizon is None and (may_go or any(record.value is None for record in kept))
        if len(kept) == len(records) and not wants_horizon:
            return batch
        if wants_horizon:
            horizon = min(self.now_ms + self.delete_retention_ms, FOR_EVER_MS)
        return rebuilt(header, kept, horizon)

    def _stays_empty(self, header: BatchHeader) -> bool:
        """The first batch of a leader epoch tells a replica that copies the log where that epoch begins. Told too late an offset, a
        former leader would be let keep what it alone had written there."""
        begins_epoch = header.base_offset in self.epoch_starts
        return begins_epoch or header.next_offset == self.round_end or self.still_needs(header)

    def _is_kept(self, record: Record, horizon: int | None) -> bool:
        if record.offset > self.keys.latest:
            return True  # the map was full before this one
        if record.key is None or record.offset < self.keys.get(record.key):
            return False
        return record.value is not None or not self._is_over(horizon)

    def _is_over(self, horizon: int | None) -> bool:
        is_over = self.forgets and horizon is not None and horizon <= self.now_ms
        self.forgot |= is_over
        return is_over


def rebuilt(header: BatchHeader, kept: list[Record], horizon: int | None) -> bytearray:
    """The batch with only these records: same offsets, sequences, codec."""
    return build_batch(
        kept,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        compression=header.compression,
        log_append_time=header.max_timestamp if header.timestamp_type else None,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=horizon,
        attributes=header.attributes & _KEPT_FLAGS
        | (0 if horizon is None else DELETE_HORIZON_FLAG),
    )


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records: offsets, sequences, epoch and timestamp stay."""
    batch = bytearray(HEADER_SIZE)
    Struct(">qiibIhiqqqhii").pack_into(
        batch, 0,
        header.base_offset, HEADER_SIZE - LENGTH_PREFIX, header.leader_epoch, header.magic, 0,
        header.attributes & _KEPT_FLAGS, header.last_offset_delta, -1, header.max_timestamp,
        header.producer_id, header.producer_epoch, header.base_sequence, 0,
    )  # fmt: skip
    Struct(">I").pack_into(batch, 17, compute_crc(batch, 0, HEADER_SIZE))
    return batch
