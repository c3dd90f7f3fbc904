"""A real Kafka of one node, asked by the same client as our own node."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from fencepost.cluster.base.real_env import RealEnv
from sim_node import Asker
from support.kafka_peer import KafkaPeer

T = TypeVar("T")


class KafkaNode(Asker):
    """Asked over a real connection."""

    def __init__(self, runner: asyncio.Runner, port: int) -> None:
        self._runner = runner

        async def make_env() -> RealEnv:
            return RealEnv()

        super().__init__(runner.run(make_env()), "127.0.0.1", port)

    def run(self, program: Callable[[], Awaitable[T]]) -> T:
        async def here() -> T:
            return await program()

        return self._runner.run(here())


@contextmanager
def fresh_kafka(settings: Mapping[str, str]) -> Iterator[KafkaNode]:
    peer = KafkaPeer(settings=settings)
    with asyncio.Runner() as runner, peer:
        node = KafkaNode(runner, peer.places[0].port)
        yield node
        node.run(node.wire.close)
