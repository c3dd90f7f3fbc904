"""What is asked of a transaction that is decided while one of its partitions can't show it: its leader is dead.

Kafka 4.3, asked the same with three nodes, said CONCURRENT_TRANSACTIONS to all of it at once. Here whatever begins
something new waits for the markers first, and is told so only when they take too long. Who asks for the same end once
more, or for the other one, is told what is decided: no marker will change that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from every_api_check import E
from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from sim_cluster import CLIENT, Cluster
from txn_talk import Producer

pytestmark = pytest.mark.slow
SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
WAITED_S_MAX = 5.5


class Held(Cluster):
    """A transaction that is committed on three nodes, one of whose partitions had its only replica on a dead one."""

    def __init__(self) -> None:
        super().__init__(3, seed="under way", config=SETTINGS)
        self.coordinator = 0
        self.dead = 0
        self.who = Producer("pay")

    async def begin(self) -> None:
        while not self.coordinator:
            asked = {"key_type": 1, "coordinator_keys": ["pay"]}
            (row,) = (await self.ask(1, ApiKey.find_coordinator, **asked)).coordinators
            if row.error_code is E.none:
                self.coordinator = row.node_id
        self.dead = next(each for each in (1, 2, 3) if each != self.coordinator)
        await self.make_topic()
        begun = await self.init()
        self.who.became(begun)
        added = await self.add(0, 1)
        assert added == [E.none, E.none]
        self.kill(self.dead)
        await self.until(lambda: self.leaders()[0] == -1)

    async def make_topic(self) -> None:
        places = [
            {"partition_index": 0, "broker_ids": [self.dead]},
            {"partition_index": 1, "broker_ids": [self.coordinator]},
        ]
        topic = {"name": "t", "num_partitions": -1, "replication_factor": -1}
        few = [{"name": "min.insync.replicas", "value": "1"}]
        wanted = [{**topic, "assignments": places, "configs": few}]
        made = await self.ask(1, ApiKey.create_topics, timeout=10_000, topics=wanted)
        assert made.topics[0].error_code is E.none, made

    async def init(self, **more: Any) -> Any:
        fields = {"transactional_id": "pay", "transaction_timeout": 60_000, **more}
        return await self.ask(self.coordinator, ApiKey.init_producer_id, **fields)

    async def end(self, *, commit: bool = True) -> Any:
        """As librdkafka does it: version 4, whose epoch stays."""
        return await self.ask_in(ApiKey.end_txn, 4, **self.who.fields, committed=commit)

    async def add(self, *partitions: int) -> list[E]:
        old = {f"v3_and_below_{name}": value for name, value in self.who.fields.items()}
        rows = [{"name": "t", "partitions": partitions}]
        reply = await self.ask_in(ApiKey.add_partitions_to_txn, 3, **old, v3_and_below_topics=rows)
        (topic,) = reply.results_by_topic_v3_and_below
        return [each.partition_error_code for each in topic.results_by_partition]

    async def ask_in(self, key: ApiKey, version: int, **fields: Any) -> Any:
        client = self.world.node(CLIENT)

        async def work() -> Any:
            wire = WireClient(client, node_name(self.coordinator), CLIENT_PORT, timeout_s=60.0)
            try:
                return await wire.request(key, version, **fields)
            finally:
                await wire.close()

        return await self.world.on(client, work())

    async def state(self) -> str:
        asked = {"transactional_ids": ["pay"]}
        (row,) = (
            await self.ask(self.coordinator, ApiKey.describe_transactions, **asked)
        ).transaction_states
        return str(row.transaction_state)


async def waited(cluster: Held, asking: Awaitable[Any]) -> tuple[Any, float]:
    began = cluster.now
    return await asking, cluster.now - began


def play(scenario: Callable[[Held], Coroutine[Any, Any, None]]) -> None:
    cluster = Held()

    async def whole() -> None:
        await cluster.begin()
        await scenario(cluster)

    cluster.play(whole)


def test_a_commit_is_answered_when_it_is_decided_and_not_when_every_partition_shows_it() -> None:
    async def scenario(cluster: Held) -> None:
        answer, seconds = await waited(cluster, cluster.end())
        assert (answer.error_code, await cluster.state()) == (E.none, "PrepareCommit")
        assert seconds < 0.5

    play(scenario)


def test_whatever_begins_something_new_waits_for_the_markers_for_a_bounded_time() -> None:
    async def scenario(cluster: Held) -> None:
        await cluster.end()
        (code,), seconds = await waited(cluster, cluster.add(1))
        assert code is E.concurrent_transactions
        assert 1 < seconds < WAITED_S_MAX
        begun, seconds = await waited(cluster, cluster.init())
        assert begun.error_code is E.concurrent_transactions
        assert 1 < seconds < WAITED_S_MAX
        assert await cluster.state() == "PrepareCommit"

    play(scenario)


def test_what_is_decided_is_told_at_once_whatever_its_partitions_show() -> None:
    async def scenario(cluster: Held) -> None:
        await cluster.end()
        again, seconds = await waited(cluster, cluster.end())
        assert (again.error_code, seconds < 0.5) == (E.none, True)
        other, seconds = await waited(cluster, cluster.end(commit=False))
        assert (other.error_code, seconds < 0.5) == (E.invalid_txn_state, True)
        assert await cluster.state() == "PrepareCommit"

    play(scenario)


def test_what_waits_is_answered_as_soon_as_the_last_partition_shows_the_end() -> None:
    async def scenario(cluster: Held) -> None:
        await cluster.end()
        adding = asyncio.get_running_loop().create_task(cluster.add(1))
        await asyncio.sleep(0.5)
        assert not adding.done()
        cluster.nodes.start(cluster.dead)
        assert await adding == [E.none]
        assert await cluster.state() == "Ongoing"

    play(scenario)
