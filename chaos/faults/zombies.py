"""Another producer with a transactional id that somebody has, taken by InitProducerId.

Each InitProducerId fences whoever has the id, ends what was left open, and raises the producer epoch by one; from
32767 on there is none left, and the id gets another producer id.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

from ..harness import asking
from ..harness.asking import Address

INIT_VERSION: Final = 4
TIMEOUT_MS: Final = 10_000
PAUSE_S: Final = 0.1
TROUBLES_MAX: Final = 50  # one after the other, before it is given up


@dataclass(slots=True)
class Taken:
    """What came of it: how often the id was taken, and who had it first and last."""

    times: int = 0
    first: tuple[int, int] = (-1, -1)  # producer id and epoch
    last: tuple[int, int] = (-1, -1)

    def __str__(self) -> str:
        said = f"taken {self.times} times, from producer {self.first[0]} epoch {self.first[1]}"
        return f"{said} to producer {self.last[0]} epoch {self.last[1]}"


def take_over(
    doors: Callable[[], dict[int, Address]],
    transactional_id: str,
    times: int,
    stopping: Callable[[], bool],
) -> Taken:
    """`doors` are those of nodes that can answer, by node. Fewer times when it is to stop, or nobody coordinates."""
    return asyncio.run(_take_over(doors, transactional_id, times, stopping))


async def _take_over(
    doors: Callable[[], dict[int, Address]],
    transactional_id: str,
    times: int,
    stopping: Callable[[], bool],
) -> Taken:
    taken, troubles = Taken(), 0
    async with open_env(log=StreamLog(levels="error")) as env:
        client: WireClient | None = None
        while taken.times < times and troubles < TROUBLES_MAX and not stopping():
            try:
                if client is None:
                    client = await _coordinator(env, doors(), transactional_id)
                reply = await client.request(
                    ApiKey.init_producer_id,
                    INIT_VERSION,
                    transactional_id=transactional_id,
                    transaction_timeout_ms=TIMEOUT_MS,
                    producer_id=-1,
                    producer_epoch=-1,
                )
                if reply.error_code is not ErrorCode.none:
                    raise Trouble(f"InitProducerId: {reply.error_code.name}")
            except Trouble:
                troubles += 1
                if client is not None:
                    await client.close()
                client = None
                await env.clock.sleep(PAUSE_S)
                continue
            troubles = 0
            taken.times += 1
            taken.last = (int(reply.producer_id), int(reply.producer_epoch))
            if taken.times == 1:
                taken.first = taken.last
        if client is not None:
            await client.close()
    return taken


async def _coordinator(env: Any, doors: dict[int, Address], transactional_id: str) -> WireClient:
    """A connection to it. Trouble while there is none."""
    for host, port in doors.values():
        client = WireClient(env, host, port, client_id="zombie", timeout_s=asking.ANSWER_S)
        try:
            reply = await client.request(
                ApiKey.find_coordinator,
                asking.FIND_ONE,
                key=transactional_id,
                key_type=asking.TRANSACTION,
            )
        finally:
            await client.close()
        if reply.error_code is ErrorCode.none and int(reply.node_id) in doors:
            at = doors[int(reply.node_id)]
            return WireClient(env, *at, client_id="zombie", timeout_s=asking.ANSWER_S)
    raise Trouble(f"nobody coordinates {transactional_id}")
