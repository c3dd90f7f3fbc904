"""What the suites of aiokafka share: clients that are stopped at the end, and loops that have one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import wraps

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from brokers import COPIES, IN_CHAOS, SAFE, WAIT_S


def on_a_loop(scenario):
    """Run the test as a coroutine, with an end. `wraps` keeps the fixtures' names for pytest."""

    @wraps(scenario)
    def run(**arguments) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(2 * WAIT_S):
                await scenario(**arguments)

        asyncio.run(bounded())

    return run


class Clients(AsyncExitStack):
    """Makes clients of one broker, and stops them all at the end."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.bootstrap = bootstrap

    async def _started(self, client):
        await client.start()
        stop = client.close if isinstance(client, AIOKafkaAdminClient) else client.stop
        self.push_async_callback(self._stopped, stop)
        return client

    @staticmethod
    async def _stopped(stop: Callable[[], Awaitable[None]]) -> None:
        """A consumer whose fetch waits to be tried again raises, when it is stopped, what it has cancelled."""
        with suppress(asyncio.CancelledError) if IN_CHAOS else nullcontext():
            await stop()

    async def producer(self, **options) -> AIOKafkaProducer:
        return await self._started(
            AIOKafkaProducer(bootstrap_servers=self.bootstrap, **SAFE | options)
        )

    async def consumer(self, *topics: str, group: str | None = None, **options):
        in_group = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200} if group else {}
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **in_group}
        made = AIOKafkaConsumer(
            *topics, bootstrap_servers=self.bootstrap, group_id=group, **settings | options
        )
        return await self._started(made)

    async def reader(self, topic: str, partitions: int = 1, **options) -> AIOKafkaConsumer:
        consumer = await self.consumer(**options)
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return consumer

    async def admin(self) -> AIOKafkaAdminClient:
        return await self._started(AIOKafkaAdminClient(bootstrap_servers=self.bootstrap))

    async def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, COPIES, topic_configs=settings)
        answer = await (await self.admin()).create_topics([new])
        assert answer.topic_errors[0][1] == 0, answer


async def receive(consumer: AIOKafkaConsumer, count: int) -> list:
    return [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(count)]


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(WAIT_S * 10):
        if await condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited in vain: {what}")
