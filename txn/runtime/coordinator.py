"""The shards of one kind of coordinator on one node: one for each partition of its topic that we lead.

INVARIANT  a shard takes commands only while this node leads its partition and after the whole log is in it.
PREVENTS   an empty coordinator telling a group's members that they don't exist.
PROVED BY  tests/txn/test_coordinator.py::test_a_command_is_refused_until_the_log_has_been_replayed
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import NO_LEADER, BrokerId, TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta
from fencepost.cluster.wire.batch import BatchRefused

from .loader import Loader
from .metrics import CoordinatorCounters
from .ownership import Ownership
from .ports import Codec, Machine, RecordLog
from .shard import UNREADABLE, Shard
from .ticker import Ticker

# After a failed append or load: long enough not to replay a full disk's log over and over.
RELOAD_PAUSE_MS: Final = 250
RELOAD_PAUSE_MS_MAX: Final = 5_000
# Of a pause that the disk's having room again cuts short: one that is full by turns is not replayed all day either.
ROOM_PAUSE_MS: Final = 1_000
CALM_S: Final = 30.0  # a shard that lived this long is not failing over and over


class Partitions(Protocol):
    """This node's replicas, as far as a coordinator needs them."""

    def record_log(self, partition: TopicPartition) -> RecordLog | ErrorCode: ...

    def when_room(self, tell: Callable[[], None]) -> None:
        """`tell` is called when the disk was full, and is not any more."""


class _Seat:
    """A partition that is ours. `machine` is there while it is loaded, `shard` from then on."""

    __slots__ = (
        "again", "answer", "failures", "machine", "opened", "opened_s", "reads_all", "shard"
    )  # fmt: skip

    def __init__(self) -> None:
        self.opened = asyncio.Event()  # for the first time
        self.again = asyncio.Event()  # there is room again: no use in a long pause
        self.answer = ErrorCode.coordinator_load_in_progress  # as long as there is no shard
        self.machine: Machine | None = None
        self.shard: Shard | None = None
        self.failures = 0
        self.opened_s = 0.0
        self.reads_all = (
            False  # something in the log can't be read: look at all of it before opening
        )


class Coordinator:
    def __init__(
        self,
        topic: str,
        *,
        env: Env,
        node_id: BrokerId,
        image: ClusterImage,
        partitions: Partitions,
        ticker: Ticker,
        loader: Loader,
        new_machine: Callable[[], Machine],
        codec: Codec,
        commit_timeout_ms: int,
        send: Callable[[int, Shard, Any], None] | None = None,
    ) -> None:
        """`send` is given what machines want done elsewhere, with the partition and shard that want it."""
        self.topic = topic
        self._env = env
        self._image = image
        self._partitions = partitions
        self._ticker = ticker
        self._loader = loader
        self._new_machine = new_machine
        self._codec = codec
        self._commit_timeout_ms = commit_timeout_ms
        self._send = send
        self._seats: dict[int, _Seat] = {}
        self._is_stopped = False
        self.counters = CoordinatorCounters()
        self._ownership = Ownership(topic, node_id, elected=self._elected, resigned=self._resigned)
        partitions.when_room(self._has_room)

    def on_image(self, delta: ImageDelta) -> None:
        if not self._is_stopped:
            self._ownership.on_image(delta)

    def coordinator_of(self, key: str) -> BrokerId | ErrorCode:
        return self._ownership.coordinator_of(self._image, key)

    def partition_of(self, key: str) -> int | None:
        return self._ownership.partition_of(self._image, key)

    def shard_of(self, key: str) -> Shard | ErrorCode:
        partition = self.partition_of(key)
        return ErrorCode.not_coordinator if partition is None else self.shard_at(partition)

    def shard_at(self, partition: int) -> Shard | ErrorCode:
        seat = self._seats.get(partition)
        if seat is None:
            return ErrorCode.not_coordinator
        return seat.answer if seat.shard is None else seat.shard

    async def wait_open(self, key: str) -> None:
        """Until the key's partition has been loaded, if it is ours; nothing else ends it."""
        partition = self.partition_of(key)
        seat = None if partition is None else self._seats.get(partition)
        if seat is not None:
            await seat.opened.wait()

    def shards(self) -> dict[int, Shard | ErrorCode]:
        """Every partition of ours, in order; ErrorCode for one that is still being loaded."""
        return {partition: self.shard_at(partition) for partition in sorted(self._seats)}

    async def ask_all(self, command: Any) -> dict[int, Any] | ErrorCode:
        """What each partition of ours replies; ErrorCode if one of them can't tell yet.

        One that holds what can't be read is left out, as Kafka does it, and the log says so: who asks again and again until it is
        loaded would never see the others either.
        """
        replies: dict[int, Any] = {}
        for partition, shard in self.shards().items():
            reply = shard if isinstance(shard, ErrorCode) else await shard.execute(command)
            if reply is ErrorCode.not_coordinator:
                seat = self._seats.get(partition)
                if seat is None:
                    continue  # it has moved: the node that has it lists it
                if seat.answer is not ErrorCode.not_coordinator:
                    return (
                        ErrorCode.coordinator_load_in_progress
                    )  # lost meanwhile, and loaded again
                name, asked = f"{self.topic}-{partition}", type(command).__name__
                self._env.log.warn("coordinator_left_out", shard=name, asked=asked)
                continue
            if isinstance(reply, ErrorCode):
                return reply
            replies[partition] = reply
        return replies

    def states(self) -> dict[str, int]:
        """How many partitions of ours are in which state."""
        found = {"active": 0, "loading": 0, "failed": 0}
        for seat in self._seats.values():
            if seat.shard is not None:
                found["active"] += 1
            else:
                found["failed" if seat.failures else "loading"] += 1
        return found

    def machines(self) -> list[Machine]:
        """Of the partitions that are loaded."""
        return [seat.shard.machine for seat in self._seats.values() if seat.shard is not None]

    def tell(self, step: Any) -> None:
        """A step for every machine, also those that are being loaded."""
        for partition in sorted(self._seats):
            machine = self._seats[partition].machine
            if machine is not None:
                machine.apply(step)

    def stop(self) -> None:
        self._is_stopped = True
        for partition in sorted(self._seats):
            self._resigned(partition)

    # -- ours, or no longer ----------------------------------------------------------------------

    def _elected(self, partition: int) -> None:
        seat = self._seats[partition] = _Seat()
        self._spawn_load(partition, seat)

    def _resigned(self, partition: int) -> None:
        seat = self._seats.pop(partition)
        if seat.shard is not None:
            # One that kept nothing yet is nobody's loss.
            say = self._env.log.info if seat.shard.log.log_end_offset else self._env.log.debug
            say(
                "coordinator_unloaded",
                shard=f"{self.topic}-{partition}",
                cause=self._why(partition),
            )
            seat.shard.close()
        seat.shard = seat.machine = None  # a cycle would outlive `gc.freeze` in shard.py

    def _why(self, partition: int) -> str:
        """Why it is ours now, or is not."""
        state = self._image.partition(self.topic, partition)
        if state is None:
            return "its topic was deleted"
        if self._is_stopped:
            return "this node stops"
        who = "nobody leads it" if state.leader == NO_LEADER else f"node {state.leader} leads it"
        return f"{who} in epoch {state.leader_epoch}"

    def _spawn_load(self, partition: int, seat: _Seat) -> None:
        work = self._load(partition, seat)
        self._env.tasks.spawn(work, name=f"load {self.topic}-{partition}")

    async def _load(self, partition: int, seat: _Seat) -> None:
        """Try until it is loaded or no longer ours: the replica may become leader a moment after us."""
        while self._seats.get(partition) is seat:
            if seat.failures:
                await self._pause(seat)
            began = self._env.clock.steady()
            code = await self._try_load(partition, seat)
            if code is ErrorCode.none:
                self.counters.load_s.observe(self._env.clock.steady() - began)
                return
            seat.failures += 1
            self.counters.load_failures += 1

    async def _pause(self, seat: _Seat) -> None:
        """1. A shard is lost to a full disk, and its pauses have grown.
        2. There is room again; who commits, and transactions whose time is up, need not wait for the rest of one.
        """
        seat.again.clear()
        pause_ms = min(RELOAD_PAUSE_MS << min(seat.failures - 1, 8), RELOAD_PAUSE_MS_MAX)
        await self._env.clock.sleep(min(pause_ms, ROOM_PAUSE_MS) / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(pause_ms - ROOM_PAUSE_MS, 0) / 1000):
                await seat.again.wait()

    def _has_room(self) -> None:
        for seat in self._seats.values():
            seat.again.set()

    async def _try_load(self, partition: int, seat: _Seat) -> ErrorCode:
        name = f"{self.topic}-{partition}"
        log = self._partitions.record_log(TopicPartition(self.topic, partition))
        if isinstance(log, ErrorCode):
            return log
        seat.machine = machine = self._new_machine()
        try:
            unread = await self._loader.load(
                name,
                log=log,
                machine=machine,
                codec=self._codec,
                is_wanted=lambda: self._seats.get(partition) is seat,
                cause=self._why(partition),
                read_all=seat.reads_all,
            )
        except LogDamaged as damage:
            log.damaged(str(damage))
            return ErrorCode.not_coordinator
        except (BatchRefused, ValueError) as trouble:
            # A record that can't be read is there to stay, and no group is served without it. As Kafka does,
            # nobody is asked to wait for that; the other partitions' groups are listed without this one's.
            self._env.log.error("coordinator_unreadable", shard=name, cause=str(trouble))
            seat.answer = ErrorCode.not_coordinator
            return ErrorCode.unknown_server_error
        if isinstance(unread, ErrorCode):
            return unread
        if self._seats.get(partition) is not seat:
            return ErrorCode.not_coordinator
        seat.shard = shard = Shard(
            name,
            env=self._env,
            log=log,
            machine=machine,
            ticker=self._ticker,
            commit_timeout_ms=self._commit_timeout_ms,
            on_lost=lambda shard, code: self._lost(partition, seat, shard, code),
            unread=unread,
            send=None if self._send is None else partial(self._send, partition),
        )
        seat.opened_s = self._env.clock.steady()
        seat.answer = ErrorCode.coordinator_load_in_progress
        shard.open()
        seat.opened.set()
        if unread:
            work = shard.read_on(self._loader.pace)
            self._env.tasks.spawn(work, name=f"read on {name}")
        return ErrorCode.none

    def _lost(self, partition: int, seat: _Seat, shard: Shard, code: ErrorCode) -> None:
        """Its machine knows what the log does not. If the partition is still ours, build another."""
        if seat.shard is shard and self._seats.get(partition) is seat:
            seat.shard = seat.machine = None
            self.counters.lost += 1
            if code is UNREADABLE:
                seat.reads_all = True
                seat.answer = ErrorCode.not_coordinator
            if self._env.clock.steady() - seat.opened_s > CALM_S:
                seat.failures = 0
            seat.failures += 1
            self._spawn_load(partition, seat)
