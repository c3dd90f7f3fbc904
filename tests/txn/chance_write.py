"""One batch on its way to a partition: verified, written, committed, and sent again until its client knows.

Does what `node/handlers/produce.py` and `node/transaction_doors.py` do. Each time the batch arrives it is for itself,
for the time before may be on its way still.
"""

from typing import Any, Final, NamedTuple

from chance_cluster import Network, Partition, Tell, Written, nobody_hears
from chance_coordinator import Coordinator
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_verdicts import Duplicate, Refused
from fencepost.replication.log.verifications_machine import NO_GUARD
from fencepost.txn.transactions.commands import AddPartitions, VerifyPartitions

E = ErrorCode
ASKS_AGAIN: Final = frozenset(
    {
        E.not_enough_replicas, E.not_leader_or_follower, E.concurrent_transactions,
        E.request_timed_out, E.not_coordinator,
    }
)  # fmt: skip
SENT_MAX: Final = 7  # times
WORDS_MAX: Final = 5  # as in `node/transaction_doors.py`


class Batch(NamedTuple):
    transactional_id: str
    is_new: bool  # its client has partitions added by those who write to them
    written: Written
    partition: Partition


class Arrival:
    """A batch that has come to the leader of its partition."""

    def __init__(
        self, batch: Batch, network: Network, coordinator: Coordinator, tell: Tell
    ) -> None:
        self._batch, self._written, self._partition = batch, batch.written, batch.partition
        self._network = network
        self._coordinator = coordinator
        self._tell = tell
        self._leader_epoch = self._partition.leader_epoch
        self._asked = 0
        self._is_confirmed = False

    def verify(self) -> None:
        written = self._written
        guard = self._partition.producers.start_verification(
            written.producer_id,
            written.base_sequence,
            written.producer_epoch,
            supports_epoch_bump=self._batch.is_new,
            now_ms=self._network.now_ms,
        )
        if isinstance(guard, Refused):
            self._tell(guard.error)
        elif guard == NO_GUARD:
            self._write()
        else:
            self._asked += 1
            self._network.post(
                lambda: self._coordinator.ask(
                    self._question(), lambda reply: self._answer(guard, reply)
                )
            )

    def _question(self) -> AddPartitions | VerifyPartitions:
        who: dict[str, Any] = {
            "transactional_id": self._batch.transactional_id,
            "producer_id": self._written.producer_id,
            "producer_epoch": self._written.producer_epoch,
            "partitions": (self._partition.place,),
        }
        if self._batch.is_new and self._coordinator.server_version >= 2:
            return AddPartitions(**who, client_transaction_version=2)
        return VerifyPartitions(**who)

    def _answer(self, guard: int, reply: Any) -> None:
        transaction = self._coordinator.machine.transactions.get(self._batch.transactional_id)
        started_ms = -1 if transaction is None else transaction.start_timestamp
        code = reply[self._partition.place] if isinstance(reply, dict) else reply
        self._network.post(lambda: self._hear(guard, code, started_ms))

    def _hear(self, guard: int, code: ErrorCode, started_ms: int) -> None:
        who = self._written.producer_id, self._written.producer_epoch
        if self._partition.leader_epoch != self._leader_epoch:
            self._tell(E.not_leader_or_follower)
        elif code is not E.none:
            self._tell(code)
        elif self._partition.producers.verifications.confirm(*who, guard, started_ms):
            self._is_confirmed = True
            self._write()
        elif self._asked <= WORDS_MAX:
            self.verify()
        else:
            self._tell(E.not_enough_replicas)

    def _write(self) -> None:
        verdict = self._partition.producers.decide(self._written, origin_client=True)
        if isinstance(verdict, Duplicate):
            self._partition.when_committed(self._tell)
        elif not isinstance(verdict, Refused):
            self._partition.append(self._written, self._tell)
        elif verdict.error is E.invalid_txn_state and self._is_confirmed:
            self._tell(E.not_enough_replicas)  # a marker came meanwhile: it is asked for anew
        else:
            self._tell(verdict.error)


class Sending:
    """What its client does for a batch. `tell` hears what became of it, or why nobody knows."""

    def __init__(
        self, batch: Batch, network: Network, coordinator: Coordinator, tell: Tell
    ) -> None:
        self._batch = batch
        self._network = network
        self._coordinator = coordinator
        self._tell = tell
        self._sent = 0

    def send(self) -> None:
        self._sent += 1
        self._network.post(lambda: self._arrive(self._hear_or_not))
        if self._network.maybe(0.1):
            self._network.post_again(lambda: self._arrive(nobody_hears))

    def _arrive(self, tell: Tell) -> None:
        Arrival(self._batch, self._network, self._coordinator, tell).verify()

    def _hear_or_not(self, code: ErrorCode) -> None:
        if self._network.maybe(0.1):
            code = E.request_timed_out
        written, place = self._batch.written, self._batch.partition.place
        who = written.producer_id, written.producer_epoch
        self._network.say("  batch", written.name, *who, "to", place.partition, code.name)
        if code in ASKS_AGAIN and self._sent < SENT_MAX:
            self.send()
        else:
            self._tell(code)
