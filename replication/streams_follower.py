"""What this node follows of one leader, over one stream: ask, cut, append, acknowledge.

INVARIANT  what is acknowledged as written is in the log, and as synced is on the disk; a partition that can't go on rests
           or is let go, and the others of the stream go on.
PREVENTS   a commit that counts bytes which were never here; one full or failing log that stops a hundred others.
PROVED BY  tests/replication/test_streams.py::test_a_follower_whose_disk_is_full_goes_on_when_there_is_room

The disk is waited for by nobody here: appends go into the page cache, the node's flusher syncs them with all others,
and says so (`on_durable`); all that was synced together is acknowledged together.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final
from uuid import UUID

from fencepost.cluster.base.errors import FrameRefused, LogDamaged, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.batch import BatchRefused

from . import stream_frames as frames
from .divergence_machine import OutOfRange, Parted, cut_out_of_range, cut_where_parted
from .follower_copy import PASSING, Copy, refusal_name
from .follower_machine import Phase
from .log.producer_snapshot import SnapshotDamaged
from .partition import Partition
from .peers import Stream
from .stream_frames import Data, Follow, Header

if TYPE_CHECKING:
    from .follower_streams import FollowerStreams

# How much may be taken before the leader hears of the room, when there is nothing else to tell it.
UNTOLD_BYTES_MAX: Final = 1 << 20
RETRY_S: Final = 0.02
RETRY_S_MAX: Final = 0.5
STEADY_S: Final = 1.0  # a stream that held for less was no success


class FollowerStream:
    """The stream to one leader; it is opened while there is anything to follow there, and opened again."""

    def __init__(self, env: Env, owner: "FollowerStreams", leader_id: BrokerId) -> None:
        self.leader_id = leader_id
        self.copies: dict[tuple[UUID, int], Copy] = {}
        self._env = env
        self._owner = owner
        self._stream: Stream | None = None
        self._spoke = False
        self._slots_given = 0
        self._by_slot: dict[int, Copy] = {}
        self._resting: dict[Copy, None] = {}
        self._acks: dict[Copy, None] = {}
        self._are_acks_due = False
        self._to_ask: dict[Copy, None] = {}
        self._parted: deque[tuple[int, Parted | OutOfRange]] = deque()
        self._taken = 0
        self._taken_told = 0
        self._kick = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _now_ms(self) -> int:
        return int(self._env.clock.steady() * 1000)

    # -- what is followed ------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """In its present leader epoch. It is asked for in this turn of the loop, with all others."""
        copy = Copy(self, partition)
        assert copy.name not in self.copies, f"{partition.topic_partition} is followed already"
        self.copies[copy.name] = copy
        partition.copy_to(copy)
        self._ask_soon(copy)
        self.kick()

    def forget(self, copy: Copy) -> None:
        """Another leads it now, or it is gone from here."""
        if self.copies.get(copy.name) is not copy:
            return
        del self.copies[copy.name]
        copy.partition.copy_to(None)
        self._resting.pop(copy, None)
        self._to_ask.pop(copy, None)
        self._let_go(copy)

    def _let_go(self, copy: Copy, *, is_stuck: bool = False) -> None:
        """The leader need send no more of it."""
        self._acks.pop(copy, None)
        slot = copy.machine.slot
        if self._by_slot.pop(slot, None) is not None:
            self._write(*([frames.stuck(slot)] if is_stuck else frames.leave([slot])))

    def kick(self) -> None:
        """There is a reason to try at once."""
        self._kick.set()

    # -- the stream ------------------------------------------------------------------------------------

    async def run(self) -> None:
        wait_s = RETRY_S
        while True:
            self._kick.clear()
            if not self.copies:
                await self._kick.wait()
                continue
            since, served = self._env.clock.steady(), False
            try:
                hello = {frames.EPOCH: self._owner.broker_epoch(), frames.TAKES_PRODUCERS: True}
                stream = await self._owner.door.open_stream(self.leader_id, frames.STREAM, hello)
                served = True
                await self._serve(stream)
                why = "it closed the stream"
            except Trouble as trouble:
                why = str(trouble)
            if self._env.clock.steady() - since >= STEADY_S:
                wait_s = RETRY_S
            # One that was not there before is tried several times a second.
            say = self._env.log.info if served else self._env.log.debug
            say("leader_lost", node=self.leader_id, cause=why)
            await self._wait(wait_s * self._env.rng.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, RETRY_S_MAX)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._kick.wait()
        except TimeoutError:
            return

    async def _serve(self, stream: Stream) -> None:
        self._stream = stream
        self._taken = self._taken_told = 0
        self.tell_broker_epoch()  # it may have changed since the hello
        for copy in self.copies.values():
            self._ask_soon(copy)
        try:
            while (frame := await stream.read()) is not None:
                self._on_frame(*frame)
        finally:
            self._stream = None
            stream.abort()
            for copy in self.copies.values():
                copy.machine.lose_stream()
            for waiting in (self._by_slot, self._resting, self._acks, self._to_ask):
                waiting.clear()

    def _write(self, *headers: Header) -> None:
        if self._stream is not None:
            self._spoke = True
            for header in headers:
                self._stream.write(header)

    def beat(self) -> None:
        """A few times a second: say that we live, if nothing else was said, and ask for what has rested."""
        if self._stream is None:
            return
        if not self._spoke:
            self._write(frames.alive(self._owner.broker_epoch()))
        self._spoke = False
        if self._resting:
            now_ms = self._now_ms()
            for copy in [each for each in self._resting if each.machine.has_rested(now_ms)]:
                self._ask_soon(copy)

    def grant(self, copies: list[Copy]) -> None:
        """The leader may send more of these."""
        self._write(*frames.grant([(copy.machine.slot, copy.granted) for copy in copies]))

    def tell_broker_epoch(self) -> None:
        """The leader counts us only as the process that the metadata log knows."""
        self._write(frames.alive(self._owner.broker_epoch()))

    def _on_frame(self, header: Header, payload: memoryview) -> None:
        match frames.kind_of(header):
            case frames.DATA:
                self._on_data(frames.read_data(header, len(payload)), payload)
            case frames.PIECE:
                self._on_piece(frames.read_piece(header), payload)
            case frames.PRODUCERS:
                self._on_producers(frames.read_producers(header), bytes(payload))
            case frames.PART:
                for slot, epoch, end_offset in frames.read_three(header):
                    self._part_soon(slot, Parted(epoch, end_offset))
            case frames.RANGE:
                for slot, log_start, log_end in frames.read_three(header):
                    self._part_soon(slot, OutOfRange(log_start, log_end))
            case frames.NO:
                for slot, code in frames.read_pairs(header):
                    self._on_refused(slot, code)
            case unknown:
                raise FrameRefused(f"a leader sent a frame of kind {unknown!r:.100}")

    # -- asking ----------------------------------------------------------------------------------------

    def _ask_soon(self, copy: Copy) -> None:
        if not self._to_ask:
            self._loop.call_soon(self._ask)
        self._to_ask[copy] = None

    def _ask(self) -> None:
        asked: list[Follow] = []
        waiting, self._to_ask = self._to_ask, {}
        if self._stream is None:
            return  # all are asked for when there is one
        for copy in waiting:
            partition, machine = copy.partition, copy.machine
            if not partition.follows(machine.leader_epoch):
                continue  # the metadata log will say who leads it
            self._resting.pop(copy, None)
            self._by_slot.pop(machine.slot, None)
            self._slots_given += 1
            log = partition.log
            copy.piecemeal = bytearray()
            is_limited = self._owner.is_limited and copy.is_throttled
            copy.granted, copy.taken = (0 if is_limited else frames.UNLIMITED), 0
            asked.append(
                machine.ask(
                    self._slots_given,
                    last_epoch=log.epochs.latest,
                    log_end=log.log_end_offset,
                    counted_end=partition.machine.counted_end,
                    log_start=partition.counted_log_start,
                    granted=copy.granted,
                )
            )
            self._by_slot[machine.slot] = copy
        self._write(*frames.follow(asked))

    def _copy_at(self, slot: int) -> Copy | None:
        """Whose answer this is, if it still wants it."""
        copy = self._by_slot.get(slot)
        if copy is None or not copy.machine.expects(slot):
            return None
        return copy if copy.partition.follows(copy.machine.leader_epoch) else None

    def _part_soon(self, slot: int, where: Parted | OutOfRange) -> None:
        """One a turn: each reads again who produced what since the last snapshot, up to 0.1 s."""
        if not self._parted:
            self._loop.call_soon(self._part_next)
        self._parted.append((slot, where))

    def _part_next(self) -> None:
        slot, where = self._parted.popleft()
        if self._parted:
            self._loop.call_soon(self._part_next)
        self._on_parted(slot, where)

    def _on_parted(self, slot: int, where: Parted | OutOfRange) -> None:
        copy = self._copy_at(slot)
        if copy is None:
            return
        partition, log = copy.partition, copy.partition.log
        if isinstance(where, Parted):
            cut = cut_where_parted(log.epochs, log.log_end_offset, where)
        else:
            cut = cut_out_of_range(log.log_end_offset, where)
        try:
            partition.cut(cut)
        except (OSError, LogDamaged) as failed:
            self._stuck(copy, f"it could not be truncated: {failed}")
            return
        self._acks.pop(copy, None)
        self._env.log.info(
            "logs_parted",
            partition=str(partition.topic_partition),
            leader=self.leader_id,
            answer=repr(where),
        )
        self._ask_soon(copy)

    def _on_refused(self, slot: int, code: int) -> None:
        copy = self._copy_at(slot)
        if copy is None:
            return
        # Of another leader we hear from the metadata log; in case this one only was too early, ask again.
        self._by_slot.pop(slot)
        self._rest(copy)
        if code not in PASSING:
            self._env.log.warn(
                "leader_refuses",
                partition=str(copy.partition.topic_partition),
                leader=self.leader_id,
                cause=refusal_name(code),
            )

    def _rest(self, copy: Copy) -> None:
        copy.machine.rest(self._now_ms())
        self._resting[copy] = None

    def _stuck(self, copy: Copy, why: str, *, is_disk: bool = True) -> None:
        """It can't be written now; if its log failed, not before the next start.

        Of our own disk the leader hears, so that commits do not wait for us until the lag limit.
        """
        self._env.log.error(
            "following_stopped",
            partition=str(copy.partition.topic_partition),
            leader=self.leader_id,
            cause=why,
        )
        self._let_go(copy, is_stuck=is_disk)
        if copy.partition.closed is not None or copy.partition.log.failed is not None:
            self.forget(copy)
        else:
            self._rest(copy)

    # -- taking ----------------------------------------------------------------------------------------

    def _on_data(self, entries: list[Data], payload: memoryview) -> None:
        at = 0
        for data in entries:
            copy = self._copy_at(data.slot)
            if copy is not None:
                self._take(copy, data, payload[at : at + data.size])
            at += data.size
        self._taken += at
        self._owner.manager.counters.replicated_bytes_in += at
        if self._taken - self._taken_told >= UNTOLD_BYTES_MAX:
            self._acks_soon()

    def _on_producers(self, slot: int, snapshot: bytes) -> None:
        self._taken += len(snapshot)
        self._acks_soon()
        if (copy := self._copy_at(slot)) is None:
            return
        try:
            copy.partition.take_producers(snapshot)
        except (OSError, LogDamaged, SnapshotDamaged) as failed:
            is_disk = not isinstance(failed, SnapshotDamaged)
            self._stuck(copy, f"who wrote what was deleted is not kept: {failed}", is_disk=is_disk)
        else:
            self.acknowledge(copy)

    def _on_piece(self, whole: Data, payload: memoryview) -> None:
        self._taken += len(payload)
        self._acks_soon()
        copy = self._copy_at(whole.slot)
        if copy is None:
            return
        copy.piecemeal += payload
        if len(copy.piecemeal) > whole.size:
            raise FrameRefused(f"{len(copy.piecemeal)} bytes came of a batch of {whole.size}")
        if len(copy.piecemeal) == whole.size:
            records, copy.piecemeal = copy.piecemeal, bytearray()
            self._take(copy, whole, memoryview(records))

    def _take(self, copy: Copy, data: Data, records: memoryview) -> None:
        partition, machine = copy.partition, copy.machine
        copy.taken += data.size
        if data.size:
            if data.offset != partition.log_end_offset:
                where = f"sent from {data.offset}, it ends at {partition.log_end_offset}"
                self._stuck(copy, where, is_disk=False)
                return
            try:
                partition.append_as_follower(records, machine.leader_epoch)
            except BatchRefused as refused:
                why = f"the leader sent what can't be: {refused.message}"
                self._stuck(copy, why, is_disk=False)
                return
            except (OSError, LogDamaged) as failed:
                self._stuck(copy, f"it could not be written: {failed}")
                return
            machine.progressed()
            if not partition.sync_counts:
                self.acknowledge(copy)
        if machine.phase is not Phase.FOLLOWING:
            machine.followed()
            # What was synced since we asked: if the leader had not heard of the epoch yet, it could not place the
            # acknowledgement of that.
            self.acknowledge(copy)
        if partition.follow_leader(data.high_watermark, data.log_start_offset):
            self.acknowledge(copy)

    # -- acknowledging ---------------------------------------------------------------------------------

    def acknowledge(self, copy: Copy) -> None:
        """With all that is to be acknowledged in this turn of the loop."""
        if copy.machine.phase is Phase.FOLLOWING or copy.machine.phase is Phase.ASKING:
            self._acks[copy] = None
            self._acks_soon()

    def _acks_soon(self) -> None:
        if not self._are_acks_due:
            self._are_acks_due = True
            self._loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        self._are_acks_due = False
        acks, self._acks = self._acks, {}
        numbers: list[int] = []
        for copy in acks:
            machine = copy.partition.machine
            start = copy.partition.counted_log_start
            numbers += (copy.machine.slot, machine.log_end, machine.counted_end, start)
        self._taken_told = self._taken
        step = 4 * frames.PARTITIONS_MAX
        for start in range(0, max(len(numbers), 1), step):
            self._write(frames.ack(numbers[start : start + step], self._taken))
