"""A scene: what a coordinator says of a transaction is on its way for as long as a topic is away, and comes into the next one of its name.

Workloads come near to it by chance alone: two nodes have to be cut off from one another while a topic is deleted and made
anew with the same leader, and its client has to go on in the same epoch, as one of the old protocol does that knows what
became of all it wrote (`workloads/txn_client.py` asks for the next epoch). The judges are those of everybody else: a decision
has its markers (`checkers/decisions.py`), and stable offsets are at their partitions' ends.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch

from ..workloads.txn_answers import error_of
from .aimed_faults import scene
from .aimed_transactions import BareProducer, bare_producer
from .bystander import GivenUp
from .cluster_nodes import node_name
from .left_behind import Scene

if TYPE_CHECKING:
    from .transaction_faults import TransactionFaults

CREATE_VERSION: Final = 7
DELETE_VERSION: Final = 6
HEARD_S: Final = 0.5  # what was on its way has come by then
KNOWN_S: Final = 3.0
STEP_S: Final = 0.01
GOES_ON_ODDS: Final = 0.6


class PassingTopic:
    """One partition, led by `leader`, which is no coordinator of the transaction and not the controller."""

    def __init__(self, one: Scene, controller: BrokerId, leader: BrokerId) -> None:
        self.faults: TransactionFaults = one.faults  # type: ignore[assignment]
        self.watch: Any = one.faults.watch
        self.leader = leader
        self.place = TopicPartition(f"{one.name}-late", 0)
        self._copies = [leader, controller]
        self._by = one.by

    async def create(self) -> None:
        """Until its leader knows it."""
        assigned = [{"partition_index": 0, "broker_ids": self._copies}]
        sizes = {"num_partitions": -1, "replication_factor": -1, "configs": []}
        topic = {"name": self.place.topic, "assignments": assigned, **sizes}
        reply = await self._ask(ApiKey.create_topics, CREATE_VERSION, topics=[topic])
        made = reply.topics[0]
        if made.error_code is not ErrorCode.none:
            raise GivenUp(f"{self.place} is not made: {made.error_code.name}")
        nodes = self.faults.nodes

        def is_known() -> bool:
            here = nodes.is_up(self.leader) and nodes.broker(self.leader).replicas.partitions
            at = here.get(self.place) if here else None
            return at is not None and at.topic_id == made.topic_id and at.is_leader

        await self._until(is_known, "its leader knows it")

    async def delete(self) -> None:
        topics = [{"name": self.place.topic, "topic_id": None}]
        reply = await self._ask(ApiKey.delete_topics, DELETE_VERSION, topics=topics)
        if (error := reply.responses[0].error_code) is not ErrorCode.none:
            raise GivenUp(f"{self.place} is not deleted: {error.name}")

    async def until_ended(self, transactional_id: str) -> None:
        newest = self.watch.decisions.newest
        await self._until(
            lambda: newest[transactional_id].state.startswith("Complete"), "it has ended"
        )

    async def _until(self, done: Any, what: str) -> None:
        end = self.faults.world.loop.time() + KNOWN_S
        while not done():
            if self.faults.world.loop.time() > end:
                raise GivenUp(f"not within {KNOWN_S} s: {what}")
            await asyncio.sleep(STEP_S)

    async def _ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """The controller: anybody else might not have heard of the change before."""
        return await self._by.ask(self._copies[1], api_key, version, timeout=1_000, **fields)


@scene
async def late_word(one: Scene) -> None:
    """A word of a transaction comes when that has ended, and its topic has been deleted and made anew."""
    faults: TransactionFaults = one.faults  # type: ignore[assignment]
    producer = await bare_producer(one, new_protocol=False)
    assert producer is not None
    coordinator, controller = faults.nodes.leader(*producer.place), faults.nodes.controller()
    ready = [each for each in faults.nodes.ready() if each not in (coordinator, controller)]
    if coordinator is None or controller is None or coordinator == controller or not ready:
        raise GivenUp("no topic's leader would be told from afar")
    topic = PassingTopic(one, controller, faults.rng.choice(ready))
    faults.unmarked.append(topic.place.topic)  # until it is there for good
    await _answered(producer.at_coordinator(producer.init))
    await topic.create()
    ends = node_name(coordinator), node_name(topic.leader)
    faults.world.net.cut(*ends)
    try:
        await _add(producer, topic)
        await topic.delete()
        await _end(producer, commit=False)
        await topic.until_ended(producer.transactional_id)
        await topic.create()
    finally:
        faults.world.net.heal(*ends)
    faults.unmarked.remove(topic.place.topic)
    topic.watch.decisions.gone(str(topic.place))
    faults.made.append((topic.place.topic, topic.place.partition))
    await asyncio.sleep(HEARD_S)
    if faults.rng.random() < GOES_ON_ODDS:
        await _add(producer, topic)
        told = await _write(producer, topic)
        await _end(producer, commit=told == ErrorCode.none.name)
    else:  # a batch of what was aborted: the next one is not its topic
        told = await _write(producer, topic)
    faults.world.trace.event("chaos", "late", place=str(topic.place), told=told)


async def _answered(asking: Any) -> None:
    if (error := error_of(await asking)) is not ErrorCode.none:
        raise GivenUp(f"its producer is told {error.name}")


async def _add(producer: BareProducer, topic: PassingTopic) -> None:
    asked = lambda node_id: producer.add_partition(node_id, *topic.place)  # noqa: E731
    await _answered(producer.at_coordinator(asked))


async def _end(producer: BareProducer, *, commit: bool) -> None:
    await _answered(producer.at_coordinator(lambda node_id: producer.end(node_id, commit=commit)))


async def _write(producer: BareProducer, topic: PassingTopic) -> str:
    """What its leader says."""
    batch = build_batch(
        [Record(0, round(topic.faults.world.loop.time()), None, b"late", ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    asking = producer.produce(topic.leader, *topic.place, bytes(batch))
    return str((await asking).error_code.name)
