"""The metadata quorum of one node: Raft on our disk, our clock and our loop, and the machine that it drives.

INVARIANT  SyncObj ticks only while all of its log is durable; what it sends waits for that too.
PREVENTS   an entry that is counted, answered or applied anywhere, and is gone after an end of power.
PROVED BY  tests/cluster/quorum/test_raft_shell.py::test_a_kill_at_any_disk_operation_loses_nothing_acknowledged

A tick first commits and applies what is in the log, then adds what was proposed since. So one proposal alone is
added, synced, applied and answered: its latency is one sync. Whatever comes during that sync is added
by the next tick and shares the next sync. A voter that is alone and has nothing to do does not tick at all.
"""

import asyncio
import errno
from collections.abc import Mapping
from typing import Final

from ..base.errors import ConfigRefused, DiskFull, LogDamaged, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Env
from ..metadata.image import ClusterImage
from ..metadata.machine import Applied, MetadataMachine, Result
from ..metadata.refusal import Refused
from .journal import Journal
from .raft import NEVER_HAPPENED, SUCCESS, Raft, Snapshots, in_world
from .raft_files import SnapshotFile, VoteFile
from .segment_format import Entry
from .transport import QuorumTransport

PROPOSALS_MAX: Final = 10_000  # that wait for an answer at one time
SNAPSHOT_ENTRIES: Final = 5_000  # in the log since the last snapshot: take the next
SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
SNAPSHOT_RETRY_S: Final = 10.0
FULL_DISK_RETRY_S: Final = 0.5
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Quorum:
    """`folder` holds journal, vote and snapshot; `voters` are node id -> (host, port) of the peer door."""

    def __init__(
        self,
        env: Env,
        folder: str,
        machine: MetadataMachine,
        node_id: BrokerId,
        voters: Mapping[BrokerId, tuple[str, int]],
    ) -> None:
        if set(voters) != {node_id}:
            raise ConfigRefused(
                f"Invalid value {sorted(voters)} for configuration controller.quorum.voters: this"
                f" version runs with one voter, and this node is {node_id}."
            )
        self.node_id = node_id
        self._env = env
        self._folder = folder
        self._machine = machine
        self._others = sorted(each for each in voters if each != node_id)
        self._snapshots = Snapshots(machine.snapshot)
        self._transport = QuorumTransport()
        self._raft: Raft | None = None
        self._work = asyncio.Event()
        self._ready = asyncio.Event()
        self._waiting: dict[asyncio.Future[Result], None] = {}
        self._bytes_since_snapshot = 0
        self._snapshot_asked = False
        self._no_snapshot_before = float("-inf")
        self._disk_full: str | None = None
        self._task: asyncio.Task[None] | None = None

    # --- life ---

    async def start(self) -> None:
        """Load snapshot and journal; the image holds all that this node knew. LogDamaged names what it can't read."""
        vote = VoteFile(self._env, f"{self._folder}/vote")
        self._journal = Journal.open(self._env, self._folder, vote)
        vote.check(self._journal[-1].term if len(self._journal) else None)
        self._snapshot_file = SnapshotFile(self._env, f"{self._folder}/snapshot")
        snapshot = self._snapshot_file.load()
        if snapshot is not None:
            previous, last = Entry(*snapshot.previous), Entry(*snapshot.last)
            self._journal.start_at(previous, last, may_lag=bool(self._others))
            self._machine.restore(snapshot.machine)
            self._snapshots.loaded = snapshot
        elif len(self._journal) and self._journal[0].idx != 1:
            raise LogDamaged(
                f"{self._folder} has no snapshot, and its journal begins at entry"
                f" {self._journal[0].idx}: what came before is lost. Restore the folder from a backup."
            )
        with in_world(self._env):
            raft = Raft(
                self.node_id,
                self._others,
                self._journal,
                self._transport,
                self._snapshots,
                self._apply,
            )
        self._transport.term = lambda: raft.raftCurrentTerm
        self._raft = raft
        self._work.set()
        self._task = self._env.tasks.spawn(self._run(raft), name="quorum")

    async def wait_ready(self) -> None:
        """Wait until a leader is known and this node has applied all that was committed when it came."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Proposals under way end with outcome UNKNOWN."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._give_up("This node is stopping.")
        if self._raft is not None:
            with in_world(self._env):
                self._raft.destroy()
            self._raft = None
            await self._journal.close()

    # --- what others ask ---

    @property
    def image(self) -> ClusterImage:
        return self._machine.image

    @property
    def is_leader(self) -> bool:
        return self._raft is not None and bool(self._raft._isLeader())

    @property
    def term(self) -> int:
        return 0 if self._raft is None else int(self._raft.raftCurrentTerm)

    @property
    def leader_id(self) -> BrokerId | None:
        return None if self._raft is None else self._raft.leader_id

    async def propose(self, record: bytes) -> Result:
        """Have the quorum agree on an entry; its result, applied here. Trouble when it can't be known to have been."""
        if self._raft is None or not self.is_leader:
            raise Trouble("This node does not lead the metadata quorum.", Outcome.REFUSED)
        if self._disk_full is not None:
            why = f"The metadata journal can't be written: {self._disk_full}"
            raise DiskFull(why)
        if len(self._waiting) >= PROPOSALS_MAX:
            raise Trouble(f"{PROPOSALS_MAX} metadata changes wait already.", Outcome.REFUSED)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def decided(result: object, reason: int) -> None:
            self._waiting.pop(answer, None)
            if answer.done():
                return  # whoever asked has given up waiting
            if reason == SUCCESS:
                assert isinstance(result, Applied | Refused)
                answer.set_result(result)
                return
            outcome = Outcome.REFUSED if reason in NEVER_HAPPENED else Outcome.UNKNOWN
            answer.set_exception(Trouble(f"The quorum did not agree ({reason}).", outcome))

        self._waiting[answer] = None
        self._raft.submit(record, decided)
        self._work.set()
        try:
            return await answer
        finally:
            self._waiting.pop(answer, None)

    # --- the loop ---

    async def _run(self, raft: Raft) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            await self._make_durable()
            await self._elect(raft)
            self._tick(raft)
            while self._journal.dirty or self._snapshots.to_write is not None:
                await self._make_durable()
                await self._write_snapshot()
                self._tick(raft)
            self._transport.flush()

    async def _elect(self, raft: Raft) -> None:
        """A voter alone leads from its first tick on, which begins with a vote for itself."""
        while not self._others and not self.is_leader:
            try:
                with in_world(self._env):
                    raft.elect_at_once()
                    raft.doTick()
            except OSError as trouble:
                # Nobody has seen this vote. The next try is one for a higher term.
                await self._wait_for_room(trouble)
            await self._make_durable()

    def _tick(self, raft: Raft) -> None:
        assert not self._journal.undurable, "a tick counts what is in the log as held"
        led = self.is_leader
        with in_world(self._env):
            raft.doTick()
        self._machine.image.controller_id = raft.leader_id
        if led and not self.is_leader:
            self._give_up("This node does not lead the metadata quorum any more.")
        if raft.isReady():
            self._ready.set()
        if self._wants_snapshot():
            self._snapshot_asked = True
            raft.forceLogCompaction()
            self._work.set()

    def _wants_snapshot(self) -> bool:
        if self._snapshot_asked or self._env.clock.steady() < self._no_snapshot_before:
            return False
        log_is_long = len(self._journal) > SNAPSHOT_ENTRIES
        return log_is_long or self._bytes_since_snapshot > SNAPSHOT_BYTES

    def _apply(self, entry: bytes) -> object:
        """Refusals are values. What is raised leaves the tick and ends this task, and with it the process."""
        self._bytes_since_snapshot += len(entry)
        return self._machine.apply(entry)

    async def _make_durable(self) -> None:
        """Until it is. A full disk is waited for, with proposals refused; one that fails ends the process."""
        wrote = self._journal.dirty  # to write nothing says nothing about room
        while self._journal.dirty:
            try:
                await self._journal.make_durable()
            except OSError as trouble:
                await self._wait_for_room(trouble)
        if wrote and self._disk_full is not None:
            self._env.log.info("metadata_disk_has_room_again", folder=self._folder)
            self._disk_full = None

    async def _wait_for_room(self, trouble: OSError) -> None:
        if trouble.errno not in _FULL:
            raise trouble
        if self._disk_full is None:
            self._env.log.error("metadata_disk_full", folder=self._folder, why=str(trouble))
        self._disk_full = str(trouble)
        await self._env.clock.sleep(FULL_DISK_RETRY_S)

    async def _write_snapshot(self) -> None:
        snapshot = self._snapshots.to_write
        if snapshot is None:
            return
        self._snapshot_asked = False
        self._bytes_since_snapshot = 0
        well = True
        try:
            await self._snapshot_file.store(snapshot)
        except OSError as trouble:
            # The journal still has everything: it grows until the disk has room again.
            self._env.log.error("metadata_snapshot_failed", folder=self._folder, why=str(trouble))
            self._no_snapshot_before = self._env.clock.steady() + SNAPSHOT_RETRY_S
            well = False
        self._snapshots.written(well=well)

    def _give_up(self, why: str) -> None:
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(Trouble(why, Outcome.UNKNOWN))
        self._waiting.clear()
