"""A transaction coordinator with groups and checks, without shells: machines, a log as a list, a clock to be moved.

Does with a Decision what `txn/runtime/shard.py` does, except that everything is committed at once.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.decision import Answer, CancelTimer, Decision, Parked, Send, SetTimer
from fencepost.txn.runtime.timers import Timers
from fencepost.txn.transactions.added_config import AddedConfig
from fencepost.txn.transactions.check_back_commands import (
    AnswerCheck,
    Attempt,
    ListHalves,
    PollChecks,
    PrepareHalf,
    ReleaseHalf,
    Verdict,
)
from fencepost.txn.transactions.check_back_machine import CheckBackMachine
from fencepost.txn.transactions.check_back_records import HalfMessage
from fencepost.txn.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    Opened,
    WriteMarkers,
)
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.group_commit_commands import EndGroup, Identity, Refusal
from fencepost.txn.transactions.group_commit_machine import GroupCommitMachine
from fencepost.txn.transactions.ids import transactional_partition_key
from fencepost.txn.transactions.registry import CODEC
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

DATA = TopicPartition("data", 0)
Batch = list[tuple[bytes, bytes | None]]


class AddedScene:
    def __init__(self, log: list[Batch] = (), now_ms: int = 1_000_000, **settings: int) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.timers = Timers()
        self.log: list[Batch] = [*log]
        self.parked: set[int] = set()
        self.answers: dict[int, Any] = {}
        self.markers: list[WriteMarkers] = []
        self.ticket = 0
        self.fresh = 100
        config = AddedConfig(**settings)
        self.machine = TransactionsMachine(TransactionConfig(), lambda: self.now_ms / 1000)
        self.groups = GroupCommitMachine(config, self.machine)
        self.checks = CheckBackMachine(config, self.machine, transactional_partition_key)
        self.machine.attach(self.groups)
        self.machine.attach(self.checks)
        for batch in self.log:
            for key, value in batch:
                assert CODEC.owner_of(key, value) is not None
                record = CODEC.decode(key, value)
                assert record is not None
                self.machine.apply(record)
        self._take(self.machine.loaded(now_ms))

    def moved(self, batches: int | None = None) -> "AddedScene":
        """Another coordinator, which has nothing but (the first batches of) the log."""
        kept = self.log if batches is None else self.log[:batches]
        return AddedScene(kept, self.now_ms, **self.settings)

    # -- what a shard does -----------------------------------------------------------------------

    def do(self, command: Any) -> Any:
        """The reply, or Parked: then it will be in `answers`, by its ticket."""
        decision = self.machine.decide(command, self.now_ms)
        assert decision == self.machine.decide(command, self.now_ms), "deciding changes nothing"
        self._take(decision)
        return decision.reply

    def pass_ms(self, passed_ms: int) -> None:
        until_ms = self.now_ms + passed_ms
        while True:
            next_ms = self.timers.next_ms()
            if next_ms is None or next_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            for _, key in self.timers.due(self.now_ms, 1):
                self._take(self.machine.tick(key, self.now_ms))
        self.now_ms = until_ms

    def _take(self, decision: Decision) -> None:
        batch: Batch = []
        for record in decision.records:
            key, value = record.encode()
            assert CODEC.decode(key, value) == record, "what is read again is the same"
            self.machine.apply(record)
            batch.append((key, value))
        if batch:
            self.log.append(batch)
        for step in decision.steps:
            self.machine.apply(step)
        if isinstance(decision.reply, Parked):
            self.parked.add(decision.reply.ticket)
        for effect in decision.effects:
            match effect:
                case Answer(ticket, fields):
                    self.parked.discard(ticket)
                    self.answers[ticket] = fields
                case SetTimer(key, delay_ms):
                    self.timers.set("scene", key, self.now_ms + delay_ms)
                case CancelTimer(key):
                    self.timers.cancel("scene", key)
                case Send(Opened()):
                    pass  # leaders are told
                case Send(what):
                    self.markers.append(what)

    # -- producers -------------------------------------------------------------------------------

    def next_ticket(self) -> int:
        self.ticket += 1
        return self.ticket

    def starts(self, transactional_id: str, timeout_ms: int = 60_000) -> Any:
        """Its producer's id and epoch, or what it is refused with."""
        self.fresh += 1
        command = InitProducerId(
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            fresh_producer_id=self.fresh,
            ticket=self.next_ticket(),
        )
        reply = self.do(command)
        if isinstance(reply, Parked):
            while reply.ticket not in self.answers:  # who waited before it may have opened another
                assert self.markers, "it waits for nothing"
                self.finish()
            reply = self.answers[reply.ticket]
        return reply if isinstance(reply, ErrorCode) else Identity(*reply[:2])

    def writes(
        self,
        transactional_id: str,
        identity: Identity,
        version: int = 0,
        partitions: tuple[TopicPartition, ...] = (DATA,),
    ) -> Any:
        command = AddPartitions(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            partitions=partitions,
            client_transaction_version=version,
            ticket=self.next_ticket(),
        )
        return self.do(command)

    def opened(self, transactional_id: str) -> Identity:
        """A producer with an open transaction."""
        identity = self.starts(transactional_id)
        assert self.writes(transactional_id, identity) is ErrorCode.none
        return identity

    def ends(self, transactional_id: str, identity: Identity, *, commit: bool) -> Any:
        """Its own EndTxn, as a client of version 4 sends it."""
        return self.do(
            EndTransaction(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                commit=commit,
                ticket=self.next_ticket(),
            )
        )

    def finish(self) -> None:
        """All markers are written."""
        markers, self.markers = self.markers, []
        if markers:
            self.do(MarkersWritten(done=tuple(each.done for each in markers)))

    def phase(self, transactional_id: str) -> str:
        return self.machine.transactions[transactional_id].phase.word

    # -- groups ----------------------------------------------------------------------------------

    def end_group(
        self, group: str, number: int, *, commit: bool, note: str = "", **members: Identity
    ) -> Any:
        return self.do(
            EndGroup(group=group, number=number, commit=commit, members=members, note=note)
        )

    # -- checks ----------------------------------------------------------------------------------

    def prepares(
        self, transactional_id: str, identity: Identity, half_id: str = "h1", half_number: int = 0
    ) -> Any:
        return self.do(
            PrepareHalf(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                half_id=half_id,
                half_number=half_number,
            )
        )

    def polls(
        self, group: str, member: str, *delivered: Attempt, wait_ms: int = 20_000, most: int = 10
    ) -> Any:
        """The checks that it is given, or the ticket by which it waits."""
        reply = self.do(
            PollChecks(
                group=group,
                member=member,
                ticket=self.next_ticket(),
                wait_ms_max=wait_ms,
                checks_max=most,
                delivered=delivered,
            )
        )
        if isinstance(reply, Parked):
            return reply.ticket
        return reply if isinstance(reply, Refusal) else reply["checks"]

    def given(self, ticket: int) -> Any:
        return self.answers[ticket]["checks"]

    def answers_check(
        self, transactional_id: str, verdict: Verdict, half_id: str = "h1", attempt: int = 0
    ) -> Any:
        return self.do(
            AnswerCheck(
                transactional_id=transactional_id,
                half_id=half_id,
                verdict=verdict,
                by="checker c",
                attempt=attempt,
            )
        )

    def releases(self, transactional_id: str, half_id: str = "h1") -> Any:
        return self.do(ReleaseHalf(transactional_id=transactional_id, half_id=half_id))

    def half(self, transactional_id: str) -> HalfMessage:
        return self.checks.halves[transactional_id]

    def listed(self, *, parked: bool = False) -> list[str]:
        found = self.do(ListHalves(parked_only=parked))
        return [each.transactional_id for each in found]
