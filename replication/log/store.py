"""All logs of a node: how they are opened, made durable, checkpointed, deleted and stopped.

INVARIANT  a start believes only what the last stop or checkpoint made durable before it claimed it: hints with the
           clean marker, recovery points from an intact checkpoint, the page cache on the same boot. What is
           missing is found out again from the logs: slow but right.
PREVENTS   data lost, or refused, because a file beside the log was old, missing or damaged.
PROVED BY  tests/replication/log/test_store.py::test_whatever_a_crash_leaves_what_was_synced_is_there

    store = LogStore(env, data_dir)
    store.start()
    logs = [store.open(partition, topic_id, config) for …]      # LogDamaged: that partition stays offline
    await store.opened(logs)                                     # from here on logs may be written
    … await store.sync(logs that were appended to), a loop turn at a time; then what they held is acknowledged
    … await store.checkpoint(), a few times a second
    await store.stop(logs)
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from fencepost.cluster.base.durable_folder import make_durable_folder
from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Disk, Env

from . import burial, hints, snapshots, standing
from .checkpoint import FILE_NAME, NONE, UNKNOWN, Kind, PartitionOffsets
from .config import LogConfig
from .damage import DamagedLogs
from .doubts import Doubts
from .hints import LogHint
from .log import Log
from .metadata_file import read_topic_id
from .names import LOG, METADATA
from .pool import OPEN_MAX, FilePool
from .producer_budget import PRODUCERS_MAX, ProducerBudget
from .producers_machine import PRODUCER_ID_EXPIRATION_MS
from .removal import FOLDER_NAME_MAX, Removal, partition_of
from .retention import make_room
from .scrub import check_around
from .settle import Settlement
from .shared import Shared
from .spare import Spare
from .sync import sync_logs

DOUBTS: Final = (Kind.DOUBT, Kind.UNOPENED)
STRAY_SUFFIX: Final = "-stray"  # of a topic of the same name with another id: a person decides
SETTLE_SHARES: Final = 4  # how many threads of the disk's a checkpoint uses


class LogStore:
    """One for each node."""

    def __init__(
        self,
        env: Env,
        data_dir: str,
        *,
        open_files_max: int = OPEN_MAX,
        producers_max: int = PRODUCERS_MAX,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        self.env = env
        self.data_dir = data_dir
        self.offsets = PartitionOffsets(env, f"{data_dir}/{FILE_NAME}")
        pool = FilePool(env.disk, open_max=open_files_max)
        self.removal = Removal(env, data_dir, self.offsets, pool)
        self.spare = Spare(env, data_dir)
        self.shared = Shared(
            env=env,
            pool=pool,
            offsets=self.offsets,
            removal=self.removal,
            spare=self.spare,
            budget=ProducerBudget(producers_max),
            producer_expiration_ms=producer_expiration_ms,
        )
        self.doubts = Doubts(self.offsets)
        self.damaged = DamagedLogs(env, data_dir)
        self.was_clean = False
        self.is_new = False  # nothing was ever stored here, so nothing was left unclean either
        self._hints: dict[TopicPartition, LogHint] = {}
        self.same_boot = False
        self._confirms_boot = False  # with the next checkpoint

    # -- start -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read what the last stop left. Nothing is changed but what was being deleted."""
        disk = self.env.disk
        make_durable_folder(disk, self.data_dir)
        names = disk.list(self.data_dir)
        self.offsets.load()
        has_logs = any(partition_of(name) for name in names)
        if FILE_NAME not in names and has_logs:
            self.offsets.intact = False
            self.env.log.error("partition_offsets_missing", folder=self.data_dir)
        knows_offsets = self.offsets.intact
        if not knows_offsets:
            # Until each was opened, over any number of starts: the next write makes a file that is intact again.
            for partition in self.folders():
                self.offsets.put(Kind.RECOVERY_POINT, partition, UNKNOWN)
        self.removal.start(names)
        self.damaged.load()
        self.same_boot = self.offsets.boot_id == self.env.boot_id
        found = hints.load(disk, self.data_dir)
        self.was_clean = found is not None
        self.is_new = not self.was_clean and FILE_NAME not in names and not has_logs
        self._hints = found or {}
        if self.is_new or not knows_offsets:
            self.doubts.nothing_is_known()
        elif not (self.was_clean or self.same_boot):
            self.doubts.power_was_lost()

    def folders(self) -> list[TopicPartition]:
        """Every partition that has a folder, whether or not anyone knows of it."""
        names = self.env.disk.list(self.data_dir)
        return [partition for name in names if (partition := partition_of(name)) is not None]

    def open(self, partition: TopicPartition, topic_id: UUID | None, config: LogConfig) -> Log:
        """The log of a partition, made when there is none. LogDamaged: it can't be used as it is."""
        folder = f"{self.data_dir}/{partition}"
        hint = self._hints.pop(partition, None)
        if hint is not None and not hint.is_of(topic_id):
            hint = None
        if hint is None and topic_id is not None:
            self._set_aside_stray(partition, folder, topic_id)
        recovery_point = self.offsets.recovery_point_of(partition)
        high_watermark = self.offsets.get(Kind.HIGH_WATERMARK, partition) or 0
        is_late = self.offsets.get(Kind.UNOPENED, partition) is not None
        log = Log.open(
            self.env,
            folder,
            config,
            topic_partition=partition,
            topic_id=topic_id,
            clean=hint is not None,
            recovery_point=recovery_point,
            hint=hint,
            log_start_offset=self.offsets.get(Kind.LOG_START, partition) or 0,
            high_watermark=high_watermark,
            same_boot=self.same_boot and not is_late,
            shared=self.shared,
        )
        log.point_on_disk = min(recovery_point or 0, log.settled_point)
        log.committed = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        if log.committed < high_watermark:  # what comes there instead is yet to be committed
            log.put(Kind.HIGH_WATERMARK, log.committed)
        damaged_at = self.damaged.of(partition, topic_id)
        if damaged_at is not None:
            log.damage = check_around(log, damaged_at)
        log.put(Kind.UNOPENED, NONE)
        if recovery_point is None:
            log.put(Kind.RECOVERY_POINT, log.settled_point)
        self.doubts.opens(partition, config, is_late=is_late)  # not before what was found is synced
        cleaned_to = self.offsets.get(Kind.CLEANED, partition) or -1
        # A crash may have taken what was cleaned, and not synced since: what comes there instead is yet to be.
        log.cleaned_to = min(cleaned_to, log.log_end_offset)
        if log.cleaned_to < cleaned_to:
            log.put(Kind.CLEANED, log.cleaned_to)
        return log

    def _set_aside_stray(self, partition: TopicPartition, folder: str, topic_id: UUID) -> None:
        """The folder may be of a topic that was deleted, and made again, while this node was down.

        Of one that does not say whose it is nothing was ever synced: its id would have been, with the first batch. An end of power
        may keep the batch and take the id all the same.
        """
        found = read_topic_id(self.env.disk, f"{folder}/{METADATA}")
        if found == topic_id:
            return
        if found is None and (
            self.offsets.recovery_point_of(partition) != 0 or not self._has_records(folder)
        ):
            return
        whose = f"{self.env.clock.now_ms()}" if found is None else found.hex
        aside = self._free_name(f"{folder[: len(self.data_dir) + FOLDER_NAME_MAX]}.{whose}")
        said = "unknown: partition.metadata never reached the disk" if found is None else str(found)
        self.env.log.warn("stray_partition", folder=folder, kept_as=aside, topic_id=said)
        # It may have been this topic's, and have acknowledged what it had not synced.
        self.offsets.forget([partition], but=DOUBTS if found is None else ())
        self.env.disk.rename(folder, aside)
        self.env.disk.sync_folder(self.data_dir)

    def _free_name(self, kept: str) -> str:
        """One was set aside under that name before, where the clock has been set back: both stay."""
        name, number = f"{kept}{STRAY_SUFFIX}", 1
        while self.env.disk.exists(name):
            number += 1
            name = f"{kept}.{number}{STRAY_SUFFIX}"
        return name

    def _has_records(self, folder: str) -> bool:
        disk = self.env.disk
        names = [f"{folder}/{name}" for name in disk.list(folder) if name.endswith(LOG)]
        return any(disk.size(name) for name in names)

    async def opened(self, logs: Sequence[Log]) -> None:
        """All logs that there are have been opened: from here on they may be written.

        OSError where the disk is full: what a crash would find is older, and as true. The next checkpoint tries again.
        """
        hints.remove(self.env.disk, self.data_dir)
        if not self.same_boot:
            self._name_unopened(logs)
        self._hints = {}
        for log in logs:
            if log.log_end_offset:
                log.put(Kind.LOG_START, log.log_start_offset)
                log.put(Kind.RECOVERY_POINT, log.settled_point)
        self.doubts.all_opened()
        self._confirms_boot = True
        await self.checkpoint()

    def _name_unopened(self, logs: Sequence[Log]) -> None:
        """Of topics that went while this node was down and may come back, or refused: what the last crash left in them could not
        be told from damage any more. A clean stop (they have a hint yet) left them whole."""
        opened = {log.topic_partition for log in logs}
        for partition in self.folders():
            if partition not in opened and partition not in self._hints:
                self.offsets.put(Kind.UNOPENED, partition, 1)

    # -- while it runs ---------------------------------------------------------------------------------

    async def sync(self, logs: Iterable[Log]) -> None:
        """Group commit: `recovery_point` of each moves to what was its end at the call."""
        await sync_logs(self.env, logs)

    async def checkpoint(self) -> None:
        """Make durable what a start after a crash goes by; remove what is out of the logs since the last one."""
        settlements = self._settlements()
        busy = [settlement for settlement in settlements if settlement.has_work]
        shares = [busy[start::SETTLE_SHARES] for start in range(min(SETTLE_SHARES, len(busy)))]
        disk = self.env.disk
        await asyncio.gather(*(disk.run(_run_all, disk, share) for share in shares))
        for settlement in settlements:
            settlement.done()
        try:
            await self.offsets.flush()
        except OSError as error:
            for settlement in settlements:
                settlement.take_back_doomed()
            if error.errno in DISK_FULL_ERRNOS:
                await _make_room(settlements)
            raise
        for settlement in settlements:
            if not settlement.log.removed:
                settlement.is_durable()
                snapshots.drop_old(settlement.log)  # the older ones are those to believe until here
                burial.bury(settlement.log, settlement.doomed)
        await _make_room([settlement for settlement in settlements if settlement.found_disk_full])
        if self.spare.is_due:
            await self.spare.keep()
        self.removal.flushed()
        if self._confirms_boot:
            self.offsets.confirm_boot()
            self._confirms_boot = False

    def _settlements(self) -> list[Settlement]:
        """All but those that the disk does not let begin: what others have handed to theirs must not go with them."""
        begun = []
        for log in list(self.shared.unsettled):
            try:
                begun.append(Settlement(log))
            except (OSError, LogDamaged) as error:
                self.env.log.warn("log_not_settled", folder=log.folder, cause=str(error))
        return begun

    def waiting(self) -> dict[TopicPartition, bool]:
        """Logs whose deleted segments another checkpoint may remove, and whether that takes a sync of the log before. Others wait for
        the high watermark to pass a snapshot."""
        return {
            log.topic_partition: standing.waits_for_sync(log)
            for log in self.shared.unsettled
            if log.doomed and log.failed is None and standing.may_free(log)
        }

    def delete(self, logs: Sequence[Log]) -> None:
        """For good. Blocks for two syncs; the files go later, those who still read them are served."""
        for log in logs:  # whatever the disk says: no checkpoint speaks of it any more
            log.removed = True
            log.close(clean=False)
            log.failed = log.failed or OSError("the log was deleted")
        suffix = self.removal.forget([log.topic_partition for log in logs])
        for log in logs:
            delay_s = log.config.file_delete_delay_ms / 1000
            self.removal.bury(log.topic_partition, delay_s, suffix)
        if logs:
            self.env.disk.sync_folder(self.data_dir)

    def delete_unopened(self, partitions: Sequence[TopicPartition]) -> None:
        """The same for what can't be opened: without it a damaged replica that is moved away comes back damaged."""
        suffix = self.removal.forget(partitions)
        for partition in partitions:
            self.removal.bury(partition, 0.0, suffix)
        if partitions:
            self.env.disk.sync_folder(self.data_dir)

    # -- stop ------------------------------------------------------------------------------------------

    async def stop(self, logs: Sequence[Log]) -> None:
        """Cleanly, if the disk lets us: nobody writes any more. What fails is found out at the next start."""
        try:
            self.shared.stops = True
            if self.shared.snapshotting:
                await asyncio.wait(self.shared.snapshotting.values())
            await self.sync(logs)
            await self.checkpoint()
            await self.shared.graves.finish(logs)
            await self.sync(
                logs
            )  # of folders: what left them since must not be back after an end of power
            found = {log.topic_partition: log.close(clean=True) for log in logs}
            left = {partition: hint for partition, hint in found.items() if hint is not None}
            # That of no other is sure to have all that belongs to it.
            for partition, hint in left.items():
                self.offsets.put(Kind.LOG_START, partition, hint.log_start_offset)
            self.offsets.rewrite()
            for log in logs:
                if log.failed is not None:
                    raise log.failed  # what the disk has of it nobody knows, so the stop was not clean
            hints.save(self.env.disk, self.data_dir, left)
        except (OSError, LogDamaged) as error:
            self.env.log.error("stop_not_clean", cause=str(error))
        self.offsets.close()
        self.shared.pool.close_all()


async def _make_room(settlements: list[Settlement]) -> None:
    for settlement in settlements:
        if settlement.log.doomed:
            await make_room(settlement.log)


def _run_all(disk: Disk, settlements: list[Settlement]) -> None:
    for settlement in settlements:
        settlement.run(disk)
