"""What a leader sends to its followers: to each, over one stream, what is appended to all partitions that it follows.

INVARIANT  of a follower's partition, what is sent begins where the last that was sent ended, after a check that its log
           is a prefix of ours; no more is on its way than the follower gave room for; and nothing is kept for it in memory.
PREVENTS   a hole in a replica; a slow follower that costs the leader memory, or the other followers time.
PROVED BY  tests/replication/test_streams.py::test_a_slow_follower_holds_up_nobody

Appends and acknowledgements of one turn of the loop are answered with one frame. Partitions with something to send take
turns, a piece each. Records are not looked at: they go from the file to the socket.
"""

import asyncio
from itertools import chain, islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, FrameRefused, LogDamaged
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Chunk, Env

from . import stream_frames as frames
from .divergence_machine import GoOn, OutOfRange, Parted
from .leader_feed import LeaderFeed, in_parts, partition_for, where_parted
from .log.finding import ReadResult
from .log.handed_on import below
from .log.walk import Cold
from .partition import Partition
from .partition_machine import Heard
from .peers import Stream
from .stream_frames import Ack, Data, Follow, Header

if TYPE_CHECKING:
    from .leader_streams import LeaderStreams

# What may be on its way to one follower: 100 MB/s at 80 ms, and what a stopped one may hold of our socket's memory.
WINDOW_BYTES: Final = 8 << 20
FRAME_BYTES: Final = 1 << 20  # what the follower writes without giving its other work a turn
FRAMES_A_TURN: Final = 2
PIECE_BYTES: Final = 256 << 10  # of one partition, while others wait
PAYLOAD_BYTES_MAX: Final = (64 << 20) - FRAME_BYTES  # the peer door's, behind what others have
# How long news of a high watermark wait for records to travel with.
NEWS_S: Final = 0.003


class LeaderStream:
    """All that one follower follows here."""

    def __init__(
        self,
        env: Env,
        owner: "LeaderStreams",
        follower_id: BrokerId,
        broker_epoch: int,
        stream: Stream,
        *,
        takes_producers: bool,
    ) -> None:
        self.follower_id = follower_id
        self.broker_epoch = broker_epoch
        self.takes_producers = takes_producers
        self.ended = False
        self._env = env
        self._owner = owner
        self._stream = stream
        self._heard = Heard(self._now_ms())
        self._feeds: dict[int, LeaderFeed] = {}  # by slot
        self._by_name: dict[tuple[UUID, int], LeaderFeed] = {}
        # Asked in an epoch, or of a partition, that the metadata log has not told us of yet.
        self._early: dict[tuple[UUID, int], Follow] = {}
        self._ready: dict[LeaderFeed, None] = {}
        self._news: dict[LeaderFeed, None] = {}
        self._is_pump_due = False
        self._is_news_due = False
        self._sent = 0
        self._taken = 0
        self._loop = asyncio.get_running_loop()

    def _now_ms(self) -> int:
        return int(self._env.clock.steady() * 1000)

    # -- what the follower says ------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            while (frame := await self._stream.read()) is not None and not self.ended:
                self._heard.at_ms = self._now_ms()
                self._on_frame(frame[0])
        finally:
            self.end()

    def end(self) -> None:
        """The stream is over, or another one of the same follower has taken its place."""
        if not self.ended:
            self.ended = True
            self._stream.abort()
            for feed in list(self._feeds.values()):
                self._drop(feed)

    def _on_frame(self, header: Header) -> None:
        match frames.kind_of(header):
            case frames.ACK:
                self._on_acks(header)
            case frames.FOLLOW:
                self._answer(frames.read_follow(header))
            case frames.LEAVE:
                self._leave(frozenset(frames.read_slots(header)))
            case frames.STUCK:
                for slot in frames.read_slots(header):
                    if slot in self._feeds:
                        self._stuck(self._feeds[slot])
            case frames.GRANT:
                for slot, granted in frames.read_pairs(header):
                    if slot in self._feeds:
                        self._feeds[slot].grant(granted)
            case frames.ALIVE:
                broker_epoch = frames.read_broker_epoch(header)
                if broker_epoch != self.broker_epoch:
                    self.broker_epoch = broker_epoch
                    self.look_again()
            case unknown:
                raise FrameRefused(f"a follower sent a frame of kind {unknown!r:.100}")

    def _on_acks(self, header: Header) -> None:
        may_join = self._owner.may_join(self.follower_id, self.broker_epoch)
        taken = frames.read_taken(header)
        if not self._taken <= taken <= self._sent:
            raise FrameRefused(f"a follower took {taken} bytes of {self._sent} that it was sent")
        self._taken = taken
        for ack in frames.read_acks(header):
            feed = self._feeds.get(ack.slot)
            if feed is None:
                continue  # it was on its way when we let go
            if not ack.counted_end <= ack.log_end <= feed.sent_to:
                raise FrameRefused(
                    f"{feed.partition.topic_partition}: a follower is certain of {ack.counted_end} and has"
                    f" written {ack.log_end}, of {feed.sent_to} that it was sent"
                )
            self._acknowledged(feed, ack, may_join=may_join)
        if self._ready:
            self._pump_soon()

    def _acknowledged(self, feed: LeaderFeed, ack: Ack | Follow, *, may_join: bool) -> None:
        partition = feed.partition
        may_join = may_join and self._taken >= feed.handed_at
        partition.on_ack(
            self.follower_id, ack.log_end, ack.counted_end, ack.log_start, may_join=may_join
        )
        if may_join and self.follower_id not in partition.machine.isr.state.isr:
            self._owner.isr.look(partition)

    # -- who follows what ------------------------------------------------------------------------------

    def _answer(self, asked: list[Follow]) -> None:
        parted, ranges, refused = [], [], []
        for follow in asked:
            if follow.counted_end > follow.log_end:
                what = f"a follower of {follow.log_end} is certain of {follow.counted_end}"
                raise FrameRefused(what)
            name = (follow.topic_id, follow.partition)
            known = self._by_name.get(name)
            if known is not None:
                self._drop(known)
            self._early.pop(name, None)
            partition = partition_for(self._owner.manager, follow, self.follower_id)
            if partition is None:
                self._early[name] = follow
                continue
            if isinstance(partition, ErrorCode):
                refused.append((follow.slot, int(partition.value)))
                continue
            match where_parted(partition, follow, self.follower_id):
                case Parted(epoch, end_offset):
                    parted.append((follow.slot, epoch, end_offset))
                case OutOfRange(log_start, log_end):
                    ranges.append((follow.slot, log_start, log_end))
                case GoOn():
                    self._feed(partition, follow)
        told = frames.three(frames.PART, parted), frames.three(frames.RANGE, ranges)
        for header in chain(*told, frames.no(refused)):
            self._stream.write(header)

    def _feed(self, partition: Partition, follow: Follow) -> None:
        feed = LeaderFeed(self, partition, follow)
        self._feeds[follow.slot] = feed
        self._by_name[partition.topic_id, partition.topic_partition.partition] = feed
        partition.add_feed(feed)
        partition.machine.replicas[self.follower_id].heard = self._heard
        may_join = self._owner.may_join(self.follower_id, self.broker_epoch)
        self._acknowledged(feed, follow, may_join=may_join)
        # Even if there is nothing to send: that is how the follower hears that it follows.
        self._ready[feed] = None
        self._pump_soon()

    def _drop(self, feed: LeaderFeed) -> None:
        feed.is_dropped = True
        del self._feeds[feed.slot]
        del self._by_name[feed.partition.topic_id, feed.partition.topic_partition.partition]
        self._ready.pop(feed, None)
        self._news.pop(feed, None)
        feed.partition.drop_feed(feed)
        replica = feed.partition.machine.replicas.get(self.follower_id)
        if replica is not None and replica.heard is self._heard:
            replica.heard = Heard(self._heard.at_ms)  # from here on it is silent
            feed.partition.on_may_join(self.follower_id, may_join=False)

    def _leave(self, slots: frozenset[int]) -> None:
        for slot in slots & self._feeds.keys():
            self._owner.left(self._feeds[slot])
            self._drop(self._feeds[slot])
        # Asked of a topic that was gone here already: nobody will ever tell of it again.
        for name in [name for name, each in self._early.items() if each.slot in slots]:
            del self._early[name]

    def _stuck(self, feed: LeaderFeed) -> None:
        """Its disk does not take it: who commits need not wait for the lag limit to know."""
        self._drop(feed)
        feed.partition.machine.on_stuck(self.follower_id)
        self._owner.isr.look_for_laggards(feed.partition)

    def partition_changed(self, name: tuple[UUID, int]) -> None:
        """The metadata log says something new of it."""
        feed = self._by_name.get(name)
        if feed is not None and not feed.is_valid:
            # It hears the same from the metadata log, and need not be told; or it has to ask again.
            self._refuse(feed, ErrorCode.not_leader_or_follower)
        early = self._early.pop(name, None)
        if early is not None:
            self._answer([early])

    def _refuse(self, feed: LeaderFeed, error: ErrorCode) -> None:
        self._drop(feed)
        for header in frames.no([(feed.slot, int(error.value))]):
            self._stream.write(header)

    def look_again(self) -> None:
        """Whether this follower may join has changed."""
        may_join = self._owner.may_join(self.follower_id, self.broker_epoch)
        for feed in self._feeds.values():
            may_join_here = may_join and self._taken >= feed.handed_at
            feed.partition.on_may_join(self.follower_id, may_join=may_join_here)
            if may_join_here:
                self._owner.isr.look(feed.partition)

    # -- what it is sent -------------------------------------------------------------------------------

    def has_records(self, feed: LeaderFeed) -> None:
        self._ready[feed] = None
        if not self._is_pump_due:
            self._pump_soon()

    def has_news(self, feed: LeaderFeed) -> None:
        if feed in self._ready:
            return  # they travel with records
        self._news[feed] = None
        if not self._is_news_due:
            self._is_news_due = True
            self._env.clock.call_later(NEWS_S, self._tell_news)

    def _pump_soon(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send what there is, as far as the follower has room for it."""
        self._is_pump_due = False
        for _ in range(FRAMES_A_TURN):
            room = WINDOW_BYTES - (self._sent - self._taken)
            if self.ended or room <= 0 or not self._send_frame(min(room, FRAME_BYTES)):
                return
        if self._ready:
            self._pump_soon()

    def _send_frame(self, room: int) -> bool:
        """One frame of records. False: nothing of what is ready can be sent now."""
        numbers: list[int] = []
        chunks: list[Chunk] = []
        total = 0
        ready = self._ready
        waiting = list(islice(ready, frames.PARTITIONS_MAX))
        for feed in waiting:
            if total >= room:
                break
            del ready[feed]
            if feed.is_cold:
                continue
            size = self._read(feed, min(room - total, PIECE_BYTES), numbers, chunks)
            total += size
            if size and feed.sent_to < feed.partition.log.log_end_offset:
                ready[feed] = None  # behind all others
        if not numbers:
            return bool(ready) and len(waiting) == frames.PARTITIONS_MAX
        if len(self._news) <= frames.PARTITIONS_MAX - len(waiting):
            numbers += self._take_news()
        self._sent += total
        self._owner.manager.counters.replicated_bytes_out += total
        self._stream.write(frames.data(numbers), chunks)
        return True

    def _read(
        self, feed: LeaderFeed, max_bytes: int, numbers: list[int], chunks: list[Chunk]
    ) -> int:
        """Add the next batches of a partition to a frame; how many bytes of them."""
        if feed.owes_producers:
            feed.is_cold = True
            self._env.tasks.spawn(self._send_producers(feed), name="producers for a follower")
            return 0
        log = feed.partition.log
        offset, size = feed.sent_to, 0
        if offset < log.log_end_offset:
            max_bytes = min(max_bytes, feed.room, self._owner.throttle.room(feed))
        if offset < log.log_end_offset and max_bytes > 0:
            try:
                found = log.read(
                    offset, max_bytes, limit=log.log_end_offset, min_one=True, block=False
                )
            except Cold as cold:
                feed.is_cold = True
                self._env.tasks.spawn(self._warm(feed, cold), name="cold read for a follower")
                return 0
            except (OSError, LogDamaged) as failed:
                self._unreadable(feed, failed)
                return 0
            if found is None:  # retention has overtaken it
                self._drop(feed)
                out = (feed.slot, log.log_start_offset, log.log_end_offset)
                for header in frames.three(frames.RANGE, [out]):
                    self._stream.write(header)
                return 0
            if found.size > PAYLOAD_BYTES_MAX:
                self._send_piecemeal(feed, found)
                return 0
            size = found.size
            chunks += found.slices
            feed.sent_to = found.next_offset
            feed.sent_bytes += size
            self._owner.throttle.sent(feed, size)
        elif feed.told == feed.news:
            return 0
        numbers += (feed.slot, offset, size, *feed.tell())
        return size

    async def _send_producers(self, feed: LeaderFeed) -> None:
        try:
            copied = feed.partition.producers.copied()
        except (OSError, LogDamaged) as failed:
            self._unreadable(feed, failed)
            return
        snapshot = await self._env.disk.run(below, copied, feed.sent_to)
        feed.is_cold = False
        if feed.slot not in self._feeds:
            return
        if snapshot:
            self._stream.write(frames.producers(feed.slot), [snapshot])
            self._sent += len(snapshot)
        feed.handed_at = self._sent if snapshot else 0
        self.has_records(feed)

    def _send_piecemeal(self, feed: LeaderFeed, found: ReadResult) -> None:
        """A batch that no frame can hold; the follower puts it together."""
        header = frames.piece(Data(feed.slot, feed.sent_to, found.size, *feed.tell()))
        for part in in_parts(found, FRAME_BYTES):
            self._stream.write(header, [part])
        feed.sent_to = found.next_offset
        feed.sent_bytes += found.size
        self._owner.throttle.sent(feed, found.size)
        self._owner.manager.counters.replicated_bytes_out += found.size
        self._sent += found.size
        self.has_records(feed)

    async def _warm(self, feed: LeaderFeed, cold: Cold) -> None:
        try:
            await self._env.disk.run(cold.work)
        except (OSError, LogDamaged) as failed:
            self._unreadable(feed, failed)
            return
        feed.is_cold = False
        if feed.slot in self._feeds:
            self.has_records(feed)

    def _unreadable(self, feed: LeaderFeed, failed: OSError | LogDamaged) -> None:
        if feed.is_dropped:  # meanwhile
            return
        self._owner.unreadable(feed, failed)
        self._refuse(feed, ErrorCode.kafka_storage_error)

    def _tell_news(self) -> None:
        self._is_news_due = False
        numbers, step = self._take_news(), 5 * frames.PARTITIONS_MAX
        for start in range(0, len(numbers), step):
            self._stream.write(frames.data(numbers[start : start + step]))

    def _take_news(self) -> list[int]:
        news, self._news = self._news, {}
        numbers: list[int] = []
        for feed in news:
            if feed.told != feed.news and feed.slot in self._feeds:
                numbers += (feed.slot, feed.sent_to, 0, *feed.tell())
        return numbers
