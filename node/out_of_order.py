"""A batch that is out of order here, judged by what a leader knows that may have been deposed: the quorum is asked before its client is told.

INVARIANT  a client is told OUT_OF_ORDER_SEQUENCE_NUMBER only by who was the partition's leader when the batch was judged, in the
           epoch in which it judged; who was deposed, or can't know, says NOT_LEADER_OR_FOLLOWER.
PREVENTS   a leader that slept, and has never had what its successor was given: for the first moment afterwards all that
           goes on behind that is out of order. librdkafka begins a new epoch then, and sends again what was written.
PROVED BY  tests/sim/test_cluster_sequences.py::test_a_leader_that_was_deposed_calls_nothing_out_of_order

Kafka's says what it knows. What is written is not confirmed so: a leader that was deposed can't commit it, and does not acknowledge it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.partition import Partition

from .judged import Judged, doubtful
from .services import Services

OUT_OF_ORDER: Final = ErrorCode.out_of_order_sequence_number


class OutOfOrder:
    """Of one request: `tell` says its answer, at once where nothing of it is out of order."""

    __slots__ = ("_asking", "_judged", "_say", "_services")

    def __init__(self, services: Services, say: Callable[[], None]) -> None:
        self._services = services
        self._say = say
        self._judged: list[Judged] = []
        self._asking: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._judged)

    def note(self, part: dict[str, Any], partition: Partition) -> None:
        self._judged.append(Judged.by(partition, part))

    def tell(self) -> None:
        if self._judged:
            tasks = self._services.env.tasks
            self._asking = tasks.spawn(self._confirm(), name="confirm the lead")
        else:
            self._say()

    async def _confirm(self) -> None:
        for judged in await doubtful(self._services, self._judged):
            why = f"{judged.partition.topic_partition}: another may lead it by now"
            judged.part.update(error_code=ErrorCode.not_leader_or_follower, error_message=why)
        self._say()

    def cancel(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
