"""A producers machine with the end of its log, and the batches that it takes in."""

from dataclasses import dataclass, field

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_verdicts import CompletedTxn, Marker, Refused
from fencepost.replication.log.producers_machine import ProducersMachine

PID = 7
NOW = 1_700_000_000_000
DAY = 24 * 60 * 60 * 1000
OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
OLD_EPOCH = ErrorCode.invalid_producer_epoch


@dataclass
class Produced:
    """A batch's header as far as the machine reads it."""

    base_sequence: int = -1
    count: int = 1
    producer_epoch: int = 0
    producer_id: int = PID
    is_transactional: bool = False
    is_control: bool = False
    max_timestamp: int = 5
    last_offset_delta: int = field(init=False)

    def __post_init__(self) -> None:
        self.last_offset_delta = self.count - 1


@dataclass
class Given:
    """A machine and the end of its log."""

    machine: ProducersMachine = field(default_factory=lambda: ProducersMachine(name="orders-0"))
    end: int = 0
    now_ms: int = NOW

    def wrote(self, *batches: Produced) -> "Given":
        for batch in batches:
            last = self.end + batch.last_offset_delta
            self.machine.apply(batch, self.end, last, now_ms=self.now_ms)
            self.end = last + 1
        return self

    def ended(
        self, *, epoch: int = 0, coordinator_epoch: int = 3, commit: bool = False, pid: int = PID
    ) -> CompletedTxn | None:
        batch = Produced(
            producer_epoch=epoch, is_control=True, is_transactional=True, producer_id=pid
        )
        marker = Marker(coordinator_epoch, commit, 9)
        completed = self.machine.apply(batch, self.end, self.end, now_ms=self.now_ms, marker=marker)
        self.end += 1
        return completed

    def answer(self, batch: Produced, *, origin_client: bool = True) -> object:
        verdict = self.machine.decide(batch, origin_client=origin_client)
        return verdict.error if isinstance(verdict, Refused) else verdict


def five(first: int = 0, **kind: int) -> list[Produced]:
    return [Produced(first + 10 * i, 10, **kind) for i in range(5)]


def begin(log: Given, sequence: int = 0, epoch: int = 0) -> int:
    """A verification is begun; the guard that its answer must show."""
    guard = log.machine.start_verification(
        PID, sequence, epoch, supports_epoch_bump=False, now_ms=NOW
    )
    assert isinstance(guard, int)
    return guard
