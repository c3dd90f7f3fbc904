"""Bugs of transactions, planted: who may write and in which order, what is decided, where it is marked, what is shown of it."""

from dataclasses import replace
from struct import pack_into
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import compute_crc, parse_header
from fencepost.node.transaction_doors import Verifier
from fencepost.replication.appends import Refusal
from fencepost.replication.log.log import Log
from fencepost.replication.log.producer_verdicts import ACCEPT
from fencepost.replication.log.producers_machine import ProducersMachine
from fencepost.replication.partition import Partition
from fencepost.replication.partition_machine import PartitionMachine
from fencepost.txn.runtime.decision import NOTHING, Decision, Send, SetTimer
from fencepost.txn.runtime.shard import Shard
from fencepost.txn.transactions import marker_sender, policy, refusals, transactions_machine, turn
from fencepost.txn.transactions import service as transaction_service
from fencepost.txn.transactions.commands import EndedBefore
from fencepost.txn.transactions.marker_sender import MarkerSender
from fencepost.txn.transactions.service import TransactionService
from fencepost.txn.transactions.transaction import Phase
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

from .bugs import Patch, bug

# --- who may write --------------------------------------------------------------------------------


@bug(
    seen_by="torn unseen lost-write G1a bank-sum bank-snapshot",
    campaign="transactions",
    faults="reset",
    workloads="bank",
    protocol="new",
)
def fence_skipped(patch: Patch) -> None:
    """InitProducerId gives out the same epoch again: who was before is not fenced."""
    patch.put(policy, "_next", lambda had, _fresh: had)


@bug(
    seen_by="torn G1a lost-write unseen bank-sum marker-late no-progress dead-client",
    campaign="transactions",
    faults="delay-client cut-client reset",
    workloads="bank",
    protocol="old",
    seconds=8.0,
    seeds=20,
)
def zombies_may_write(patch: Patch) -> None:
    """A partition takes batches of an old producer epoch, and asks no coordinator about the first of a transaction."""
    right = ProducersMachine.decide

    def decide(self: ProducersMachine, batch: Any, *, origin_client: bool) -> Any:
        verdict = right(self, batch, origin_client=origin_client)
        error = getattr(verdict, "error", None)
        fences = (ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state)
        return ACCEPT if error in fences else verdict

    patch.put(ProducersMachine, "decide", decide)
    patch.put(Verifier, "first_write", lambda *_, **__: None)


@bug(
    seen_by="no-progress marker-late torn G1a lost-write unseen bank-sum",
    campaign="transactions",
    faults="late-batch",
    workloads="bank",
    protocol="old",
)
def first_writes_are_not_verified(patch: Patch) -> None:
    """A partition asks no coordinator whether the transaction of a batch is open (KIP-890)."""
    right = Verifier.first_write

    def first_write(self: Verifier, *write: Any, add: bool) -> Any:
        return right(self, *write, add=True) if add else None

    patch.put(Verifier, "first_write", first_write)
    patch.put(ProducersMachine, "_is_confirmed", lambda *_: True)


@bug(
    seen_by="no-progress",
    campaign="transactions",
    faults="reset",
    workloads="bank",
    protocol="new",
)
def first_writes_are_refused(patch: Patch) -> None:
    """A partition refuses the first batch of every transaction: it has asked no coordinator whether that is open."""
    patch.put(Verifier, "first_write", lambda *_, **__: None)


@bug(seen_by="refused", campaign="transactions", workloads="bank append")
def open_transactions_are_called_none(patch: Patch) -> None:
    """Each third transaction that is open is told INVALID_TXN_STATE where it begins to write, which ends Java's producer."""
    right = Verifier.verify
    open_ones = 0

    async def verify(self: Verifier, *asked: Any, **named: Any) -> list[ErrorCode]:
        nonlocal open_ones
        codes = await right(self, *asked, **named)
        if set(codes) == {ErrorCode.none}:
            open_ones += 1
            if open_ones % 3 == 0:
                return [ErrorCode.invalid_txn_state] * len(codes)
        return codes

    patch.put(Verifier, "verify", verify)


@bug(
    seen_by="int-nonmonotonic-send nonmonotonic-send key-order",
    campaign="transactions",
    faults="clock",
    workloads="bank",
    protocol="old",
)
def batches_change_places(patch: Patch) -> None:
    """A leader says of a transaction's batch that it has it, and writes it behind its producer's next: they change places."""
    right = Partition.append_as_leader
    held: dict[tuple[Partition, int], bytearray] = {}

    def append(self: Partition, records: Any, **named: Any) -> Any:
        header = parse_header(records)
        is_client_s = header.is_transactional and named.get("origin_client", True)
        if not (header.is_control or is_client_s):
            return right(self, records, **named)
        first = held.pop((self, header.producer_id), None)
        if header.is_control:
            if first is not None:  # there was no other in this transaction
                right(self, first, required_acks=-1, now_ms=named["now_ms"])
            return right(self, records, **named)
        if first is None:
            held[self, header.producer_id] = bytearray(records)
            return Refusal(ErrorCode.duplicate_sequence_number)
        sequence = parse_header(first).base_sequence
        overtaking = _as_number(records, sequence)
        named |= {"checked": None, "behind": None}
        written = right(self, overtaking, **named)
        right(self, _as_number(first, sequence + header.record_count), **named)
        return written

    patch.put(Partition, "append_as_leader", append)


def _as_number(records: Any, sequence: int) -> bytearray:
    """The same batch with another sequence."""
    batch = bytearray(records)
    pack_into(">i", batch, 53, sequence)
    pack_into(">I", batch, 17, compute_crc(batch, 0, len(batch)))
    return batch


# --- what is decided ------------------------------------------------------------------------------


@bug(
    seen_by="refused dead-client",
    campaign="transactions",
    faults="left-behind",
    workloads="bank",
    seconds=12.0,
)
def deposed_coordinators_end_producers(patch: Patch) -> None:
    """A coordinator says what ends a producer by what it remembers, and does not ask whether it still is the coordinator."""
    right = TransactionService.__init__

    async def certain() -> bool:
        return True

    def init(self: TransactionService, *args: Any, **named: Any) -> None:
        right(self, *args, **named)
        self._confirm_image = certain

    patch.put(TransactionService, "__init__", init)


@bug(
    seen_by="unwritten-end",
    campaign="transactions",
    faults="left-behind",
    workloads="bank",
    protocol="old",
    seconds=12.0,
)
def deposed_coordinators_know_of_no_next_transaction(patch: Patch) -> None:
    """A coordinator takes the end of a transaction for the last one's, sent again, and does not ask whether it still is one. (A bug that was here once.)"""

    def is_from_memory(reply: Any) -> bool:
        return refusals.is_from_memory(reply) and not isinstance(reply, EndedBefore)

    patch.put(transaction_service, "is_from_memory", is_from_memory)


@bug(
    seen_by="marker-undecided torn decision-changed",
    campaign="transactions",
    faults="kill-coordinator at-a-decision hunt cut-coordinator",
    seeds=20,
)
def answers_before_they_are_committed(patch: Patch) -> None:
    """A coordinator answers, and sends markers, as soon as it has written what they rest on."""
    patch.put(Shard, "_deliver_when_committed", Shard._deliver)


@bug(
    seen_by="marker-undecided torn",
    campaign="transactions",
    faults="kill-coordinator at-a-decision hunt",
    workloads="bank",
)
def failover_aborts_what_was_committed(patch: Patch) -> None:
    """A coordinator that takes over aborts what the one before it had decided to commit."""
    right = transactions_machine._found

    def found(transaction: Any, now_ms: int) -> Any:
        effects = right(transaction, now_ms)
        if transaction.phase is not Phase.PREPARE_COMMIT:
            return effects
        return tuple(
            replace(each, what=replace(each.what, commit=False))
            for each in effects
            if isinstance(each, Send)
        )

    patch.put(transactions_machine, "_found", found)


@bug(
    seen_by="no-progress",
    campaign="transactions",
    faults="clock delay-client",
    workloads="bank append",
    seconds=6.0,
    seeds=60,
)
def transactions_age_by_the_wall_clock(patch: Patch) -> None:
    """A transaction's time is up by wall time: a clock that is set back keeps it open. (A bug that was here once.)"""
    right = TransactionsMachine._time_is_up

    def time_is_up(self: TransactionsMachine, transactional_id: str, now_ms: int) -> Decision:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return NOTHING
        left_ms = transaction.deadline_ms - now_ms
        if transaction.phase is Phase.ONGOING and left_ms > 0:
            key = turn.timeout_key(transaction)
            return Decision(effects=(SetTimer(key, left_ms),))
        return right(self, transactional_id, now_ms)

    patch.put(TransactionsMachine, "_time_is_up", time_is_up)


# --- where it is marked ---------------------------------------------------------------------------


@bug(seen_by="no-progress", campaign="transactions", faults="reset", workloads="bank")
def marker_left_out(patch: Patch) -> None:
    """Of a transaction's markers only the first partition's is sent."""
    right = MarkerSender.send

    def forgetful(self: MarkerSender, partition: int, shard: Any, markers: Any) -> None:
        right(self, partition, shard, replace(markers, partitions=markers.partitions[:1]))

    patch.put(MarkerSender, "send", forgetful)


@bug(
    seen_by="no-progress marker-missing G1a torn lost-write bank-sum bank-snapshot",
    campaign="transactions",
    faults="isolate kill-controller",
    workloads="bank",
    seconds=6.0,
    seeds=60,
)
def marker_refused_is_enough(patch: Patch) -> None:
    """A marker that its partition refused counts as written: the transaction is complete without it."""
    refusals = {ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out}
    patch.put(marker_sender, "_NEEDLESS", marker_sender._NEEDLESS | refusals)


@bug(
    seen_by="no-progress",
    campaign="transactions",
    faults="kill-coordinator at-a-decision",
    workloads="bank",
    protocol="old",
)
def markers_not_sent_after_a_move(patch: Patch) -> None:
    """A coordinator that takes over sends no markers for what was decided before."""
    patch.put(transactions_machine, "_found", lambda *_: ())


@bug(seen_by="marker-undecided", campaign="transactions", faults="reset", workloads="bank")
def marker_says_the_contrary(patch: Patch) -> None:
    """Markers say abort where commit was decided, and commit where abort was."""
    right = turn.markers_of

    def turned(one: Any) -> Any:
        markers = right(one)
        return replace(markers, commit=not markers.commit)

    patch.put(turn, "markers_of", turned)


# --- what is shown --------------------------------------------------------------------------------


@bug(
    seen_by="G1a precommitted-read",
    campaign="transactions",
    faults="reset",
    workloads="append",
)
def last_stable_offset_ignored(patch: Patch) -> None:
    """Readers at read_committed are shown what open transactions have written."""
    patch.put(PartitionMachine, "last_stable_offset", lambda self, _unstable: self.high_watermark)


@bug(seen_by="G1a", campaign="transactions", faults="reset", workloads="bank")
def aborted_not_named(patch: Patch) -> None:
    """A fetch does not name the aborted transactions in what it returns."""
    patch.put(Log, "aborted_between", lambda *_, **__: [])


@bug(
    seen_by="forgotten",
    campaign="transactions",
    faults="pause-client isolate cut-client",
    workloads="bank append",
    config="transaction.remove.expired.transaction.cleanup.interval.ms=300",
)
def ids_expire_early(patch: Patch) -> None:
    """A transactional id is forgotten when nobody has used it for a second, whatever its expiration."""
    right = TransactionsMachine._expire

    def expire(self: TransactionsMachine, now_ms: int) -> Any:
        return right(self, now_ms + self.config.transactional_id_expiration_ms - 1_000)

    patch.put(TransactionsMachine, "_expire", expire)


@bug(
    seen_by="ended-early",
    campaign="transactions",
    faults="kill reset kill-coordinator",
    workloads="append bank",
    seconds=8.0,
    seeds=20,
)
def times_are_up_early(patch: Patch) -> None:
    """A transaction is ended, and its producer fenced, after a fifth of its time."""

    def early(key: Any, ms: int) -> SetTimer:
        return SetTimer(key, ms // 5 if key[0] == turn.TIMEOUT else ms)

    patch.put(turn, "SetTimer", early)
