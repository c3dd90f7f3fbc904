"""What all logs of a node share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Env

from .burial import Graves
from .checkpoint import PartitionOffsets
from .pool import FilePool
from .producer_budget import ProducerBudget
from .producers_clock import ProducersClock
from .producers_machine import PRODUCER_ID_EXPIRATION_MS
from .removal import Removal
from .spare import Spare

if TYPE_CHECKING:
    from .log import Log


def _nobody_looks(_log: TopicPartition, _first: int, _end: int) -> None:
    return


def _nobody_hears(_log: TopicPartition) -> None:
    return


@dataclass(slots=True, eq=False)
class Recovered:
    """What this start found that the last run had not made durable, or not wholly written."""

    logs: int = 0
    records_bytes: int = (
        0  # whole batches behind what was known to be durable: they were checked, and are kept
    )
    cut_bytes: int = 0  # torn


@dataclass(slots=True, eq=False, kw_only=True)
class Shared:
    env: Env
    pool: FilePool
    offsets: PartitionOffsets | None = None  # None: nothing outlives the log (tests, tools)
    removal: Removal | None = None  # None with them
    spare: Spare | None = None  # None with them
    budget: ProducerBudget = field(default_factory=ProducerBudget)
    producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    # Whether a transaction's first batch needs its coordinator's word; where there is no coordinator it has none.
    verify_transactions: bool = False
    clock: ProducersClock = field(init=False)
    graves: Graves = field(init=False)
    recovered: Recovered = field(default_factory=Recovered)
    # Logs with something to do for the next checkpoint, in the order in which they came to have it.
    unsettled: "dict[Log, None]" = field(default_factory=dict)
    # Somebody was about to be served these offsets, and they are not what was written.
    on_suspicion: Callable[[TopicPartition, int, int], None] = _nobody_looks
    # It has failed. Who brought that about may be a checkpoint, of which nobody waits for an answer.
    on_failed: Callable[[TopicPartition], None] = _nobody_hears
    # Whose producers are being written.
    snapshotting: "dict[Log, asyncio.Task[None]]" = field(default_factory=dict)
    stops: bool = False  # what is written from now on is written at once

    def __post_init__(self) -> None:
        self.clock = ProducersClock(self.env)
        self.graves = Graves(self.env)

    @classmethod
    def alone(cls, env: Env) -> "Shared":
        return cls(env=env, pool=FilePool(env.disk))
