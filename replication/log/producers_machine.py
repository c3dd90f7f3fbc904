"""Who has written what to this partition: the rules that make a retry harmless.

INVARIANT  a batch of an idempotent producer is in the log once, in the order of its sequence numbers; its retry
           is answered with the offset of the first time while it is among the producer's last five batches.
PREVENTS   a duplicate, a gap or a reordering through retries, crashes, truncation and changes of leader; a
           zombie writing after its successor; memory that grows with every producer id ever seen.
PROVED BY  tests/replication/log/test_producers_machine.py::test_the_machine_and_its_slow_twin_agree,
           tests/replication/log/test_producers_machine.py::test_an_open_transaction_never_expires, tests/replication/log/test_producers_markers.py::test_a_marker_is_answered_as_kafka_answers

The rules are Kafka's (ProducerStateManager, ProducerAppendInfo, UnifiedLog.analyzeAndValidateProducerState of
Kafka 4.3), in its order of checks. Where we differ, for the promise's sake:

- *Expiry* counts from when the broker last saw the producer, not from its records' own timestamps: a producer that
  copies old records would otherwise be forgotten at once, and its next retry written twice.
- *A refused first batch is remembered* (`note_refused`): Kafka lets an unknown producer start at any sequence, so when
  the first of two batches in flight is refused (disk full) and the second is not, the second would be written
  first. Kafka itself keeps this for transactions only (VerificationStateEntry.lowestSequence).
- *Snapshots hold the whole window* (`producer_snapshot.py`).
- *A bound* for the whole node, `producer_budget.py`: beyond it the producers unseen the longest are forgotten.

A forgotten producer's next batch is accepted with whatever sequence it has, as in Kafka since 2.5: nothing that
ends a client comes of expiry. UNKNOWN_PRODUCER_ID is an error that no Kafka 4 broker gives here.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from fencepost.cluster.base.errors import ErrorCode

from .producer_budget import ProducerBudget
from .producer_rules import check_marker, check_sequence, old_epoch
from .producer_snapshot import (
    BATCH,
    BATCH_SIZE,
    ENTRY,
    ENTRY_SIZE,
    WINDOW_SIZE,
    ProducerState,
    find_duplicate,
    is_after,
    read_snapshot,
    seen_at,
    sequence_plus,
    unpack_entry,
    write_snapshot,
)
from .producer_verdicts import (
    ACCEPT,
    Accept,
    CompletedTxn,
    Duplicate,
    Marker,
    ProducedBatch,
    Refused,
    Verdict,
)
from .verifications_machine import NO_GUARD, Verifications

PRODUCER_ID_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000  # Kafka's producer.id.expiration.ms
TOUCH_MS: Final = 60_000  # how exactly the order of last use is kept


class ProducersMachine:
    """The producers of one partition. `decide` reads; `apply` alone writes, live and in replay."""

    __slots__ = (
        "_completed", "_entries", "_ongoing", "_verifications", "budget", "end_offset", "expiration_ms",
        "name", "verify_transactions",
    )  # fmt: skip

    def __init__(
        self,
        *,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        budget: ProducerBudget | None = None,
        verify_transactions: bool = False,
        name: str = "",
    ) -> None:
        self.expiration_ms = expiration_ms
        self.budget = budget if budget is not None else ProducerBudget()
        self.verify_transactions = verify_transactions
        self.name = name  # the partition, for messages
        self.end_offset = 0  # of the log up to which this state holds
        self._entries: dict[int, bytes] = {}  # in order of last use, to within TOUCH_MS
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, in order of first offset
        # A heap of (first, last) offsets: ended, but with a marker above the high watermark.
        self._completed: list[tuple[int, int]] = []
        self._verifications: Verifications | None = None

    # -- decide ---------------------------------------------------------------------------------------

    def decide(self, batch: ProducedBatch, *, origin_client: bool) -> Verdict:
        """May this batch be written by the leader? `origin_client` is false for coordinators' own records."""
        producer_id = batch.producer_id
        if producer_id < 0:
            return ACCEPT
        assert not batch.is_control, "markers are decided by decide_marker"
        producer_epoch = batch.producer_epoch
        entry = self._entries.get(producer_id)
        if entry is None:
            known_epoch = txn_first_offset = -1
        else:
            known_epoch, _, _, _, txn_first_offset = ENTRY.unpack_from(entry)
            if origin_client and producer_epoch == known_epoch:
                duplicate = find_duplicate(entry, batch.base_sequence, batch.last_offset_delta)
                if duplicate is not None:
                    return Duplicate(
                        duplicate.first_offset, duplicate.last_offset, duplicate.timestamp
                    )
        if producer_epoch < known_epoch:
            return old_epoch(self.name, producer_id, producer_epoch, known_epoch)
        first_of_txn = batch.is_transactional and (
            txn_first_offset < 0 or known_epoch != producer_epoch
        )
        if first_of_txn and self.verify_transactions and not self._is_confirmed(batch):
            # Only if the coordinator knows of the transaction: or it might never end here.
            return Refused(
                ErrorCode.invalid_txn_state, "Record was not part of an ongoing transaction"
            )
        if origin_client:
            refused = check_sequence(self.name, batch, entry, self._verifications)
            if refused is not None:
                return refused
        if txn_first_offset >= 0 and not batch.is_transactional:
            message = (
                f"Expected transactional write from producer {producer_id} in partition {self.name}"
            )
            return Refused(ErrorCode.invalid_txn_state, message)
        return ACCEPT

    def decide_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Accept | Refused:
        """May a transaction's end be written? From version 2 on the marker's epoch is above the records'."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return ACCEPT
        return check_marker(
            self.name, producer_id, entry, producer_epoch, coordinator_epoch, transaction_version
        )

    # -- apply ----------------------------------------------------------------------------------------

    def apply(
        self,
        batch: ProducedBatch,
        first_offset: int,
        last_offset: int,
        *,
        now_ms: int,
        marker: Marker | None = None,
    ) -> CompletedTxn | None:
        """Take in a batch that is in the log, live, in replay or as a follower; nothing is checked again.

        `marker` is the record of a control batch; without one (the cleaner emptied it) it changes nothing.
        """
        self.end_offset = last_offset + 1
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        if batch.is_control:
            return self._apply_marker(batch, last_offset, now_ms, marker) if marker else None
        entry = self._entries.get(producer_id)
        producer_epoch = batch.producer_epoch
        delta = last_offset - first_offset
        last_sequence = batch.base_sequence
        if last_sequence >= 0:
            last_sequence = sequence_plus(last_sequence, delta)
        timestamp = batch.max_timestamp
        if entry is None:
            coordinator_epoch = txn_first_offset = -1
            seen_ms = now_ms
            window = b""
        else:
            known_epoch, coordinator_epoch, _, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
            window = entry[ENTRY_SIZE:] if known_epoch == producer_epoch else b""
            if len(window) >= WINDOW_SIZE:
                window = window[BATCH_SIZE:]
        if batch.is_transactional and txn_first_offset < 0:
            txn_first_offset = first_offset
            self._ongoing[first_offset] = producer_id
        if self._verifications:
            self._verifications.written(producer_id, is_transactional=batch.is_transactional)
        window += BATCH.pack(last_sequence, delta, last_offset, timestamp)
        head = (producer_epoch, coordinator_epoch, timestamp, seen_ms, txn_first_offset)
        self._put(producer_id, entry, head, window, now_ms)
        return None

    def _apply_marker(
        self, batch: ProducedBatch, offset: int, now_ms: int, marker: Marker
    ) -> CompletedTxn | None:
        producer_id = batch.producer_id
        entry = self._entries.get(producer_id)
        seen_ms, txn_first_offset, window = now_ms, -1, b""
        if entry is not None:
            known_epoch, _, _, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
            window = entry[ENTRY_SIZE:] if known_epoch == batch.producer_epoch else b""
        completed = None
        if txn_first_offset >= 0:
            owner = self._ongoing.pop(txn_first_offset, None)
            assert owner == producer_id, (
                f"open transaction at {txn_first_offset} belongs to {owner}"
            )
            heapq.heappush(self._completed, (txn_first_offset, offset))
            # Kafka: the first transaction that still runs, or just behind this marker.
            stable = next(iter(self._ongoing), offset + 1)
            completed = CompletedTxn(
                producer_id, txn_first_offset, offset, not marker.commit, stable
            )
        if self._verifications:
            self._verifications.ended(producer_id)
        head = (batch.producer_epoch, marker.coordinator_epoch, marker.timestamp, seen_ms, -1)
        self._put(producer_id, entry, head, window, now_ms)
        return completed

    def _put(
        self,
        producer_id: int,
        old: bytes | None,
        head: tuple[int, int, int, int, int],
        window: bytes,
        now_ms: int,
    ) -> None:
        if old is not None and now_ms - head[3] >= TOUCH_MS:
            head = (head[0], head[1], head[2], now_ms, head[4])
            del self._entries[producer_id]  # and so to the end of the order of last use
        self._entries[producer_id] = ENTRY.pack(*head) + window
        if old is None:
            self.budget.add(self, 1)

    # -- what may be read, and how far ----------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that runs, or that ended above the high watermark."""
        running = next(iter(self._ongoing), None)
        if not self._completed:
            return running
        ended = self._completed[0][0]
        return ended if running is None or ended < running else running

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is replicated no longer hold back the last stable offset."""
        completed = self._completed
        # Only the lowest counts for anyone, so those behind it may wait their turn.
        while completed and completed[0][1] < high_watermark:
            heapq.heappop(completed)

    def open_count(self) -> int:
        return len(self._ongoing)

    def oldest_open(self) -> ProducerState | None:
        """Whose open transaction begins first."""
        for producer_id in self._ongoing.values():
            return self.state_of(producer_id)
        return None

    # -- producers not known here ---------------------------------------------------------------------

    def start_verification(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> int | Refused:
        """The guard for `confirm` when the coordinator must be asked; NO_GUARD when it need not."""
        entry = self._entries.get(producer_id)
        if entry is not None:
            known_epoch, _, _, _, txn_first_offset = ENTRY.unpack_from(entry)
            if producer_epoch < known_epoch:
                return old_epoch(self.name, producer_id, producer_epoch, known_epoch)
            if txn_first_offset >= 0 and known_epoch == producer_epoch:
                return NO_GUARD
        return self.verifications.start(
            producer_id, sequence, producer_epoch, now_ms, epoch_bump=supports_epoch_bump
        )

    @property
    def verifications(self) -> Verifications:
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications

    def _is_confirmed(self, batch: ProducedBatch) -> bool:
        return self.verifications.is_confirmed(batch.producer_id, batch.producer_epoch)

    def note_refused(self, batch: ProducedBatch) -> None:
        """A client's batch was not written for a reason that it will retry: no later one may overtake it."""
        first = batch.base_sequence
        if first >= 0 and batch.producer_id not in self._entries:  # others have their last sequence
            self.verifications.note_refused(batch.producer_id, batch.producer_epoch, first)

    # -- forgetting -----------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> int:
        """Forget producers unseen for `expiration_ms`, and verifications as old; how many producers went."""
        gone, ahead = [], []
        for producer_id, entry in self._entries.items():
            _, _, _, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
            if seen_ms > now_ms:
                ahead.append(producer_id)  # the clock went back: from now on, or for ever
            elif now_ms - seen_ms < self.expiration_ms:
                break  # the rest was seen later
            elif txn_first_offset < 0:
                gone.append(producer_id)
        self.forget(gone)
        for producer_id in ahead:
            self._entries[producer_id] = seen_at(self._entries.pop(producer_id), now_ms)
        if self._verifications:
            self._verifications.expire(now_ms, self.expiration_ms)
        return len(gone)

    def idle(self) -> Iterator[tuple[int, int]]:
        for producer_id, entry in self._entries.items():
            _, _, _, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
            if txn_first_offset < 0:
                yield seen_ms, producer_id

    def forget(self, producer_ids: list[int]) -> None:
        for producer_id in producer_ids:
            del self._entries[producer_id]
        self.budget.give_back(self, len(producer_ids))

    # -- snapshots and truncation ---------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """All of it as it is at `end_offset`, for `restore`. 1 s for a million producers."""
        return write_snapshot(*self.copied())

    def copied(self) -> tuple[int, dict[int, bytes], list[tuple[int, int]]]:
        """What `write_snapshot` takes, also on a thread: 0.1 s for a million producers."""
        return self.end_offset, self._entries.copy(), sorted(self._completed)

    def restore(self, data: bytes, *, now_ms: int) -> int:
        """Become what `data` says, less what has expired; the offset to replay from. Or SnapshotDamaged."""
        snapshot = read_snapshot(data)
        self.reset(snapshot.end_offset)
        for producer_id, entry in snapshot.entries:
            _, _, _, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
            if txn_first_offset >= 0:
                self._ongoing[txn_first_offset] = producer_id
            elif now_ms - seen_ms >= self.expiration_ms:
                continue
            self._entries[producer_id] = entry
        self._ongoing = dict(sorted(self._ongoing.items()))
        self._completed = list(snapshot.completed)
        self.budget.add(self, len(self._entries))
        return self.end_offset

    def reset(self, end_offset: int) -> None:
        """Know nobody: the log starts empty at `end_offset`, or is about to be replayed from there."""
        self.forget(list(self._entries))
        self._ongoing = {}
        self._completed = []
        if self._verifications:
            self._verifications.begin_anew()
        self.end_offset = end_offset

    # -- views ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._entries

    def state_of(self, producer_id: int) -> ProducerState | None:
        entry = self._entries.get(producer_id)
        return None if entry is None else unpack_entry(producer_id, entry)

    def has_taken(self, batch: ProducedBatch) -> bool:
        """Or one behind it, or it was fenced: by another connection, or from another leader."""
        known = self.state_of(batch.producer_id)
        if known is None or not known.batches or known.producer_epoch != batch.producer_epoch:
            return known is not None and known.producer_epoch > batch.producer_epoch
        return not is_after(batch.base_sequence, known.last_sequence)

    def states(self) -> list[ProducerState]:
        """Every producer, for DescribeProducers."""
        return [unpack_entry(producer_id, entry) for producer_id, entry in self._entries.items()]

    def still_needs(
        self, producer_id: int, producer_epoch: int, last_offset: int, *, is_control: bool
    ) -> bool:
        """Whether the cleaner must leave this batch (empty if need be) so that a replay finds this state again."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return False
        state = unpack_entry(producer_id, entry)
        if not state.batches:
            return is_control and state.producer_epoch == producer_epoch
        return any(batch.last_offset == last_offset for batch in state.batches)
