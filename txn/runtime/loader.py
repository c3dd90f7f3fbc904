"""Replays a partition into a machine when this node becomes its coordinator."""

from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset
from fencepost.cluster.base.ports import Env

from .ports import Decode, Machine, RecordLog
from .replay import Replay

READ_BYTES: Final = 4 * 1024 * 1024  # at a time; the loop has other work in between


async def load(
    name: str,
    *,
    env: Env,
    log: RecordLog,
    machine: Machine,
    decode: Decode,
    is_wanted: Callable[[], bool],
) -> ErrorCode:
    """`none` when the machine has everything that the log held at the start, all of it committed.

    A leader's log holds what the leader before it may not have committed. It will be, or another leads:
    so we wait, and a machine never rests on a record that goes away again.
    """
    began = env.clock.steady()
    end = log.log_end_offset
    code = await log.committed(end)
    if code is not ErrorCode.none:
        return code
    replay = Replay(machine, decode)
    offset = log.log_start_offset
    while offset < end:
        buffer = await log.read(offset, READ_BYTES)
        if isinstance(buffer, ErrorCode):
            return buffer
        next_offset = replay.take(buffer)
        if next_offset is None:
            break  # compaction took the last batches and left nothing in their place
        assert next_offset > offset, f"{name}: reading at {offset} ends at {next_offset}"
        offset = Offset(next_offset)
        await env.clock.sleep(0)
        if not is_wanted():
            return ErrorCode.not_coordinator
    for _ in replay.finish():
        await env.clock.sleep(0)
        if not is_wanted():
            return ErrorCode.not_coordinator
    if log.log_end_offset != end:
        return ErrorCode.coordinator_load_in_progress  # somebody wrote meanwhile: once more
    if replay.records:
        took_ms = int((env.clock.steady() - began) * 1000)
        env.log.info(
            "coordinator.loaded",
            shard=name,
            records=replay.records,
            skipped=replay.skipped,
            took_ms=took_ms,
        )
    return ErrorCode.none
