"""Producers that keep to no order: transactional requests with right, stale and invented identities, several at once.

Whatever they sent, the node lives, and when new incarnations have taken over their ids nothing is left open: readers
of committed records reach the end of every partition, and positions are stable.
"""

import asyncio
import random
from typing import Any, Final

import pytest
from every_api_check import E
from every_txn_api import begun
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.wire.api import SUPPORTED, ApiKey
from fencepost.cluster.wire.client import WireClient
from sim_node import NODE, PORT, SimNode
from txn_talk import TOPIC, Producer, position, records

pytestmark = pytest.mark.slow
ACTORS, STEPS, PARTITIONS = 4, 60, 3
IDS: Final = ("pay", "pay::a", "pay::b", "bill")
GROUPS: Final = ("g", "h")
TIMEOUTS_MS: Final = (200, 60_000)
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.two.phase.commit.enable": "true",
}
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "Prepared")


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"storm/{seed}")
        self.node = SimNode(seed=f"storm/{seed}", **SETTINGS)
        self.node.start()
        self.node.create_topic(TOPIC, PARTITIONS)
        # What somebody was given, whoever has it now.
        self.known = [begun(self.node, name) for name in IDS]

    def blow(self) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(self._actor(number) for number in range(ACTORS)))

        self.node.run(all_of_them)

    async def _actor(self, number: int) -> None:
        wire = WireClient(self.node.client, NODE, PORT, client_id=f"actor-{number}", timeout_s=30.0)
        for _ in range(STEPS):
            await asyncio.sleep(self.rng.choice((0, 0, 0.001, 0.05)))
            try:
                await self._step(wire)
            except Trouble:
                continue  # what no version says: a closed connection
        await wire.close()

    async def _step(self, wire: WireClient) -> None:
        rng = self.rng
        who = rng.choice(self.known)
        if (
            rng.random() < 0.9
        ):  # mostly whoever has the id now: all others are sent away at the first question
            newest = {each.transactional_id: each for each in self.known}
            who = newest[who.transactional_id]
        if rng.random() < 0.05:
            who = who.but(producer_epoch=who.producer_epoch + rng.choice((-1, 1, 7)))
        (step,) = rng.choices(
            (self._init, self._add, self._write, self._offsets, self._store, self._end, self._mark),
            (1, 6, 12, 3, 3, 5, 1),
        )
        await step(wire, who)

    def version(self, key: ApiKey) -> int:
        return self.rng.randint(*SUPPORTED[key])

    async def _init(self, wire: WireClient, who: Producer) -> None:
        key, rng = ApiKey.init_producer_id, self.rng
        version = self.version(key)
        fields: dict[str, Any] = {"transaction_timeout": rng.choice(TIMEOUTS_MS)}
        if rng.random() < 0.3:
            fields |= {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
        if version >= 6 and rng.random() < 0.5:
            fields |= {"enable2_pc": True, "keep_prepared_txn": rng.random() < 0.5}
        name = {"transactional_id": who.transactional_id}
        answer = await wire.request(key, version, **name, **fields)
        if answer.error_code is E.none:
            new = Producer(who.transactional_id)
            new.became(answer)
            self.known.append(new)

    async def _add(self, wire: WireClient, who: Producer) -> None:
        rows = [{"name": TOPIC, "partitions": self.rng.sample(range(PARTITIONS), 2)}]
        version = self.version(ApiKey.add_partitions_to_txn)
        if version >= 4:
            asked = {**who.fields, "verify_only": self.rng.random() < 0.3, "topics": rows}
            await wire.request(ApiKey.add_partitions_to_txn, version, transactions=[asked])
            return
        old = {f"v3_and_below_{name}": value for name, value in who.fields.items()}
        old["v3_and_below_topics"] = rows
        await wire.request(ApiKey.add_partitions_to_txn, version, **old)

    async def _write(self, wire: WireClient, who: Producer) -> None:
        version = self.version(ApiKey.produce)
        named = {"name": TOPIC}
        if version >= 13:
            named = {"topic_id": self.node.topic_ids[TOPIC]}
        index = self.rng.randrange(PARTITIONS)
        data = [{"index": index, "records": records(b"x", who)}]
        answer = await wire.request(
            ApiKey.produce,
            version,
            transactional_id=who.transactional_id,
            acks=-1,
            timeout=5_000,
            topic_data=[{**named, "partition_data": data}],
        )
        if answer.responses[0].partition_responses[0].error_code is E.none:
            who.sequence += self.rng.choice((0, 1))

    async def _offsets(self, wire: WireClient, who: Producer) -> None:
        version = self.version(ApiKey.add_offsets_to_txn)
        group = self.rng.choice(GROUPS)
        await wire.request(ApiKey.add_offsets_to_txn, version, **who.fields, group_id=group)

    async def _store(self, wire: WireClient, who: Producer) -> None:
        key = ApiKey.txn_offset_commit
        topics = [{"name": TOPIC, "partitions": [position(0, self.rng.randrange(9))]}]
        fields = {**who.fields, "group_id": self.rng.choice(GROUPS), "topics": topics}
        await wire.request(key, self.version(key), **fields)

    async def _end(self, wire: WireClient, who: Producer) -> None:
        key = ApiKey.end_txn
        version = self.version(key)
        answer = await wire.request(key, version, **who.fields, committed=self.rng.random() < 0.6)
        if version >= 5 and answer.error_code is E.none:
            new = Producer(who.transactional_id)
            new.became(answer)
            self.known.append(new)

    async def _mark(self, wire: WireClient, who: Producer) -> None:
        """As a person does who takes a transaction for a hanging one."""
        marker = {
            "producer_id": who.producer_id,
            "producer_epoch": who.producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": TOPIC, "partition_indexes": [self.rng.randrange(PARTITIONS)]}],
        }
        await wire.request(ApiKey.write_txn_markers, 1, markers=[marker])

    # -- afterwards --------------------------------------------------------------------------------

    def calm(self) -> None:
        """A new incarnation of each id."""
        for name in IDS:
            fields = {"transactional_id": name, "transaction_timeout": 60_000}
            for _ in range(200):
                code = self.node.ask(ApiKey.init_producer_id, 4, **fields).error_code
                if code is E.none:
                    break
                self.node.sleep(0.1)
            assert code is E.none, (name, code)
        self.node.sleep(1.0)
        listed = self.node.ask(ApiKey.list_transactions, 0, state_filters=OPEN[:-1])
        assert list(listed.transaction_states) == []

    def open_producers(self) -> list[Any]:
        topics = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]
        reply = self.node.ask(ApiKey.describe_producers, topics=topics)
        return [
            (each.partition_index, row)
            for each in reply.topics[0].partitions
            for row in each.active_producers
            if row.current_txn_start_offset >= 0
        ]

    def ends(self, isolation: int) -> list[int]:
        partitions = [{"partition_index": each, "timestamp": -1} for each in range(PARTITIONS)]
        reply = self.node.ask(
            ApiKey.list_offsets,
            isolation_level=isolation,
            topics=[{"name": TOPIC, "partitions": partitions}],
        )
        return [each.offset for each in reply.topics[0].partitions]

    def positions(self) -> list[E]:
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        wanted = [{"group_id": each, "topics": topics} for each in GROUPS]
        reply = self.node.ask(ApiKey.offset_fetch, 9, groups=wanted, require_stable=True)
        return [each.topics[0].partitions[0].error_code for each in reply.groups]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_producers_send_nothing_is_left_open_when_new_ones_take_over(seed: int) -> None:
    storm = Storm(seed)
    storm.node.ask(ApiKey.find_coordinator, 3, key="g", key_type=0)
    storm.blow()
    if seed % 2:
        storm.node.world.crash(NODE)  # without power, nothing is left but what was synced
        storm.node.start()
        storm.blow()
    storm.calm()
    assert storm.open_producers() == []
    assert storm.ends(isolation=1) == storm.ends(isolation=0)
    assert storm.positions() == [E.none, E.none]
    assert "client_request_failed" not in storm.node.events
    storm.node.close()
