"""A look at all partitions of a node: what of them is worth a number.

INVARIANT  a partition is looked at in one call that neither waits nor reads a disk; when a transaction began is asked
           for elsewhere, of those that have stood still for longer than a look.
PREVENTS   a scrape of two thousand partitions that holds up their writes.
PROVED BY  tests/replication/test_survey.py::test_what_stands_still_is_aged_by_its_first_record
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import ClusterImage

from .partition import Partition
from .partition_machine import NEVER_MS, Replica
from .standstill import Reason, has_late_transaction, written_ms

REASONS: Final[Mapping[Reason, str]] = {Reason.OPEN: "open", Reason.ENDED: "ended"}
AGED_MAX: Final = 50  # that are new since the last look, and whose first record is read


class Known:
    """What one look leaves to the next."""

    def __init__(self) -> None:
        # Of what stands still: its first offset, and when that was written (-1: nobody knows).
        self.since: dict[Partition, tuple[int, int]] = {}
        # What was seen and not aged yet: it comes first the next time, if it stands still.
        self.unread: dict[Partition, int] = {}
        # Followers that have never been level since this node leads: when that was first seen.
        self.lacking: dict[tuple[Partition, int], int] = {}


class Survey:
    """Of one look. `take` each partition; `end` it; read the fields."""

    def __init__(
        self,
        node_id: BrokerId,
        image: ClusterImage,
        *,
        now_ms: int,
        steady_ms: int,
        transaction_ms_max: int,
        known: Known | None = None,
    ) -> None:
        self._me = node_id
        self._image = image
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._transaction_ms_max = transaction_ms_max
        self._known = known or Known()
        self._since: dict[Partition, tuple[int, int]] = {}
        self._lacking: dict[tuple[Partition, int], int] = {}
        self._unread: list[tuple[Partition, Reason, int]] = []
        self.replicas = self.leaders = self.size_bytes = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = self.not_in_sync = 0
        self.lag_records: dict[int, int] = {}
        self.lag_ms: dict[int, int] = {}
        self.open_transactions = self.hanging = self.stable_lag = self.oldest_open_ms = 0
        self.standstills = dict.fromkeys(Reason, 0)
        self.standstill_ms = dict.fromkeys(Reason, 0)
        self.topic_size: dict[str, int] = {}
        self.topic_under_replicated: dict[str, int] = {}

    def take(self, partition: Partition, *, by_topic: bool = False) -> None:
        self.replicas += 1
        size = partition.log.size_bytes
        self.size_bytes += size
        topic, index = partition.topic_partition
        state = self._image.partition(topic, index)
        if state is not None and self._me not in state.isr and self._me not in state.adding:
            self.not_in_sync += 1
        if by_topic:
            self.topic_size[topic] = self.topic_size.get(topic, 0) + size
            self.topic_under_replicated.setdefault(topic, 0)
        if not partition.is_leader:
            return
        self.leaders += 1
        machine = partition.machine
        in_sync = len(machine.isr.isr)
        if in_sync < machine.settled_replicas:
            self.under_replicated += 1
            if by_topic:
                self.topic_under_replicated[topic] += 1
            least = machine.effective_min_isr
            self.under_min_isr += in_sync < least
            self.at_min_isr += in_sync == least
        for follower, replica in machine.replicas.items():
            self._lag(partition, follower, replica)
        if partition.log.producers_loaded:
            self._transactions(partition)

    def _lag(self, partition: Partition, follower: int, replica: Replica) -> None:
        end = partition.log_end_offset
        lacks = end - max(replica.log_end, partition.log_start_offset)
        self.lag_records[follower] = max(self.lag_records.get(follower, 0), lacks)
        lag_ms = 0
        if lacks > 0 or replica.log_end < 0:
            since = replica.caught_up_ms
            if since == NEVER_MS:
                key = partition, follower
                since = self._lacking[key] = self._known.lacking.get(key, self._steady_ms)
            lag_ms = max(0, self._steady_ms - since)
        self.lag_ms[follower] = max(self.lag_ms.get(follower, 0), lag_ms)

    def _transactions(self, partition: Partition) -> None:
        producers = partition.producers
        self.open_transactions += producers.open_count()
        oldest = producers.oldest_open()
        self.hanging += has_late_transaction(partition, self._now_ms, self._transaction_ms_max)
        first = partition.log.first_unstable_offset
        if first is None:
            return
        behind = partition.high_watermark - partition.last_stable_offset
        if behind <= 0:
            return
        self.stable_lag = max(self.stable_lag, behind)
        is_open = oldest is not None and oldest.txn_first_offset <= first
        reason = Reason.OPEN if is_open else Reason.ENDED
        self.standstills[reason] += 1
        known = self._known.since.get(partition)
        if known is not None and known[0] == first:
            self._since[partition] = known
            self._age(reason, known[1])
        else:
            self._unread.append((partition, reason, first))

    def _age(self, reason: Reason, since_ms: int) -> None:
        age_ms = max(0, self._now_ms - since_ms) if since_ms >= 0 else 0
        self.standstill_ms[reason] = max(self.standstill_ms[reason], age_ms)
        if reason is Reason.OPEN:
            self.oldest_open_ms = max(self.oldest_open_ms, age_ms)

    async def end(self, breathe: Callable[[], Awaitable[None]]) -> None:
        """Ask when what is new here began: of so many as that is quick for, the others when they still stand next time."""
        before = self._known.unread
        self._unread.sort(key=lambda each: before.get(each[0]) != each[2])
        for partition, reason, first in self._unread[:AGED_MAX]:
            since_ms = await written_ms(partition, first)
            self._since[partition] = first, since_ms
            self._age(reason, since_ms)
            await breathe()
        self._known.unread = {partition: first for partition, _, first in self._unread[AGED_MAX:]}
        self._known.since = self._since
        self._known.lacking = self._lacking
