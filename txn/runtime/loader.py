"""Replays a partition when this node becomes its coordinator."""

import asyncio
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset
from fencepost.cluster.base.ports import Env

from .pace import Pace
from .ports import Codec, Machine, RecordLog
from .replay import Replay
from .unread import Unread

READ_BYTES: Final = 256 * 1024  # in one turn of the loop: 5 ms for batches of one record
LOADS_AT_ONCE: Final = (
    2  # one computes while the other waits for the disk; more only makes all of them late
)


class Loader:
    """All the loading of a node: what is shared is the time that it may take from others."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.pace = Pace(env.clock)
        self._seats = asyncio.Semaphore(LOADS_AT_ONCE)

    async def load(
        self,
        name: str,
        *,
        log: RecordLog,
        machine: Machine,
        codec: Codec,
        is_wanted: Callable[[], bool],
        read_all: bool = False,
        cause: str = "",
    ) -> Unread | ErrorCode:
        """When the machine knows all that the log held at the start, and all of it is committed: what of it has
        yet to be decoded. Nothing with `read_all`, for a log in which something could not be decoded before.

        A leader's log holds what the leader before it may not have committed. It will be, or another leads:
        so we wait, and a machine never rests on a record that goes away again. Kafka replays to the log's end at
        once and shows what is committed of it; that takes timelines in every map of the state.
        """
        end = log.log_end_offset
        code = await log.committed(end)
        if code is not ErrorCode.none:
            return code
        async with self._seats:
            began = self.env.clock.steady()
            replay = Replay(machine, codec)
            code = await self._replay(name, replay, log, end, is_wanted)
            if code is ErrorCode.none and read_all:
                code = await self._read_all(replay, is_wanted)
        if code is not ErrorCode.none:
            return code
        if log.log_end_offset != end:
            return ErrorCode.coordinator_load_in_progress  # somebody wrote meanwhile: once more
        if replay.records:
            self.env.log.info(
                "coordinator_loaded",
                shard=name,
                records=replay.records,
                owners_unread=len(replay.unread),
                skipped=replay.unread.skipped,
                took_ms=int((self.env.clock.steady() - began) * 1000),
                cause=cause,
            )
        return replay.unread

    async def _replay(
        self, name: str, replay: Replay, log: RecordLog, end: Offset, is_wanted: Callable[[], bool]
    ) -> ErrorCode:
        offset = log.log_start_offset
        while offset < end:
            buffer = await log.read(offset, READ_BYTES)
            if isinstance(buffer, ErrorCode):
                return buffer
            next_offset = replay.take(bytes(buffer))
            if next_offset is None:
                break  # compaction took the last batches and left nothing in their place
            assert next_offset > offset, f"{name}: reading at {offset} ends at {next_offset}"
            offset = Offset(next_offset)
            await self.pace.breathe()
            if not is_wanted():
                return ErrorCode.not_coordinator
        replay.close()
        for _ in replay.read_urgent():
            await self.pace.breathe()
            if not is_wanted():
                return ErrorCode.not_coordinator
        return ErrorCode.none

    async def _read_all(self, replay: Replay, is_wanted: Callable[[], bool]) -> ErrorCode:
        for _ in replay.finish():
            await self.pace.breathe()
            if not is_wanted():
                return ErrorCode.not_coordinator
        return ErrorCode.none
