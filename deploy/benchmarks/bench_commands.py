"""Metadata commands: settings of one topic, changed over many connections at once."""

import asyncio
import time

from bench_load import LoadFailed
from bench_systems import System, addresses, create_topics, delete_topic
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

CONNECTIONS = 64
WARM_S = 1.0
TOPIC, SET = 2, 0  # ConfigResource.Type, AlterConfigOp.OpType


def commands_per_second(system: System, topic: str, seconds: float) -> float:
    """How many changes of a setting were committed and answered, spread over all nodes."""
    create_topics(system, [topic], 1)
    rate = asyncio.run(_run(system, topic, seconds))
    delete_topic(system, topic)
    return rate


async def _run(system: System, topic: str, seconds: float) -> float:
    places = addresses(system)
    async with open_env(log=StreamLog(levels="error")) as env, asyncio.TaskGroup() as group:
        begin = time.monotonic() + WARM_S
        tasks = []
        for number in range(CONNECTIONS):
            client = WireClient(env, *places[number % len(places)], client_id="benchmark")
            tasks.append(group.create_task(_change(client, topic, number, begin, begin + seconds)))
        counts = await asyncio.gather(*tasks)
    return sum(counts) / seconds


async def _change(client: WireClient, topic: str, number: int, begin: float, end: float) -> int:
    done = 0
    value = number + 1
    while (now := time.monotonic()) < end:
        value += CONNECTIONS
        change = {"name": "retention.ms", "config_operation": SET, "value": str(value)}
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [change]}
        reply = await client.request(
            ApiKey.incremental_alter_configs, resources=[resource], validate_only=False
        )
        if reply.responses[0].error_code is not ErrorCode.none:
            raise LoadFailed(f"a setting was refused: {reply.responses[0]}")
        done += now >= begin
    await client.close()
    return done
