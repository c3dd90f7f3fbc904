"""A clock, a network that keeps no order, and partitions in the hands of changing leaders.

Nothing here knows of transactions' coordinators: see `chance_coordinator.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.producer_verdicts import Marker
from fencepost.replication.log.producers_machine import ProducersMachine

E = ErrorCode
PLACES: Final = [TopicPartition("data", n) for n in range(2)]
LATE_MS: Final = [0, 1, 5, 50]
VERY_LATE_MS: Final = [0, 5, 50, 1_000, 3_000]
Tell = Callable[[ErrorCode], None]


class Network:
    """Messages of any kind on their way, and the one clock of all."""

    def __init__(self, chance: Random, *, speaks: bool = False) -> None:
        self.chance = chance
        self.now_ms = 1_000_000
        self._speaks = speaks
        self._under_way: list[tuple[int, Callable[[], None]]] = []

    def say(self, *words: object) -> None:
        if self._speaks:
            print(self.now_ms, *words)

    def maybe(self, probability: float) -> bool:
        return self.chance.random() < probability

    def post(self, arrive: Callable[[], None]) -> None:
        late_ms = self.chance.choice(LATE_MS) if self.maybe(0.2) else 0
        self._under_way.append((self.now_ms + late_ms, arrive))

    def post_again(self, arrive: Callable[[], None]) -> None:
        """What is doubled may come when all is over that it is about."""
        self._under_way.append((self.now_ms + self.chance.choice(VERY_LATE_MS), arrive))

    def deliver(self, messages: int) -> None:
        """Any of those that may have arrived by now."""
        for _ in range(messages):
            due = [each for each in self._under_way if each[0] <= self.now_ms]
            if not due:
                return
            message = self.chance.choice(due)
            self._under_way.remove(message)
            message[1]()

    @property
    def is_quiet(self) -> bool:
        return not self._under_way


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A batch of one record, or the marker that ends a transaction."""

    producer_id: int
    producer_epoch: int
    max_timestamp: int
    base_sequence: int = -1
    name: str = ""  # no other batch has it
    marker: Marker | None = None
    last_offset_delta: int = 0
    is_transactional: bool = True

    @property
    def is_control(self) -> bool:
        return self.marker is not None


class Partition:
    """A log, and what its leader of now knows of the producers in it."""

    def __init__(self, place: TopicPartition, network: Network, *, loses_tails: bool) -> None:
        self.place = place
        self.leader_epoch = 0
        self.committed = 0  # up to here all replicas have it
        self.log: list[Written] = []
        self._network = network
        self._loses_tails = loses_tails
        self.producers = self._new_producers()

    def _new_producers(self) -> ProducersMachine:
        return ProducersMachine(verify_transactions=True, name=str(self.place))

    def append(self, batch: Written, tell: Tell) -> None:
        """As the leader does it; `tell` hears when it is committed, or that another leads by then."""
        self._apply(batch, len(self.log))
        self.log.append(batch)
        self.when_committed(tell)

    def when_committed(self, tell: Tell) -> None:
        """All that is in the log now."""
        leader_epoch, end = self.leader_epoch, len(self.log)

        def followers_have_it() -> None:
            if leader_epoch != self.leader_epoch:
                tell(E.not_leader_or_follower)
                return
            self._commit(end)
            tell(E.none)

        self._network.post(followers_have_it)

    def elect(self) -> None:
        """Another leads, and knows what is in its log; what was not committed it may not have."""
        self.leader_epoch += 1
        if self._loses_tails:
            del self.log[self._network.chance.randint(self.committed, len(self.log)) :]
        self.producers = self._new_producers()
        for offset, batch in enumerate(self.log):
            self._apply(batch, offset)
        self._commit(len(self.log))

    def _apply(self, batch: Written, offset: int) -> None:
        now_ms = self._network.now_ms
        self.producers.apply(batch, offset, offset, now_ms=now_ms, marker=batch.marker)

    def _commit(self, end: int) -> None:
        self.committed = max(self.committed, end)
        self.producers.on_high_watermark(self.committed)

    def shown(self) -> Iterator[tuple[str, bool | None]]:
        """Each batch with how the next marker of its producer ends it: commit, or abort, or None of one that is open."""
        ends: dict[int, bool] = {}
        for batch in reversed(self.log):
            if batch.marker is not None:
                ends[batch.producer_id] = batch.marker.commit
            else:
                yield batch.name, ends.get(batch.producer_id)


def nobody_hears(_code: ErrorCode) -> None:
    """Of what comes a second time."""
