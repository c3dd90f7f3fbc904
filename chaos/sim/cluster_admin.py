"""Somebody administers the simulated cluster all the while: topics come and go, grow and move, leaders are elected.

Nothing here is asserted but by the watch: an answer may be lost or refused, and the next request is another one.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.controller.commands import ElectionType
from fencepost.cluster.metadata.image import TopicState
from fencepost.cluster.metadata.offline import complete_replicas
from fencepost.cluster.wire.api import ApiKey

from ..workloads.cluster_client import ClusterClient
from .cluster_nodes import ClusterNodes
from .node import SimEnv

CHURNED: Final = ("churn-a", "churn-b")
PARTITIONS_MAX: Final = 6
TIMEOUT_MS: Final = 5000
LOOK_S: Final = 1.0
NO_ERROR: Final = ErrorCode.none.name

GivesUp = Callable[[UUID, int], None]  # told before it is asked for: a topic's id, a partition


class Admin:
    def __init__(self, client: ClusterClient, nodes: ClusterNodes, topic: str) -> None:
        self.client = client
        self.nodes = nodes
        self.topic = topic
        self.stopping = False
        self.answers: Counter[str] = Counter()
        self._rng: random.Random = client.env.rng

    async def create(
        self,
        topic: str,
        partitions: int,
        *,
        replicas: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in (configs or {}).items()],
        }
        reply = await self._ask(ApiKey.create_topics, topics=[wanted], timeout=TIMEOUT_MS)
        return _code(reply.topics)

    async def run(self, actions: tuple[str, ...] = ()) -> None:
        """One request after another, of all kinds, until told to stop."""
        names = actions or tuple(ACTIONS)
        while not self.stopping:
            name = self._rng.choice(names)
            try:
                answer = await ACTIONS[name](self)
            except Trouble as trouble:
                answer = f"trouble: {trouble.outcome.value}"
            self.answers[f"{name}: {answer}"] += 1
            await self.client.env.clock.sleep(self._rng.uniform(0.05, 1.0))

    @contextlib.asynccontextmanager
    async def a_person_helps(self, gives_up: GivesUp) -> AsyncIterator[None]:
        env = self.client.env
        assert isinstance(env, SimEnv)
        person = asyncio.ensure_future(self.nodes.world.on(env, self._give_up_lost(gives_up)))
        try:
            yield
        finally:
            person.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await person

    async def _give_up_lost(self, gives_up: GivesUp) -> None:
        """What a person does whom `fencepost partition recover` asks for it: a topic that nobody writes to may have been put
        on a disk alone in the moment in which that was replaced. Until cancelled."""
        while True:
            if lost := self._lost():
                for topic, partitions in lost:
                    for partition in partitions:
                        gives_up(topic.topic_id, partition)
                with contextlib.suppress(Trouble):
                    await self._ask(
                        ApiKey.elect_leaders,
                        election_type=ElectionType.UNCLEAN.value,
                        topic_partitions=[
                            {"topic": topic.name, "partitions": partitions}
                            for topic, partitions in lost
                        ],
                        timeout=TIMEOUT_MS,
                    )
            await self.client.env.clock.sleep(LOOK_S)

    def _lost(self) -> list[tuple[TopicState, list[int]]]:
        image = self.nodes.image
        topics = [] if image is None else [image.topics.get(name) for name in CHURNED]
        found = []
        for topic in topics:
            held = () if topic is None else topic.partitions
            lost = [
                state.partition
                for state in held
                if state.leader < 0 and self.nodes.emptied.issuperset(complete_replicas(state))
            ]
            if topic is not None and lost:
                found.append((topic, lost))
        return found

    async def _ask(self, api_key: ApiKey, **fields: Any) -> Any:
        return await self.client.any().request(api_key, **fields)

    async def _create(self) -> str:
        most = min(3, len(self.nodes.ids))
        partitions, replicas = self._rng.randint(1, 3), self._rng.randint(1, most)
        if self.nodes.rotten is not None:
            replicas = max(2, replicas)  # what has one copy, on a disk that is thrown away, is lost
        return await self.create(self._rng.choice(CHURNED), partitions, replicas=replicas)

    async def _delete(self) -> str:
        topic = {"name": self._rng.choice(CHURNED), "topic_id": None}
        reply = await self._ask(ApiKey.delete_topics, topics=[topic], timeout=TIMEOUT_MS)
        return _code(reply.responses)

    async def _grow(self) -> str:
        """More partitions for a topic that is written to."""
        image = self.nodes.image
        if image is None or self.topic not in image.topics:
            return "no topic"
        count = len(image.topics[self.topic].partitions) + 1
        if count > PARTITIONS_MAX:
            return "enough"
        wanted = {"name": self.topic, "count": count, "assignments": None}
        reply = await self._ask(
            ApiKey.create_partitions, topics=[wanted], timeout=TIMEOUT_MS, validate_only=False
        )
        return _code(reply.results)

    async def _move(self) -> str:
        """Other replicas, or the same in another order; sometimes a move under way is cancelled."""
        image = self.nodes.image
        if image is None or self.topic not in image.topics:
            return "no topic"
        index = self._rng.randrange(len(image.topics[self.topic].partitions))
        copies = len(image.topics[self.topic].partitions[index].replicas)
        replicas: list[int] | None = list(
            self._rng.sample(self.nodes.ids, min(3, copies, len(self.nodes.ids)))
        )
        if self._rng.random() < 0.15:
            replicas = None
        partitions = [{"partition_index": index, "replicas": replicas}]
        reply = await self._ask(
            ApiKey.alter_partition_reassignments,
            topics=[{"name": self.topic, "partitions": partitions}],
            timeout=TIMEOUT_MS,
        )
        return _code(reply.responses[0].partitions) if reply.responses else reply.error_code.name

    async def _elect(self) -> str:
        reply = await self._ask(
            ApiKey.elect_leaders,
            election_type=ElectionType.PREFERRED.value,
            topic_partitions=None,
            timeout=TIMEOUT_MS,
        )
        return str(reply.error_code.name)


class Mover(Admin):
    """Does nothing but move partitions."""

    async def run(self, actions: tuple[str, ...] = ("move",)) -> None:
        await super().run(actions)


def _code(items: Any) -> str:
    return str(items[0].error_code.name) if items else NO_ERROR


ACTIONS: Final = {
    "create": Admin._create,
    "delete": Admin._delete,
    "grow": Admin._grow,
    "move": Admin._move,
    "elect": Admin._elect,
}
