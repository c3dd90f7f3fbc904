"""The coordinator of all transactions, and what it sends to partitions' leaders: words ahead, and markers.

Does with a Decision what `txn/runtime/shard.py` does, except that its own log commits at once. Of one that has moved
the next has nothing but the log.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from chance_cluster import Network, Partition, Tell, Written, nobody_hears
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.producer_snapshot import SEQUENCE_MAX
from fencepost.replication.log.producer_verdicts import Marker, Refused
from fencepost.replication.log.verifications_machine import NO_GUARD
from fencepost.txn.runtime.decision import Answer, CancelTimer, Decision, Parked, Send, SetTimer
from fencepost.txn.runtime.timers import Timers
from fencepost.txn.transactions.added_config import AddedConfig
from fencepost.txn.transactions.check_back_machine import CheckBackMachine
from fencepost.txn.transactions.commands import (
    NEEDS_PRODUCER_ID,
    MarkersWritten,
    Opened,
    WriteMarkers,
)
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.group_commit_machine import GroupCommitMachine
from fencepost.txn.transactions.ids import transactional_partition_key
from fencepost.txn.transactions.registry import CODEC
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

E = ErrorCode
Heard = Callable[[Any], None]
TRANSACTIONS = TransactionConfig(transaction_two_phase_commit_enable=True)
ADDED = AddedConfig(transaction_check_max=3, transaction_group_decisions_max=4)


class MarkersOfOne:
    """The markers of one transaction, each sent until its partition's leader has it."""

    def __init__(self, wanted: WriteMarkers) -> None:
        self.wanted = wanted
        self.missing = set(wanted.partitions)


class Coordinator:
    def __init__(
        self, network: Network, partitions: Mapping[TopicPartition, Partition], server_version: int
    ) -> None:
        self.server_version = server_version
        self._network = network
        self._partitions = partitions
        self._log: dict[bytes, bytes | None] = {}  # in the order of writing, compacted
        self._epoch = 0
        self._tickets = 0
        self._last_producer_id = 100
        self._begin()

    # -- whoever coordinates ---------------------------------------------------------------------

    def _begin(self) -> None:
        self._epoch += 1
        self._timers = Timers()
        self._under_way: list[MarkersOfOne] = []
        self._parked: dict[int, Heard] = {}
        self.machine = TransactionsMachine(TRANSACTIONS, lambda: 0.0, lambda: self.server_version)
        self.checks = CheckBackMachine(ADDED, self.machine, transactional_partition_key)
        self.machine.attach(GroupCommitMachine(ADDED, self.machine))
        self.machine.attach(self.checks)
        for key, value in self._log.items():
            self.machine.apply(CODEC.decode(key, value))
        self.take(self.machine.loaded(self._network.now_ms))

    def move(self) -> None:
        self._network.say("the coordinator moves")
        parked = self._parked
        self._begin()
        for heard in parked.values():
            heard(E.not_coordinator)

    def ask(self, command: Any, heard: Heard) -> None:
        if hasattr(command, "ticket"):
            self._tickets += 1
            command = replace(command, ticket=self._tickets)
        decision = self.machine.decide(command, self._network.now_ms)
        assert decision == self.machine.decide(command, self._network.now_ms), "it changes nothing"

        def answer(reply: Any) -> None:
            if reply == NEEDS_PRODUCER_ID:
                self._last_producer_id += 1
                self.ask(replace(command, fresh_producer_id=self._last_producer_id), heard)
            else:
                heard(reply)

        if isinstance(decision.reply, Parked):
            self._parked[decision.reply.ticket] = answer
            self.take(decision)
        else:
            self.take(decision)
            answer(decision.reply)

    def take(self, decision: Decision) -> None:
        for record in decision.records:
            self._network.say("    is written:", record)
            key, value = record.encode()
            # Version 0 of Kafka's record has no place for some of it.
            assert self.server_version == 0 or CODEC.decode(key, value) == record
            self._log.pop(key, None)
            self._log[key] = value
            self.machine.apply(record)
        for step in decision.steps:
            self.machine.apply(step)
        for effect in decision.effects:
            self._do(effect)

    def _do(self, effect: Any) -> None:
        match effect:
            case Answer(ticket, fields):
                heard = self._parked.pop(ticket, None)
                if heard is not None:
                    heard(fields)
            case SetTimer(key, delay_ms):
                self._timers.set("chance", key, self._network.now_ms + delay_ms)
            case CancelTimer(key):
                self._timers.cancel("chance", key)
            case Send(Opened() as opened):
                self._tell_leaders(opened)
            case Send(WriteMarkers() as wanted):
                markers = MarkersOfOne(wanted)
                self._under_way.append(markers)
                for place in wanted.partitions:
                    self._send_marker(markers, place)
            case _:
                raise AssertionError(effect)

    def pass_ms(self, passed_ms: int) -> None:
        until_ms = self._network.now_ms + passed_ms
        while (next_ms := self._timers.next_ms()) is not None and next_ms <= until_ms:
            self._network.now_ms = max(self._network.now_ms, next_ms)
            for _, key in self._timers.due(self._network.now_ms, 1):
                self.take(self.machine.tick(key, self._network.now_ms))
        self._network.now_ms = until_ms

    # -- words that are sent ahead (`node/transaction_words.py`) ---------------------------------

    def _tell_leaders(self, opened: Opened) -> None:
        for place in opened.partitions:
            if not self._network.maybe(0.3):  # lost: its leader asks
                self._send_word(opened, self._partitions[place])

    def _send_word(self, opened: Opened, partition: Partition) -> None:
        leader_epoch = partition.leader_epoch
        who = opened.producer_id, opened.producer_epoch

        def arrive() -> None:
            verifications = partition.producers.verifications
            is_void = verifications.is_over(*who, opened.started_ms)
            if partition.leader_epoch != leader_epoch or is_void:
                return
            guard = partition.producers.start_verification(
                who[0],
                SEQUENCE_MAX,
                who[1],
                supports_epoch_bump=False,
                now_ms=self._network.now_ms,
            )
            if not isinstance(guard, Refused) and guard != NO_GUARD:
                verifications.confirm(*who, guard, opened.started_ms)

        self._network.post(arrive)

    # -- markers (`txn/transactions/marker_sender.py`, `node/marker_writer.py`) ------------------

    def _send_marker(self, markers: MarkersOfOne, place: TopicPartition) -> None:
        """Sent again until it is known to be committed. What was sent before may come later still."""
        partition, wanted = self._partitions[place], markers.wanted
        leader_epoch, coordinator_epoch = partition.leader_epoch, self._epoch

        def answer(code: ErrorCode) -> None:
            if self._network.maybe(0.15):
                code = E.request_timed_out
            self._network.post(lambda: self._hear_of_marker(markers, place, code))

        def arrive(tell: Tell) -> None:
            if partition.leader_epoch != leader_epoch:
                tell(E.not_leader_or_follower)
            else:
                self._write_marker(partition, wanted, coordinator_epoch, tell)

        self._network.post(lambda: arrive(answer))
        if self._network.maybe(0.3):
            self._network.post_again(lambda: arrive(nobody_hears))

    def _write_marker(
        self, partition: Partition, wanted: WriteMarkers, coordinator_epoch: int, tell: Tell
    ) -> None:
        who, now_ms = (wanted.producer_id, wanted.producer_epoch), self._network.now_ms
        verifications = partition.producers.verifications
        verifications.note_end(*who, wanted.started_ms)
        if verifications.is_of_another(who[0], wanted.started_ms):
            tell(E.invalid_producer_epoch)
            return
        verdict = partition.producers.decide_marker(
            *who, coordinator_epoch, wanted.transaction_version
        )
        if isinstance(verdict, Refused):
            tell(verdict.error)
            return
        self._network.say("    marker", *who, wanted.commit, "in", partition.place.partition)
        marker = Written(
            producer_id=who[0],
            producer_epoch=who[1],
            max_timestamp=now_ms,
            marker=Marker(coordinator_epoch, wanted.commit, now_ms),
        )
        partition.append(marker, tell)

    def _hear_of_marker(
        self, markers: MarkersOfOne, place: TopicPartition, code: ErrorCode
    ) -> None:
        if markers not in self._under_way or place not in markers.missing:
            return  # another coordinates by now, and sends its own
        if code not in (E.none, E.invalid_producer_epoch):
            self._send_marker(markers, place)
            return
        markers.missing.discard(place)
        if not markers.missing:
            self._under_way.remove(markers)
            done = MarkersWritten(done=(markers.wanted.done,))
            self.take(self.machine.decide(done, self._network.now_ms))
