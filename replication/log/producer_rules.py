"""The two rules that are long: may this batch follow, may this marker be written? And how a refusal is worded."""

from fencepost.cluster.base.errors import ErrorCode

from .producer_snapshot import BATCH, BATCH_SIZE, ENTRY, ENTRY_SIZE, SEQUENCE_MAX, is_after
from .producer_verdicts import ACCEPT, Accept, ProducedBatch, Refused
from .verifications_machine import Verifications


def check_sequence(
    partition: str,
    batch: ProducedBatch,
    entry: bytes | None,
    verifications: Verifications | None,
) -> Refused | None:
    """ProducerAppendInfo.checkSequence: does this batch of a client follow the producer's last one?"""
    producer_id, sequence = batch.producer_id, batch.base_sequence
    has_batches = entry is not None and len(entry) > ENTRY_SIZE
    if verifications and (verification := verifications.of(producer_id)):
        # Transactions of version 2 start every epoch at 0, so nothing else may come first.
        if verification.supports_epoch_bump and sequence != 0 and not has_batches:
            return out_of_order(partition, producer_id, sequence, "0 (expected, no state for it)")
        # Of one that is known, its last sequence says what follows. (Kafka asks here, too: a retry that comes when its
        # transaction has ended then refuses all that follows it.)
        if not has_batches and sequence > verification.lowest_sequence:
            seen = f"{verification.lowest_sequence} (earliest seen sequence)"
            return out_of_order(partition, producer_id, sequence, seen)
    if entry is None:
        if verifications:
            lowest = verifications.lowest_refused(producer_id, batch.producer_epoch)
            if lowest is not None and is_after(sequence, lowest):
                return out_of_order(partition, producer_id, sequence, f"{lowest} (refused before)")
        return None  # Kafka accepts any sequence of a producer that it does not know
    known_epoch = ENTRY.unpack_from(entry)[0]
    if batch.producer_epoch != known_epoch:
        if sequence != 0 and known_epoch != -1:
            epochs = f"new epoch {batch.producer_epoch} of epoch {known_epoch} (current)"
            return out_of_order(partition, producer_id, sequence, epochs)
        return None
    last_sequence = BATCH.unpack_from(entry, len(entry) - BATCH_SIZE)[0] if has_batches else -1
    if sequence == last_sequence + 1 or (sequence == 0 and last_sequence == SEQUENCE_MAX):
        return None
    known = f"{last_sequence} (current end sequence number)"
    return out_of_order(partition, producer_id, sequence, known)


def check_marker(
    partition: str,
    producer_id: int,
    entry: bytes,
    producer_epoch: int,
    coordinator_epoch: int,
    transaction_version: int,
) -> Accept | Refused:
    known_epoch, known_coordinator_epoch, _, _, txn_first_offset = ENTRY.unpack_from(entry)
    if producer_epoch < known_epoch:
        return old_epoch(partition, producer_id, producer_epoch, known_epoch)
    if transaction_version >= 2 and producer_epoch == known_epoch and txn_first_offset >= 0:
        # A late marker of the last transaction must not end this one. With nothing open it is a harmless
        # retry of a marker that was written, and is written again (KAFKA-19999).
        return old_epoch(partition, producer_id, producer_epoch, known_epoch)
    if coordinator_epoch < known_coordinator_epoch:
        return coordinator_fenced(
            partition, producer_id, coordinator_epoch, known_coordinator_epoch
        )
    return ACCEPT


def old_epoch(partition: str, producer_id: int, producer_epoch: int, known_epoch: int) -> Refused:
    return Refused(
        ErrorCode.invalid_producer_epoch,
        f"Epoch of producer {producer_id} in {partition} is {producer_epoch}, which is smaller than"
        f" the last seen epoch {known_epoch}",
    )


def out_of_order(partition: str, producer_id: int, sequence: int, known: str) -> Refused:
    return Refused(
        ErrorCode.out_of_order_sequence_number,
        f"Out of order sequence number for producer {producer_id} in partition {partition}:"
        f" {sequence} (incoming seq. number), {known}",
    )


def coordinator_fenced(
    partition: str, producer_id: int, coordinator_epoch: int, known_epoch: int
) -> Refused:
    return Refused(
        ErrorCode.transaction_coordinator_fenced,
        f"Invalid coordinator epoch for producer {producer_id} in partition {partition}:"
        f" {coordinator_epoch} (zombie), {known_epoch} (current)",
    )
