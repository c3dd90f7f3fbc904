"""Writes the ends of transactions into the partitions that this node leads.

INVARIANT  `none` for a partition means that the marker is committed there; one that is sent again while it is on its way
           is written once. Where it ends nothing, the quorum has confirmed that this is the topic that has the name.
PREVENTS   a coordinator that takes a transaction for finished, whose partition forgets with its leader that it ended; a
           partition that can't commit holding up all transactions that ended in the same moment; a marker that is written to
           a topic of before, by who has not heard that it was deleted, while what it is to end is open in the one made anew.
PROVED BY  tests/node/test_marker_writer.py::test_a_marker_is_answered_for_when_it_is_committed
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Partition, Refusal
from fencepost.replication.partition_machine import ALL_REPLICAS
from fencepost.txn.groups.service import GroupService
from fencepost.txn.runtime.decision import Producer
from fencepost.txn.transactions.marker_sender import Marker

E = ErrorCode
Codes = Mapping[TopicPartition, ErrorCode]
Outcome = asyncio.Future[ErrorCode]
MARKERS_A_TURN: Final = 100  # some 9 ms of the loop; one request may name 90,000
# One marker in one partition: all that it says.
Key = tuple[TopicPartition, int, int, int, int, bool]
WRITE_S_MAX: Final = 30.0  # Kafka's request.timeout.ms
# A coordinator of groups that is not ready yet, in words that the transaction's coordinator expects of a partition.
_NOT_READY: Final = frozenset(
    {E.coordinator_load_in_progress, E.coordinator_not_available, E.not_coordinator}
)


class _Doubted(NamedTuple):
    """A marker that ends nothing in this partition, as far as is known here, and where the answer goes."""

    marker: Marker
    place: TopicPartition
    leader_epoch: int | None
    outcomes: dict[TopicPartition, Outcome | ErrorCode]


class MarkerWriter:
    def __init__(
        self,
        env: Env,
        replicas: ReplicaManager,
        groups: GroupService,
        confirm_image: Callable[[float], Awaitable[bool]],
    ) -> None:
        """`confirm_image` is False if the image may not be of now, or that can't be known in so many seconds."""
        self._env = env
        self._replicas = replicas
        self._groups = groups
        self._confirm_image = confirm_image
        self._under_way: dict[Key, Outcome] = {}
        self.written = 0

    async def write_here(
        self, markers: Sequence[Marker], *, wait_s: float = WRITE_S_MAX
    ) -> list[Codes]:
        """One after the other into the logs, and all waited for together: they share the syncs.

        What is not committed in time is answered REQUEST_TIMED_OUT, and waited for by whoever sends it again.
        """
        begun: list[dict[TopicPartition, Outcome | ErrorCode]] = [{} for _ in markers]
        number = 0
        doubted: list[_Doubted] = []
        for marker, outcomes in zip(markers, begun, strict=True):
            for place, term in _terms(marker):
                outcome = self._begin(marker, place, term)
                if outcome is None:
                    doubted.append(_Doubted(marker, place, term, outcomes))
                    outcome = E.not_leader_or_follower  # unless it is confirmed: it is sent again
                outcomes[place] = outcome
                number += 1
                if number % MARKERS_A_TURN == 0:
                    await self._env.clock.sleep(0)
        if doubted and await self._confirm_image(wait_s):
            await self._begin_doubted(doubted)
        waiting = [
            each
            for outcomes in begun
            for each in outcomes.values()
            if isinstance(each, asyncio.Future)
        ]
        if waiting:
            await asyncio.wait(waiting, timeout=wait_s)
        return [{place: _code(each) for place, each in outcomes.items()} for outcomes in begun]

    async def _begin_doubted(self, doubted: Sequence[_Doubted]) -> None:
        """Each to the topic that has the name now: if that is not the one of before, this node leads it or says so."""
        for number, (marker, place, term, outcomes) in enumerate(doubted, 1):
            outcome = self._begin(marker, place, term, is_of_now=True)
            assert outcome is not None, "it is doubted no more"
            outcomes[place] = outcome
            if number % MARKERS_A_TURN == 0:
                await self._env.clock.sleep(0)

    def _begin(
        self,
        marker: Marker,
        place: TopicPartition,
        leader_epoch: int | None,
        *,
        is_of_now: bool = False,
    ) -> Outcome | ErrorCode | None:
        """None: it ends nothing here, and this node may not have heard that the topic was made anew elsewhere. A person's
        is written all the same: he may mean just that."""
        key = (
            place, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch,
            marker.started_ms, marker.commit,
        )  # fmt: skip
        known = self._under_way.get(key)
        if known is not None:
            return known
        partition = self._writable(marker, place, leader_epoch)
        if isinstance(partition, ErrorCode):
            return partition
        if place.topic == GROUP_OFFSETS_TOPIC:
            outcome: Outcome = asyncio.get_running_loop().create_future()
            self._under_way[key] = outcome
            work = self._end_in_group(marker, place, leader_epoch, key, outcome)
            self._env.tasks.spawn(work, name=f"marker in {place}")
            return outcome
        if leader_epoch is not None and not is_of_now:
            known_here = partition.producers.state_of(marker.producer_id)
            if known_here is None or known_here.txn_first_offset < 0:
                return None
        return self._append_to(partition, marker, key)

    def _writable(
        self, marker: Marker, place: TopicPartition, leader_epoch: int | None
    ) -> Partition | ErrorCode:
        """The partition that it may be written to, in this very turn of the loop; or why not."""
        partition = self._replicas.partition(place)
        if isinstance(partition, ErrorCode):
            return partition
        if leader_epoch not in (None, partition.leader_epoch):
            # It waited somewhere while others led, who may have ended what it is to end: what is remembered of that here
            # is of this term alone. Or one of us is behind; it is sent again.
            return E.not_leader_or_follower
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return E.unknown_server_error  # Kafka finds no word for it
        if place.topic == TRANSACTION_STATE_TOPIC:
            return E.unsupported_for_message_format  # nobody can have written there
        try:
            waiting = partition.producers.verifications
        except (OSError, LogDamaged):
            return E.kafka_storage_error
        waiting.note_end(marker.producer_id, marker.producer_epoch, marker.started_ms)
        if waiting.is_of_another(marker.producer_id, marker.started_ms):
            return E.invalid_producer_epoch  # it is late: what it is to end has ended
        return partition

    def _append_to(self, partition: Partition, marker: Marker, key: Key) -> Outcome | ErrorCode:
        now_ms = self._env.clock.now_ms()
        batch = control_batch(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        done = partition.append_as_leader(
            batch,
            required_acks=ALL_REPLICAS,
            now_ms=now_ms,
            origin_client=False,
            transaction_version=marker.transaction_version,
        )
        if isinstance(done, Refusal):
            return done.error
        self.written += 1
        outcome: Outcome = asyncio.get_running_loop().create_future()

        def tell(code: ErrorCode) -> None:
            del self._under_way[key]
            outcome.set_result(_committed(code))

        wait = partition.when_acknowledged(done.last_offset, ALL_REPLICAS, tell)
        if isinstance(wait, ErrorCode):
            return _committed(wait)
        self._under_way[key] = outcome
        return outcome

    async def _end_in_group(
        self,
        marker: Marker,
        place: TopicPartition,
        leader_epoch: int | None,
        key: Key,
        outcome: Outcome,
    ) -> None:
        # A turn of the loop later than `_begin`: in between the next transaction may have begun, and stored positions.
        partition = self._writable(marker, place, leader_epoch)
        if isinstance(partition, ErrorCode):
            code = partition
        else:  # no await lies between this and its append
            code = await self._groups.end_transaction(
                place.partition,
                Producer(marker.producer_id, marker.producer_epoch),
                coordinator_epoch=marker.coordinator_epoch,
                commit=marker.commit,
                transaction_version=marker.transaction_version,
            )
        self.written += code is E.none
        del self._under_way[key]
        outcome.set_result(E.not_leader_or_follower if code in _NOT_READY else code)


def _terms(marker: Marker) -> Iterator[tuple[TopicPartition, int | None]]:
    """Its partitions, each with the leader epoch that it is meant for."""
    terms = marker.leader_epochs or (None,) * len(marker.partitions)
    return zip(marker.partitions, terms, strict=True)


def _code(outcome: Outcome | ErrorCode) -> ErrorCode:
    if isinstance(outcome, ErrorCode):
        return outcome
    return outcome.result() if outcome.done() else E.request_timed_out


def _committed(code: ErrorCode) -> ErrorCode:
    # Too few replicas are in sync now, but the high watermark has passed: it is committed, for all that.
    return E.none if code is E.not_enough_replicas_after_append else code
