"""A machine of transactions driven by hand: what a coordinator's shell would do, without one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.decision import (
    Answer,
    CancelTimer,
    Decision,
    Parked,
    Send,
    SetTimer,
    TimerKey,
)
from fencepost.txn.transactions.commands import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    Opened,
    VerifyPartitions,
    WriteMarkers,
)
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.records import TransactionRecord
from fencepost.txn.transactions.registry import decode
from fencepost.txn.transactions.transaction import Transaction
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

E = ErrorCode
ID = "pay"
P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))


class Scene:
    def __init__(self, *, server_version: int = 2, config: TransactionConfig | None = None) -> None:
        self.now_ms = 1_000_000
        self.server_version = server_version
        self.config = config or TransactionConfig()
        self.machine = self.new_machine()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.sent: list[WriteMarkers] = []
        self.opened: list[Opened] = []
        self.answers: dict[int, Any] = {}
        self.timers: dict[TimerKey, int] = {}
        self.tickets = 0
        self.next_producer_id = 100

    def new_machine(self) -> TransactionsMachine:
        return TransactionsMachine(
            self.config, lambda: self.now_ms / 1000, lambda: self.server_version
        )

    def take(self, decision: Decision) -> Any:
        for record in decision.records:
            self.log.append(record.encode())
            self.machine.apply(record)
        for step in decision.steps:
            self.machine.apply(step)
        for effect in decision.effects:
            match effect:
                case Answer(ticket, fields):
                    self.answers[ticket] = fields
                case Send(Opened() as opened):
                    self.opened.append(opened)
                case Send(what):
                    self.sent.append(what)
                case SetTimer(key, delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)
        return decision.reply

    def ask(self, command: Any) -> Any:
        """The reply, or the ticket (an int) of one that waits."""
        self.tickets += 1
        command = replace(command, ticket=self.tickets)
        reply = self.take(self.machine.decide(command, self.now_ms))
        if reply == NEEDS_PRODUCER_ID:
            self.next_producer_id += 1
            return self.ask(replace(command, fresh_producer_id=self.next_producer_id))
        return reply.ticket if isinstance(reply, Parked) else reply

    def init(self, transactional_id: str = ID, *, timeout_ms: int = 60_000, **more: Any) -> Any:
        return self.ask(
            InitProducerId(transactional_id=transactional_id, timeout_ms=timeout_ms, **more)
        )

    def add(self, who: Any, *partitions: TopicPartition, version: int = 0, **more: Any) -> Any:
        return self.ask(
            AddPartitions(
                transactional_id=more.pop("transactional_id", ID),
                producer_id=who[0],
                producer_epoch=who[1],
                partitions=partitions or (P0,),
                client_transaction_version=version,
                **more,
            )
        )

    def verify(self, who: Any, *partitions: TopicPartition) -> Any:
        return self.ask(
            VerifyPartitions(
                transactional_id=ID,
                producer_id=who[0],
                producer_epoch=who[1],
                partitions=partitions,
            )
        )

    def end(self, who: Any, *, commit: bool = True, bumps: bool = False, **more: Any) -> Any:
        return self.ask(
            EndTransaction(
                transactional_id=more.pop("transactional_id", ID),
                producer_id=who[0],
                producer_epoch=who[1],
                commit=commit,
                bumps_epoch=bumps,
                **more,
            )
        )

    def written(self) -> Any:
        """Every marker that was sent is in its log."""
        sent, self.sent = self.sent, []
        done = tuple(each.done for each in sent)
        return self.take(self.machine.decide(MarkersWritten(done=done), self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Timers are due in their order."""
        until = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda key: self.timers[key])
            if self.timers[key] > until:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.take(self.machine.tick(key, self.now_ms))
        self.now_ms = until

    def skip_to_epoch(self, epoch: int) -> None:
        """As if so many producers had come and gone."""
        later = replace(self.now(), producer_epoch=epoch)
        self.take(Decision(records=[TransactionRecord(later)]))

    def now(self, transactional_id: str = ID) -> Transaction:
        return self.machine.transactions[transactional_id]

    @property
    def phase(self) -> str:
        return self.now().phase.word

    def moved(self, log: Sequence[tuple[bytes, bytes | None]] | None = None) -> "Scene":
        """The same log in the hands of another coordinator, who knows nothing else."""
        after = Scene(server_version=self.server_version, config=self.config)
        after.now_ms = self.now_ms
        after.next_producer_id = self.next_producer_id + 1_000
        for key, value in self.log if log is None else log:
            record = decode(key, value)
            assert record is not None
            after.machine.apply(record)
            after.log.append((key, value))
        after.take(after.machine.loaded(after.now_ms))
        return after


def begun(**more: Any) -> tuple[Scene, Any]:
    scene = Scene(**more)
    return scene, scene.init()
