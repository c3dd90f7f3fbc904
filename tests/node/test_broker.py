"""A whole node in the simulator: start, stop, and who is let in when."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig

NODE, CLIENT, PORT = "node", "client", 9092


def config(**settings: str) -> NodeConfig:
    flags = [f"listeners=PLAINTEXT://0.0.0.0:{PORT}", "log.dirs=/data"]
    flags.append(f"advertised.listeners=PLAINTEXT://{NODE}:{PORT}")
    flags += [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    return NodeConfig.load(flags=flags, environment={}, file=None)


class Scene:
    """A node, and a client on another machine."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed=seed)
        self.broker: Broker | None = None

    def play(self, scenario: Coroutine[Any, Any, Any]) -> Any:
        with self.world:
            return self.world.run(scenario)

    def boot(self, **settings: str) -> None:
        """The program of the node begins; it may not be ready yet."""

        async def serve(env: SimEnv) -> None:
            self.broker = Broker(env, config(**settings))
            await self.broker.start()

        self.world.start(self.world.restart(NODE), serve)

    async def up(self, **settings: str) -> Broker:
        """Boot, and wait until clients are let in."""
        before = self.broker
        self.boot(**settings)
        while self.broker is before or self.broker is None or not self.broker.is_ready:
            await asyncio.sleep(0.001)
        return self.broker

    def client(self) -> WireClient:
        return WireClient(self.world.node(CLIENT), NODE, PORT)

    async def ask(self, key: ApiKey, **fields: Any) -> Any:
        async def work() -> Any:
            client = self.client()
            try:
                return await client.request(key, **fields)
            finally:
                await client.close()

        return await self.world.on(self.world.node(CLIENT), work())

    async def create(self, topic: str) -> None:
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        wanted |= {"assignments": [], "configs": []}
        reply = await self.ask(ApiKey.create_topics, topics=[wanted])
        assert reply.topics[0].error_code is ErrorCode.none

    async def produce(
        self,
        topic: str,
        *values: bytes,
        sequence: int = -1,
        pid: int = -1,
        transactional: bool = False,
    ) -> Any:
        described = await self.ask(ApiKey.metadata, topics=[{"name": topic}])
        records = [Record(i, 0, None, value, ()) for i, value in enumerate(values)]
        epoch = 0 if pid >= 0 else -1
        data = build_batch(
            records,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        reply = await self.ask(
            ApiKey.produce,
            acks=-1,
            timeout=1000,
            topic_data=[
                {
                    "topic_id": described.topics[0].topic_id,
                    "partition_data": [{"index": 0, "records": data}],
                }
            ],
        )
        return reply.responses[0].partition_responses[0]


def test_a_client_that_comes_early_is_served_after_recovery() -> None:
    """The door opens before registration, to have its port; whoever knocks waits behind it."""
    scene = Scene()

    async def scenario() -> None:
        scene.boot()
        while scene.broker is None or not scene.broker.listeners[0].is_listening:
            await asyncio.sleep(0.0001)
        reply = await scene.ask(ApiKey.metadata, topics=[])
        assert scene.broker is not None
        assert [broker.node_id for broker in reply.brokers] == [1]
        assert scene.broker.image.brokers[scene.broker.config.node_id].endpoints

    scene.play(scenario())


def test_a_duplicate_is_known_after_a_kill_and_after_a_clean_stop() -> None:
    """KIP-98's window outlives the process: a retry that crosses a restart is answered, not written."""
    scene = Scene()

    async def scenario() -> None:
        broker = await scene.up()
        await scene.create("orders")
        first = await scene.produce("orders", b"a", b"b", pid=7, sequence=0)
        second = await scene.produce("orders", b"c", pid=7, sequence=2)
        assert (first.base_offset, second.base_offset) == (0, 2)
        scene.world.kill(NODE)
        broker = await scene.up()
        again = await scene.produce("orders", b"a", b"b", pid=7, sequence=0)
        assert (again.error_code, again.base_offset) == (ErrorCode.none, 0)
        await scene.world.on(scene.world.node(NODE), broker.stop())
        await scene.up()
        again = await scene.produce("orders", b"c", pid=7, sequence=2)
        assert (again.error_code, again.base_offset) == (ErrorCode.none, 2)
        later = await scene.produce("orders", b"d", pid=7, sequence=3)
        assert later.base_offset == 3

    scene.play(scenario())


def test_a_port_in_use_leaves_the_logs_as_they_were() -> None:
    """It is noticed before they are opened: the next start finds the clean stop before."""
    scene = Scene()

    async def scenario() -> None:
        broker = await scene.up()
        await scene.create("orders")
        await scene.world.on(broker.env, broker.stop())
        env = scene.world.restart(NODE)

        async def hold_the_port() -> Any:
            return await env.net.listen("0.0.0.0", PORT, _ignore)

        async def start_again() -> None:
            with pytest.raises(Trouble, match=f"can't listen on 0.0.0.0:{PORT}"):
                await Broker(env, config()).start()

        await scene.world.on(env, hold_the_port())
        await scene.world.on(env, start_again())
        broker = await scene.up()
        assert broker.replicas.store.was_clean

    scene.play(scenario())


async def _ignore(connection: Any) -> None:
    """Whoever has the port has no use for us."""


def test_a_new_folder_was_not_left_unclean() -> None:
    scene = Scene()

    async def scenario() -> None:
        await scene.up()
        await scene.create("orders")
        await scene.up()

    scene.play(scenario())
    opened = [line for line in scene.world.trace.lines if "event=logs_open" in line]
    said = ["None" if "'was_clean': None" in line else "False" for line in opened]
    assert said == ["None", "False"]


def test_a_clean_stop_answers_who_waits_and_leaves_no_connection() -> None:
    scene = Scene()

    async def scenario() -> None:
        broker = await scene.up()
        await scene.create("orders")
        client = scene.client()
        described = await scene.ask(ApiKey.metadata, topics=[{"name": "orders"}])
        fetch = client.request(
            ApiKey.fetch,
            max_wait=60_000,
            min_bytes=1,
            topics=[
                {
                    "topic_id": described.topics[0].topic_id,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
            forgotten_topics_data=[],
        )
        parked = asyncio.ensure_future(scene.world.on(scene.world.node(CLIENT), fetch))
        await asyncio.sleep(1)
        assert not parked.done()
        began = scene.world.loop.time()
        await scene.world.on(scene.world.node(NODE), broker.stop())
        assert scene.world.loop.time() - began < 2
        assert not broker.listeners[0].connections
        await asyncio.wait([parked])
        parked.exception()

    scene.play(scenario())


def test_an_idle_client_is_closed_and_a_parked_one_is_not() -> None:
    scene = Scene()

    async def scenario() -> None:
        broker = await scene.up(connections_max_idle_ms="2000")
        silent = await scene.world.on(
            scene.world.node(CLIENT), scene.world.node(CLIENT).net.connect(NODE, PORT)
        )
        await asyncio.sleep(1)
        assert len(broker.listeners[0].connections) == 1
        await asyncio.sleep(5)
        assert len(broker.listeners[0].connections) == 0
        silent.close()

    scene.play(scenario())


def test_a_transactional_batch_in_a_request_of_no_transaction_never_pins_the_stable_offset() -> (
    None
):
    """No coordinator could be asked about it, and none would ever end it. Kafka finds the same word."""
    scene = Scene()

    async def scenario() -> None:
        await scene.up()
        await scene.create("orders")
        refused = await scene.produce("orders", b"a", pid=7, sequence=0, transactional=True)
        assert refused.error_code is ErrorCode.transactional_id_authorization_failed
        fine = await scene.produce("orders", b"a", pid=7, sequence=0)
        assert fine.base_offset == 0

    scene.play(scenario())
