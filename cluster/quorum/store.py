"""What Raft has to write, made durable by one task: the journal, snapshots of its own, snapshots of a leader.

INVARIANT  the machine takes up a snapshot of a leader only after its file is durable, and the journal follows it; and no snapshot
           is stored that this build can't read.
PREVENTS   a node that comes back with a journal that begins behind the snapshot it has. And one that never comes back: a leader of a
           later version would put an end to all that it knew.
PROVED BY  tests/cluster/quorum/test_snapshot_install.py::test_a_crash_at_any_disk_operation_of_an_install_loses_nothing
           tests/cluster/quorum/test_snapshot_install.py::test_a_snapshot_of_a_later_version_is_refused_and_what_was_there_stays
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ..base.errors import NO_DESCRIPTOR_ERRNOS, NO_ROOM_ERRNOS, LogDamaged
from ..base.ids import BrokerId
from ..base.ports import Env
from ..metadata.machine import MetadataMachine
from ..metadata.snapshot import SnapshotUnreadable, read_image
from .journal import Journal
from .raft import Raft
from .raft_files import ADVICE, Snapshot, SnapshotFile
from .redirected import in_world
from .vote_file import VoteFile
from .voters import Voters

SNAPSHOT_ENTRIES: Final = 5_000  # in the log since the last snapshot: take the next
SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
# Of SNAPSHOT_ENTRIES, what stays in the log behind a snapshot: a follower that is not quite as far as the leader, as any
# is at any moment, would be sent the snapshot otherwise.
KEPT_PART: Final = 5
KEPT_BYTES: Final = 4 * 1024 * 1024
SNAPSHOT_RETRY_S: Final = 10.0
FULL_DISK_RETRY_S: Final = 0.5
COPY_RETRY_S: Final = 5.0  # of a vote
# A voter whose disk has stood still for so long leads no more, and does not ask to.
STALLED_S: Final = 1.0
# Twice as long each time that it was in vain, up to this: where all disks are slow there is no better one.
PATIENCE_S_MAX: Final = 30.0
ROOM_BYTES: Final = 4096
FULL: Final = NO_ROOM_ERRNOS


def open_folder(
    env: Env, folder: str, node_id: BrokerId, first_voters: Voters
) -> tuple[Journal, SnapshotFile, Snapshot | None]:
    """What this node knew when it ended. LogDamaged names what is missing or can't be read."""
    vote = VoteFile(env, f"{folder}/vote")
    journal = Journal.open(env, folder, vote)
    vote.check(journal[-1].term if len(journal) else None)
    file = SnapshotFile(env, f"{folder}/snapshot")
    snapshot = file.load()
    if snapshot is not None:
        alone = set(snapshot.voters or first_voters) == {node_id}
        journal.start_at(snapshot.previous, snapshot.last, may_lag=not alone)
    elif len(journal) and journal[0].idx != 1:
        raise LogDamaged(
            f"{folder} has no snapshot, and its journal begins at entry {journal[0].idx}: what came"
            f" before is lost. {ADVICE}"
        )
    return journal, file, snapshot


class Store:
    """`stored` is called whenever the shell should look: more is durable than before, or the disk is full."""

    def __init__(
        self,
        env: Env,
        folder: str,
        journal: Journal,
        snapshot_file: SnapshotFile,
        machine: MetadataMachine,
        stored: Callable[[], None],
    ) -> None:
        self._env = env
        self._folder = folder
        self._journal = journal
        self._snapshot_file = snapshot_file
        self._machine = machine
        self._stored = stored
        self._work = asyncio.Event()
        self._no_snapshot_before = float("-inf")
        self._undurable_since: float | None = None
        self._patience_s = STALLED_S  # of a leader, with its own disk
        self._copies_again = False  # a timer is set
        self.bytes_since_snapshot = 0
        self.snapshot_failures = 0
        self.disk_full: str | None = None  # or no file can be opened
        self._lacks_files = False
        self.opened = False  # the log's beginning is durable: now a vote may be stored beside it

    # --- what the shell asks between two steps ---

    def wake_if_needed(self, raft: Raft) -> None:
        if self._journal.undurable and self._undurable_since is None:
            self._undurable_since = self._env.clock.steady()
        if self._has_work(raft):
            self._work.set()

    def stalled_s(self) -> float:
        """For how long nothing has become durable that should have."""
        if self._undurable_since is None:
            return 0.0
        return self._env.clock.steady() - self._undurable_since

    @property
    def works(self) -> bool:
        """Whether this node's disk is good enough to ask for the lead."""
        return self.disk_full is None and self.stalled_s() < STALLED_S

    def lets_lead(self) -> bool:
        """Whether it is good enough to go on leading; asked of a leader, which makes room for another one if it is not."""
        if self.disk_full is not None:
            return False
        if self.stalled_s() < self._patience_s:
            return True
        self._patience_s = min(2 * self._patience_s, PATIENCE_S_MAX)
        return False

    def maybe_ask_snapshot(self, raft: Raft) -> None:
        """Whatever the journal still has to write: a follower with a slow disk is never done with that."""
        if not raft.snapshots.is_idle:
            return
        if raft.to_install is not None:
            return  # ours would be the older one, and take its place in the file
        if self._env.clock.steady() < self._no_snapshot_before:
            return
        newest = raft.snapshots.newest
        # What is behind that is not in a snapshot: until it is applied each would be the same as the one before.
        done = 0 if newest is None else newest.last.idx
        log_is_long = raft.applied_index - done > SNAPSHOT_ENTRIES
        if log_is_long or self.bytes_since_snapshot > SNAPSHOT_BYTES:
            raft.forceLogCompaction()

    # --- the task ---

    async def run(self, raft: Raft) -> None:
        while self._journal.dirty:
            await self._make_durable(raft)
        await self._settle_vote()
        self.opened = True
        self._stored()
        while True:
            await self._work.wait()
            self._work.clear()
            while self._has_work(raft):
                await self._make_durable(raft)
                if not await self._journal.vote.copy() and not self._copies_again:
                    self._copies_again = True
                    self._env.clock.call_later(COPY_RETRY_S, self._copy_again)
                await self._write_snapshot(raft)
                await self._install(raft)
                self._stored()

    def _copy_again(self) -> None:
        self._copies_again = False
        self._journal.vote.to_copy = True
        self._work.set()

    def _has_work(self, raft: Raft) -> bool:
        to_write = raft.snapshots.to_write is not None or raft.to_install is not None
        return self._journal.dirty or to_write or self._journal.vote.to_copy

    async def _make_durable(self, raft: Raft) -> None:
        """What is there now. A full disk is waited for, with proposals refused; one that fails ends the process."""
        if not self._journal.dirty:
            return  # to write nothing says nothing about room
        while True:
            try:
                await self._journal.make_durable()
                break
            except OSError as trouble:
                await self.wait_for_room(trouble)
        if self.stalled_s() < STALLED_S:
            self._patience_s = max(STALLED_S, self._patience_s / 2)
        undurable = self._journal.undurable
        self._undurable_since = self._env.clock.steady() if undurable else None
        with in_world(self._env):
            raft.say_what_is_held()
        self.has_room()
        self._stored()

    async def _settle_vote(self) -> None:
        while True:
            try:
                self._journal.vote.settle()
                self.has_room()
                return
            except OSError as trouble:
                await self.wait_for_room(trouble)

    def look_for_room(self) -> None:
        """OSError: who leads alone now could write nothing down. (A vote takes no room, so it says nothing of that.)"""
        path = f"{self._folder}/room"
        self._env.disk.replace(path, bytes(ROOM_BYTES))
        self._env.disk.remove(path)
        self.has_room()

    def has_room(self) -> None:
        if self.disk_full is not None:
            event = "metadata_disk_has_room_again"
            if self._lacks_files:
                event = "metadata_files_open_again"
            self._env.log.info(event, folder=self._folder)
            self.disk_full = None

    async def wait_for_room(self, trouble: OSError) -> None:
        if trouble.errno not in FULL:
            raise trouble
        lacks_files = trouble.errno in NO_DESCRIPTOR_ERRNOS
        if self.disk_full is None or self._lacks_files != lacks_files:
            event = "metadata_no_descriptors" if lacks_files else "metadata_disk_full"
            self._env.log.error(event, folder=self._folder, cause=str(trouble))
        self.disk_full, self._lacks_files = str(trouble), lacks_files
        self._stored()  # a leader gives up its lead then
        await self._env.clock.sleep(FULL_DISK_RETRY_S)

    async def _write_snapshot(self, raft: Raft) -> None:
        snapshot = raft.snapshots.to_write
        if snapshot is None:
            return
        if self._journal.durable_last < snapshot.last.idx:
            await self._make_durable(raft)
        # What is cut to the snapshot has to be written; what is committed, and is in it, is never taken back.
        assert self._journal.durable_last >= snapshot.last.idx, "a snapshot ahead of the journal"
        size, self.bytes_since_snapshot = self.bytes_since_snapshot, 0
        well = True
        try:
            await self._snapshot_file.store(snapshot)
        except OSError as trouble:
            # The journal still has everything: it grows until the disk has room again.
            self._snapshot_failed(trouble)
            self._no_snapshot_before = self._env.clock.steady() + SNAPSHOT_RETRY_S
            self.bytes_since_snapshot += size  # it is as due as before
            well = False
        raft.snapshots.written(well=well, keep=self._kept(snapshot.previous.idx))

    def _snapshot_failed(self, trouble: OSError) -> None:
        self.snapshot_failures += 1
        self._env.log.error("metadata_snapshot_failed", folder=self._folder, cause=str(trouble))

    def _kept(self, index: int) -> int:
        """How many entries before this one are worth keeping."""
        end = index - self._journal[0].idx
        start = max(0, end - SNAPSHOT_ENTRIES // KEPT_PART)
        size = 0
        for kept, entry in enumerate(reversed(self._journal.between(start, end - start))):
            size += len(entry.command)
            if size > KEPT_BYTES:
                return kept
        return end - start

    async def _install(self, raft: Raft) -> None:
        """A leader's snapshot takes the place of all that is here, unless the log has come that far by itself."""
        snapshot = raft.to_install
        if snapshot is None:
            return
        try:
            if not raft.has(snapshot.last):
                image = read_image(snapshot.machine)
                await self._snapshot_file.store(snapshot)
                # from here ...
                raft.snapshots.newest = snapshot
                if not raft.has(snapshot.last):
                    self._machine.become(image)
                    with in_world(self._env):
                        raft.install(snapshot)
                    self.bytes_since_snapshot = 0
                    self._env.log.info("metadata_snapshot_installed", last=snapshot.last.idx)
                # ... to here no await: the machine, the log and the voters change together
        except SnapshotUnreadable as trouble:
            cause = str(trouble)
            self._env.log.error("metadata_snapshot_unreadable", last=snapshot.last.idx, cause=cause)
            with in_world(self._env):
                raft.rest_from_snapshots(SNAPSHOT_RETRY_S)
        except OSError as trouble:
            if trouble.errno not in FULL:
                raise
            self._snapshot_failed(trouble)
            await self._env.clock.sleep(FULL_DISK_RETRY_S)
        raft.installed()
