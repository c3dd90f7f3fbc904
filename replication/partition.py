"""One partition on this broker: what requests ask of it, and what becomes of its log.

INVARIANT  an append is answered with offsets that are its own for ever, and `committed` says `none` only of what is
           below the high watermark; between the judgement of a batch and its place in the log nothing awaits.
PREVENTS   two batches at one offset, a retry written twice, an acknowledgement that a crash takes back.
PROVED BY  tests/replication/test_partition_crash.py::test_what_was_acknowledged_survives_every_crash

The decisions are in `partition_machine.py` and `log/producers_machine.py`; this is the shell around them.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, ErrorCode, LogDamaged
from fencepost.cluster.base.ids import BrokerId, Offset
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.metadata.image import PartitionState
from fencepost.cluster.metadata.topic_config import TopicConfig
from fencepost.cluster.wire.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    BatchRefused,
    parse_header,
)

from . import appends
from .appends import Appended, Refusal
from .flusher import Flusher
from .log.log import PASSING, Log
from .log.producer_verdicts import Duplicate
from .log.sync import needs_sync
from .metrics import Counters
from .partition_copies import Owner
from .partition_machine import ALL_REPLICAS, PartitionMachine
from .partition_reads import Read
from .partition_refusals import RefusingPartition
from .waits import OffsetWait, OffsetWaits

__all__ = ["Appended", "Owner", "Partition", "Read", "Refusal"]

NO_SPACE: Final = DISK_FULL_ERRNOS
SYNC_AGAIN_MS: Final = 200  # after a sync for which nothing could be opened
HANDOVER_S: Final = 5.0  # longer than it takes a follower to tell the controller of a failed log


class Partition(RefusingPartition):
    __slots__ = ("_commits", "_hands_over", "_rules", "_syncs")

    def __init__(
        self,
        env: Env,
        broker_id: BrokerId,
        topic_id: UUID,
        log: Log,
        config: TopicConfig,
        *,
        high_watermark: int,
        flusher: Flusher,
        counters: Counters,
        owner: Owner,
    ) -> None:
        end = log.log_end_offset
        machine = PartitionMachine(
            broker_id,
            log_end=end,
            durable_end=log.recovery_point,
            high_watermark=max(min(high_watermark, end), log.log_start_offset),
        )
        super().__init__(env, topic_id, log, config, machine, counters, flusher, owner)
        self._commits: OffsetWaits | None = None
        self._syncs: OffsetWaits | None = None
        self._sent_back = None
        self._hands_over = False
        self._led_from_ms = 0
        self.set_config(config)

    def set_config(self, config: TopicConfig) -> None:
        """What follows from it waits for `look_again`."""
        self.config = config
        self.log.config = config
        self._rules = appends.Rules.of(config)
        self._flush_messages = config.flush_messages
        self.machine.min_insync_replicas = config.min_insync_replicas
        self._set_flush_delay()

    def look_again(self) -> None:
        """What held the high watermark back may do so no more."""
        if self.machine.look_again(self._steady_ms()):
            self._high_watermark_moved()
        if self._syncs is not None and not self.sync_counts:
            self._syncs.release(self.log.log_end_offset, ErrorCode.none)
        if self.is_leader:
            self._maybe_deleted()  # who was waited for, as proposed, may have been refused

    # -- leadership ------------------------------------------------------------------------------------

    def on_image(self, state: PartitionState) -> None:
        if self.closed is not None:
            return
        was_leader = self.is_leader
        is_new_epoch, moved = self.machine.on_image(state, self._steady_ms())
        if was_leader and not self.is_leader:
            self._tell_waiting(ErrorCode.not_leader_or_follower)
        if is_new_epoch:
            self._tell_readers(at_once=True)  # the epoch that they know is fenced
        if is_new_epoch or moved:
            self._high_watermark_moved()
        if is_new_epoch and self.is_leader:
            self._counters.elections += 1
            self._led_from_ms = self._steady_ms()
            if self._sent_back:
                self._sent_back.renew()
        if self.is_leader:
            self._maybe_deleted()  # who was waited for may be no replica any more
        if self.log.damage:
            self.weigh_damage()

    def close(self, error: ErrorCode) -> None:
        """Nothing more is taken or told but `error`: deleted, taken away, offline, or the node stops."""
        if self.closed is None:
            self.closed = error
            self.machine.resign()
            self._flusher.forget(self)
            self._tell_waiting(error)
            self._tell_readers(at_once=True)
            if self._copying is not None:
                self._copying.on_closed()

    def damaged(self, why: str) -> None:
        """What is read here is not what was written: nothing is served from it until a restart."""
        if self.closed is None:
            self.close(ErrorCode.kafka_storage_error)
            self._owner.on_offline(self, f"{self.log.folder}: {why}")

    def weigh_damage(self) -> None:
        """Of a log that is known to be damaged: it goes offline as soon as another replica is in sync. Alone it serves
        what is well.

        A leader waits first. Where two copies turn out to be damaged at once, say after a power cut, each might rely on the
        other: the follower leaves the ISR, and the leader sees it.
        """
        if self.closed is not None or not self.log.damage or self.is_last_copy:
            return
        if not self.is_leader:
            self.damaged(self.log.damage[0].sentence)
        elif not self._hands_over:
            self._hands_over = True
            self._env.clock.call_later(HANDOVER_S, self._hand_over)

    def _hand_over(self) -> None:
        self._hands_over = False
        if self.closed is None and self.log.damage and not self.is_last_copy:
            self.damaged(self.log.damage[0].sentence)

    def _tell_waiting(self, error: ErrorCode) -> None:
        for waits in (self._commits, self._syncs, self._deletions):
            if waits is not None:
                waits.release_all(error)

    # -- writing ---------------------------------------------------------------------------------------

    def is_heavy(self, records: Buffer, now_ms: int) -> bool:
        """Whether a client's batch should go through `check_off_loop` before it is appended."""
        return appends.is_heavy(records, self._rules, now_ms)

    def looks_into(self, records: Buffer, now_ms: int) -> bool:
        """Whether the check of a client's batch looks into each record, or packs it."""
        return appends.looks_into(records, self._rules, now_ms)

    async def check_off_loop(
        self, records: Buffer, *, produce_version: int, now_ms: int
    ) -> appends.Checked | BatchRefused:
        """What `append_as_leader` would do first, on a thread."""
        rules = self._rules
        try:
            checked = await self._env.disk.run(
                appends.check, records, rules, produce_version, now_ms
            )
        except BatchRefused as refused:
            return refused
        return appends.Checked(rules, *checked)

    def append_as_leader(
        self,
        records: Buffer,
        *,
        required_acks: int,
        now_ms: int,
        origin_client: bool = True,
        produce_version: int = 13,
        transaction_version: int = 0,
        checked: appends.Checked | BatchRefused | None = None,
        behind: BatchHeader | None = None,  # to be written first: it was sent away
    ) -> Appended | Refusal:
        """Write a client's batch, or a coordinator's. The buffer is ours from here on: it is stamped in place."""
        error = self.closed or self._check_log() or self.machine.check_append(required_acks)
        if error is not ErrorCode.none:
            return self._refuse_retriable(error, records, origin_client=origin_client)
        try:
            if isinstance(checked, BatchRefused):
                raise checked
            if checked is not None and checked.rules is self._rules:
                buffer, headers = checked.buffer, checked.headers
            elif origin_client:
                buffer, headers = appends.check(records, self._rules, produce_version, now_ms)
            else:
                buffer, headers = appends.take(records)
        except BatchRefused as refused:
            return self._not_taken(refused, records, origin_client=origin_client)
        # from here ...
        log = self.log
        try:
            producers = log.producers  # the first batch since a clean start has them read
        except (OSError, LogDamaged) as failed:
            return self._history_unreadable(failed)
        if behind is not None and not producers.has_taken(behind):
            producers.note_refused(behind)
            self._remember_sent_back(behind).note_sent_away(behind)
        verdict = appends.judge(
            producers, buffer, headers,
            origin_client=origin_client, transaction_version=transaction_version,
        )  # fmt: skip
        if isinstance(verdict, Duplicate):
            return self._written_before(verdict, headers[0][1])
        if verdict is not None:
            return self._refused(self._told(verdict.error, headers[0][1]), verdict.message)
        if origin_client and (early := self._begins_too_early(producers, headers[0][1])):
            return early
        append_time_ms = now_ms if self._rules.timestamp_type == LOG_APPEND_TIME else None
        first_offset = log.log_end_offset
        appends.stamp(buffer, headers, first_offset, self.machine.leader_epoch, append_time_ms)
        try:
            log.append(buffer, headers, now_ms)
        except (OSError, LogDamaged) as failed:
            return self._write_failed(failed, headers, origin_client=origin_client)
        # ... to here no await: who is judged by a history is written right behind it
        self._owner.on_write(self, None)
        self._written(headers, len(buffer))
        if self._sent_back:
            self._sent_back.written(headers[0][1])
        self._of_topic.appended(len(buffer), log.log_end_offset - first_offset)
        told_ms = -1 if append_time_ms is None else append_time_ms
        return Appended(first_offset, log.log_end_offset - 1, told_ms, log.log_start_offset)

    def _check_log(self) -> ErrorCode:
        return ErrorCode.none if self.log.failed is None else ErrorCode.kafka_storage_error

    def _write_failed(
        self, failed: OSError | LogDamaged, headers: appends.Headers, *, origin_client: bool
    ) -> Refusal:
        if isinstance(failed, LogDamaged):
            # Nothing was written: what was aborted before can't be told. Alone it serves what is well.
            if not self.is_last_copy:
                self.damaged(str(failed))
            return self._refused(ErrorCode.kafka_storage_error, str(failed))
        if origin_client:
            for _, header in headers:
                self._note_refused(header, ErrorCode.kafka_storage_error)
        self._maybe_taken_back()
        self._owner.on_write(self, failed)
        self._counters.refuse(ErrorCode.kafka_storage_error)
        why = "the disk is full" if failed.errno in NO_SPACE else str(failed)
        return Refusal(ErrorCode.kafka_storage_error, f"{self.topic_partition}: {why}")

    def _history_unreadable(self, failed: OSError | LogDamaged) -> Refusal:
        """Without the history of its producers no batch can be told from its retry: nothing is written here."""
        self._counters.refuse(ErrorCode.kafka_storage_error)
        why = f"the producers' history can't be read: {failed}"
        if isinstance(failed, LogDamaged) or failed.errno not in PASSING:
            self.damaged(why)
        return Refusal(ErrorCode.kafka_storage_error, f"{self.topic_partition}: {why}")

    def _refuse_retriable(
        self, error: ErrorCode, records: Buffer, *, origin_client: bool
    ) -> Refusal:
        self._counters.refuse(error)
        if self.closed is None and origin_client and self.is_leader:
            try:
                self._note_refused(parse_header(records), error)
            except BatchRefused:
                pass  # it is no batch at all: there is nothing to remember, and the error stands
            except (OSError, LogDamaged) as failed:
                return self._history_unreadable(failed)
        return Refusal(error, f"{self.topic_partition}: {error.name}")

    # -- waiting for it to count -----------------------------------------------------------------------

    async def committed(self, offset: Offset | int) -> ErrorCode:
        """`none` once everything up to and with `offset` is committed; else why it will not be by us."""
        if self.closed is not None:
            return self.closed
        outcome = self.machine.outcome_of(offset)
        if outcome is not None:
            return outcome
        if self._commits is None:
            self._commits = OffsetWaits()
        return await self._commits.wait(offset)

    def when_acknowledged(
        self, offset: int, required_acks: int, tell: Callable[[ErrorCode], None]
    ) -> OffsetWait | ErrorCode:
        """The outcome if it is known already; else `tell` is called with it, once, unless cancelled before.

        acks=all waits for the high watermark; acks=1 for our own disk, if flush.policy=ack says that it counts.
        """
        if self.closed is not None:
            return self.closed
        if required_acks == ALL_REPLICAS:
            outcome = self.machine.outcome_of(offset)
            if outcome is not None:
                return outcome
            if self._commits is None:
                self._commits = OffsetWaits()
            return self._commits.add(offset, tell)
        machine = self.machine
        if required_acks == 0 or not machine.sync_counts or machine.durable_end > offset:
            return ErrorCode.none
        if self._syncs is None:
            self._syncs = OffsetWaits()
        return self._syncs.add(offset, tell)

    def on_synced(self) -> None:
        """The flusher's word: the log's recovery point has moved."""
        if self.closed is not None:
            return
        if self.log.failed is not None:
            # A write failed: what is committed can be read, what was on its way there stays unknown.
            self._tell_waiting(ErrorCode.kafka_storage_error)
            return
        self._unsynced_records = 0
        durable_end = self.log.recovery_point
        moved = self.machine.on_durable(durable_end, self._steady_ms())
        if self._syncs is not None:
            self._syncs.release(durable_end, ErrorCode.none)
        if moved:
            self._high_watermark_moved()
        if self._copying is not None:
            self._copying.on_durable()

    def on_sync_failed(self, error: OSError) -> None:
        """What the disk has of the log can't be told any more: nothing is served from it until a restart."""
        if self.log.failed is None:
            self.on_synced()  # it had nothing in the group that failed, or could not be opened
            if needs_sync(self.log):
                self._flusher.later(self, SYNC_AGAIN_MS)
            return
        self.on_log_failed(f"a sync failed: {error}")

    def on_log_failed(self, cause: str) -> None:
        """Nothing is written to it any more: somebody else is to lead, and this replica is in no ISR."""
        if self.closed is None:
            self.close(ErrorCode.kafka_storage_error)
            self._owner.on_offline(self, cause)

    def _high_watermark_moved(self) -> None:
        if self._commits is not None:
            high_watermark = self.machine.high_watermark
            outcome = self.machine.outcome_of(high_watermark - 1)
            self._commits.release(high_watermark, outcome or ErrorCode.none)
        super()._high_watermark_moved()
