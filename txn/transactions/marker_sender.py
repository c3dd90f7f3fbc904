"""Has every partition of a decided transaction show how it ended.

INVARIANT  a transaction is said to be done only when each of its partitions has the marker in its log, or is no more.
PREVENTS   a partition whose readers wait for ever for a transaction that its coordinator takes for finished.
PROVED BY  tests/txn/test_marker_sender.py::test_a_transaction_is_done_when_its_last_partition_shows_the_outcome

Markers go to the leaders of the partitions, all that are ready in a turn of the loop in one request a node. What is
not answered well is sent again, after a pause or as soon as the partition has another leader. A marker that arrives
twice does no harm while its transaction is not done, and until then nothing else of its producer is begun.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import NO_LEADER, NO_TIMESTAMP, BrokerId, TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.cluster.base.request_scope import current_scope, enter_scope, joined
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta

from ..runtime.shard import Shard
from .commands import MarkersDone, WriteMarkers

E = ErrorCode
REQUESTS_MAX: Final = 64  # on their way to one node; more wait and go together
WRITE_S_MAX: Final = 30.0  # then it is sent again, whatever became of it
PAUSE_MS: Final = 20
PAUSE_MS_MAX: Final = 1_000
# Where nobody leads, the image says when somebody does; this is for what it does not say.
LEADERLESS_PAUSE_MS: Final = 10_000

# What else than success means that a partition needs this marker no more.
_NEEDLESS: Final = frozenset(
    {
        # A later epoch of the producer is known there, so what this one had open was ended before.
        E.invalid_producer_epoch,
        # Kafka: nobody can have written there.
        E.unsupported_for_message_format,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How one transaction ended, for some of its partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    # When the transaction began that it ends; -1: that is not known. Kafka's markers do not say it.
    started_ms: int = NO_TIMESTAMP
    # Of each partition, the term of the leader that it is sent to; empty from a person, who does not know it.
    leader_epochs: tuple[int, ...] = ()


class MarkerDoor(Protocol):
    async def write(
        self, broker_id: BrokerId, markers: Sequence[Marker], /
    ) -> Sequence[Mapping[TopicPartition, ErrorCode]]:
        """Have a node write these, and wait until they are committed; Trouble when it can't be reached."""


class _Job:
    """A transaction whose end is committed. `left` are the partitions that may not show it yet."""

    __slots__ = ("attempts", "left", "markers", "partition", "scope", "shard")

    def __init__(self, partition: int, shard: Shard, markers: WriteMarkers) -> None:
        self.partition = partition  # of the coordinator's own topic
        self.shard = shard
        self.markers = markers
        self.left = dict.fromkeys(markers.partitions)
        self.attempts = 0
        self.scope = current_scope()  # whose request ended it; nobody's where its time was up


_Entry = tuple[_Job, tuple[TopicPartition, ...]]


class MarkerSender:
    def __init__(
        self,
        *,
        env: Env,
        image: ClusterImage,
        door: MarkerDoor,
        coordinator_epoch: Callable[[int], int | None],
        done: Callable[[Shard, tuple[MarkersDone, ...]], None],
        confirm_image: Callable[[], Awaitable[bool]],
    ) -> None:
        """`coordinator_epoch` of a partition of the coordinator's topic: None when another node has it by now and the
        shard is about to be told. `done` is told once for each transaction. `confirm_image` is False if the image may
        not be of now."""
        self._env = env
        self._image = image
        self._door = door
        self._coordinator_epoch = coordinator_epoch
        self._tell_done = done
        self._confirm_image = confirm_image
        self._ready: dict[BrokerId, list[_Entry]] = {}
        self._on_the_way: dict[BrokerId, int] = {}
        self._done: dict[Shard, list[MarkersDone]] = {}
        # Partitions whose marker waits for a pause to end or for another leader.
        self._stuck: dict[TopicPartition, dict[_Job, None]] = {}
        self._is_woken = False
        self.sent = 0
        self.sent_again = 0

    def send(self, partition: int, shard: Shard, markers: WriteMarkers) -> None:
        """A transaction of this partition of the coordinator's topic is decided."""
        job = _Job(partition, shard, markers)
        self._route(job, markers.partitions)

    def on_image(self, delta: ImageDelta) -> None:
        """Called after the replicas: whoever leads now is asked at once."""
        if not self._stuck:
            return
        moved = [
            TopicPartition(topic.name, state.partition) for topic, state in delta.partitions_changed
        ]
        gone = {topic.name for topic in delta.topics_deleted}
        moved += [each for each in self._stuck if each.topic in gone]
        for each in moved:
            for job in self._stuck.pop(each, {}):
                self._route(job, (each,))

    @property
    def stuck_count(self) -> int:
        """Of partitions."""
        return len(self._stuck)

    def stuck(self) -> dict[TopicPartition, list[str]]:
        """Whose markers wait for which partition: why a last stable offset stands still."""
        return {
            each: [job.markers.transactional_id for job in jobs if not job.shard.is_lost]
            for each, jobs in self._stuck.items()
        }

    # -- where to --------------------------------------------------------------------------------

    def _route(self, job: _Job, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        lost: list[TopicPartition] = []
        unknown: list[TopicPartition] = []
        for each in partitions:
            state = self._image.partition(each.topic, each.partition)
            if state is None:
                unknown.append(each)
            elif state.leader == NO_LEADER:
                lost.append(each)
            else:
                by_leader.setdefault(state.leader, []).append(each)
        for leader, theirs in by_leader.items():
            self._ready.setdefault(leader, []).append((job, tuple(theirs)))
        if lost:
            self._pause(job, lost, LEADERLESS_PAUSE_MS)
        if unknown:
            self._env.tasks.spawn(self._ask_after(job, unknown), name="are they deleted")
        self._maybe_done(job)
        self._wake()

    async def _ask_after(self, job: _Job, unknown: Sequence[TopicPartition]) -> None:
        """A name that is in no image may be that of a topic which was made anew: this node hears of the old one's end first.
        What the transaction wrote to the new one it wrote after that was agreed on, so it is known once the image is of now."""
        is_of_now = await self._confirm_image()
        if job.shard.is_lost:
            return
        if not is_of_now:
            self._pause(job, unknown)
            return
        known: list[TopicPartition] = []
        for each in unknown:
            if self._image.partition(each.topic, each.partition) is None:
                job.left.pop(each, None)  # deleted: nobody reads there any more
            else:
                known.append(each)
        if known:
            self._route(job, known)
        else:
            self._maybe_done(job)

    def _maybe_done(self, job: _Job) -> None:
        if not job.left and not job.shard.is_lost:
            self._done.setdefault(job.shard, []).append(job.markers.done)
            self._wake()

    def _pause(
        self, job: _Job, partitions: Sequence[TopicPartition], pause_ms: int | None = None
    ) -> None:
        """Later once more, or as soon as there is another leader."""
        for each in partitions:
            self._stuck.setdefault(each, {})[job] = None
        if pause_ms is None:
            pause_ms = min(PAUSE_MS << min(job.attempts, 10), PAUSE_MS_MAX)
            job.attempts += 1
        self._env.clock.call_later(pause_ms / 1000, partial(self._go_on, job, tuple(partitions)))

    def _go_on(self, job: _Job, partitions: tuple[TopicPartition, ...]) -> None:
        waited = []
        for each in partitions:
            jobs = self._stuck.get(each)
            if jobs is not None and job in jobs:
                del jobs[job]
                if not jobs:
                    del self._stuck[each]
                waited.append(each)
        if waited and not job.shard.is_lost:
            self._route(job, waited)

    # -- once a turn of the loop -----------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._env.clock.call_later(0, self._flush)

    def _flush(self) -> None:
        self._is_woken = False
        done, self._done = self._done, {}
        for shard, each in done.items():
            if not shard.is_lost:
                self._tell_done(shard, tuple(each))
        for broker_id in list(self._ready):
            if self._on_the_way.get(broker_id, 0) < REQUESTS_MAX:
                entries = self._ready.pop(broker_id)
                work = self._write(broker_id, entries)
                self._on_the_way[broker_id] = self._on_the_way.get(broker_id, 0) + 1
                self._env.tasks.spawn(work, name=f"markers for {broker_id}")

    async def _write(self, broker_id: BrokerId, entries: list[_Entry]) -> None:
        markers: list[Marker] = []
        going: list[_Entry] = []
        enter_scope(joined(job.scope for job, _ in entries))
        for job, partitions in entries:
            epoch = None if job.shard.is_lost else self._coordinator_epoch(job.partition)
            if epoch is not None:
                markers.append(self._marker(job, partitions, epoch))
                going.append((job, partitions))
            elif not job.shard.is_lost:
                self._pause(job, partitions)
        entries = going
        answers: Sequence[Mapping[TopicPartition, ErrorCode]] = [{}] * len(entries)
        try:
            if entries:
                self.sent += len(entries)
                async with asyncio.timeout(WRITE_S_MAX):
                    answers = await self._door.write(broker_id, markers)
        except (Trouble, TimeoutError) as trouble:
            self._env.log.warn("markers_not_written", broker_id=broker_id, cause=str(trouble))
        finally:
            self._on_the_way[broker_id] -= 1
        assert len(answers) == len(entries), f"{len(answers)} answers to {len(entries)} markers"
        for (job, partitions), answer in zip(entries, answers, strict=True):
            self._take(job, partitions, answer)
        if self._ready:
            self._wake()

    def _marker(
        self, job: _Job, partitions: tuple[TopicPartition, ...], coordinator_epoch: int
    ) -> Marker:
        what = job.markers
        states = [self._image.partition(each.topic, each.partition) for each in partitions]
        return Marker(
            producer_id=what.producer_id,
            producer_epoch=what.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=what.commit,
            partitions=partitions,
            transaction_version=what.transaction_version,
            started_ms=what.started_ms,
            leader_epochs=tuple(-1 if each is None else each.leader_epoch for each in states),
        )

    def _take(
        self,
        job: _Job,
        partitions: tuple[TopicPartition, ...],
        answer: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        if job.shard.is_lost:
            return
        again: list[TopicPartition] = []
        for each in partitions:
            code = answer.get(each, E.request_timed_out)
            if code is E.none or code in _NEEDLESS:
                job.left.pop(each, None)
            else:
                again.append(each)
                self._tell(job, each, code)
        if again:
            self.sent_again += 1
            self._pause(job, again)
        else:
            self._maybe_done(job)

    def _tell(self, job: _Job, partition: TopicPartition, code: ErrorCode) -> None:
        if job.attempts == 5:  # a second or so: no passing change of leaders
            self._env.log.warn(
                "markers_stuck",
                transactional_id=job.markers.transactional_id,
                partition=str(partition),
                cause=code.name,
            )
