"""Topics that come, go, grow and come again under the same name, while others produce, consume and transact in them.

`Churner` is the administrator; what he did is in `changes`. Everybody notes the topic id that a record was sent to, or read of; the judge
is `checkers/lives.py`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey

from ..checkers.lives import Change
from .cluster_client import ClusterClient
from .txn_client import TransactionalProducer

PARTITIONS_MAX: Final = 4
TIMEOUT_MS: Final = 5_000
DELETE_ODDS: Final = 0.6
ANEW_ODDS: Final = (
    0.7  # that the next one of its name comes at once: a node that sleeps for a moment misses both
)
RETRY_PAUSE_S: Final = 0.1
NO_ID: Final = UUID(int=0)


async def _nothing(_topic: str) -> None:
    """Nobody waits for a topic."""


class Churner:
    """One request after another; ids are asked for where an answer was lost."""

    def __init__(
        self,
        client: ClusterClient,
        topics: Sequence[str],
        *,
        pause_s: float,
        on_delete: Callable[[], None] = lambda: None,
        on_made: Callable[[str], Awaitable[None]] = _nothing,
    ) -> None:
        self.client = client
        self.topics = list(topics)
        self.pause_s = pause_s
        self.on_delete = on_delete  # just before he asks for it
        self.on_made = on_made  # what he does as soon as it is acknowledged
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []
        self.changes: list[Change] = []
        self._living: dict[str, UUID | None] = {}
        self._leaving: str | None = None

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            topic = rng.choice(self.topics)
            topic_id = self._living.get(topic)
            try:
                if topic_id is None:
                    await self._find_or_create(topic)
                elif rng.random() < DELETE_ODDS:
                    await self._delete(topic, topic_id)
                    if self._living[topic] is None and rng.random() < ANEW_ODDS:
                        await self._create(topic)
                else:
                    await self._grow(topic)
            except Trouble:
                await clock.sleep(RETRY_PAUSE_S)
            else:
                await clock.sleep(rng.uniform(0.2, 1.8) * self.pause_s)

    async def _find_or_create(self, topic: str) -> None:
        topic_id = (await living(self.client, [topic]))[topic]
        if topic_id is None:
            await self._create(topic)
        else:
            self._lives(topic, topic_id)

    async def _create(self, topic: str) -> None:
        wanted = {
            "name": topic,
            "num_partitions": self.client.env.rng.randint(1, 3),
            "replication_factor": -1,
            "assignments": [],
            "configs": [],
        }
        reply = await self._ask(ApiKey.create_topics, topics=[wanted], timeout=TIMEOUT_MS)
        if reply.topics[0].error_code is ErrorCode.none:
            self.acknowledged += 1
            self._lives(topic, reply.topics[0].topic_id)
            await self.on_made(topic)

    def _lives(self, topic: str, topic_id: UUID) -> None:
        self._living[topic] = topic_id
        if all(each.topic_id != str(topic_id) for each in self.changes):
            change = Change("create", "ok", topic, str(topic_id))
            self.begun(change)
            self.ended(change)

    async def _delete(self, topic: str, topic_id: UUID) -> None:
        self.on_delete()
        asked_s = self.client.env.clock.steady()
        change = Change("delete", "info", topic, str(topic_id), asked_s)
        was_asked = any(
            each.f == "delete" and each.topic_id == str(topic_id) for each in self.changes
        )
        self.begun(change)
        self._leaving = topic
        try:
            reply = await self._ask(
                ApiKey.delete_topics,
                topics=[{"name": None, "topic_id": topic_id}],
                timeout=TIMEOUT_MS,
            )
        except Trouble as trouble:
            if trouble.outcome is Outcome.REFUSED:
                change.type = "fail"
            raise
        else:
            error = reply.responses[0].error_code
            is_gone = error is ErrorCode.unknown_topic_id and was_asked
            if error is ErrorCode.none or is_gone:
                change.type = "ok"
                self._living[topic] = None
                self.acknowledged += 1
        finally:
            self._leaving = None
            self.ended(change)

    def living(self, topic: str) -> UUID | None:
        """The one of that name, as far as he has heard; none while he deletes it."""
        return None if topic == self._leaving else self._living.get(topic)

    def begun(self, change: Change) -> None:
        """Nobody has heard of it yet: who may be killed writes it down here."""
        self.changes.append(change)

    def ended(self, change: Change) -> None:
        """All is known of it that ever will be."""

    async def _grow(self, topic: str) -> None:
        await self.client.refresh(topic)
        count = self.client.partitions(topic) + 1
        if count > PARTITIONS_MAX:
            return
        await self._ask(
            ApiKey.create_partitions,
            topics=[{"name": topic, "count": count, "assignments": None}],
            timeout=TIMEOUT_MS,
            validate_only=False,
        )

    async def _ask(self, api_key: ApiKey, **fields: Any) -> Any:
        return await self.client.any().request(api_key, **fields)


async def living(client: ClusterClient, topics: Sequence[str]) -> Mapping[str, UUID | None]:
    """The ids of those that there are, by the word of any node. Trouble: nobody there."""
    reply = await client.any().request(
        ApiKey.metadata,
        topics=[{"name": topic} for topic in topics],
        allow_auto_topic_creation=False,
    )
    return {
        each.name: each.topic_id if each.error_code is ErrorCode.none else None
        for each in reply.topics
    }
