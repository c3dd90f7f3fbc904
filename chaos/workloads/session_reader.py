"""A consumer that fetches as Java's does: of each node all that it leads at once, and in a session (KIP-227).

INVARIANT  what a node leaves out of an answer is as the consumer was told last: it has no records there to read, and the
           same high watermark.
PREVENTS   a consumer that waits for ever at a partition whose change was left out, or is told of no error there.
PROVED BY  tests/sim/test_sessions.py

What was asked for before is not said again: the node keeps it. One that has lost the session says so, and all is asked for anew.
Its records are judged as those of any reader. `untold` says at the end, when nobody writes any more, what it waits for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey

from .cluster_client import ClusterClient, Damaged, Leader, checked
from .cluster_stream import StreamReader

NO_SESSION, INITIAL, FINAL_EPOCH = 0, 0, -1
WAIT_MS: Final = 100
PAUSE_S: Final = 0.05
# A partition with records that the application has not taken yet is not asked for: it is forgotten, and asked for again.
PAUSED_ODDS: Final = 0.01
CLOSED_ODDS: Final = 0.005
# Of all partitions, and of one: with little room the turn goes round, and nobody may be left out for long.
BYTES_MAX: Final = (300, 2_000, 1 << 20)
Asked = Mapping[str, int]  # the fields of a partition in a request


class SessionLost(Trouble):
    """The node has thrown it away, or has another picture of it."""


@dataclass(slots=True)
class Session:
    """With one node."""

    id: int = NO_SESSION
    epoch: int = INITIAL
    asked: dict[tuple[UUID, int], Asked] = field(default_factory=dict)

    def again(self) -> None:
        """The next request asks for everything, and ends what the node may have of the last session."""
        self.epoch = INITIAL
        self.asked = {}


class SessionReader:
    """Of all partitions; `readers` take what comes, one for each."""

    def __init__(self, client: ClusterClient, topic: str, readers: list[StreamReader]) -> None:
        self.client = client
        self.topic = topic
        self.readers = readers
        self.stopping = False
        self.is_steady = False  # it keeps its sessions, and what it asks for
        self.high_watermarks: dict[int, int] = {}  # as it was told last
        self.incremental = self.left_out = 0  # answers, and partitions of them
        self._sessions: dict[int, Session] = {}
        self._bytes_max = client.env.rng.choice(BYTES_MAX)

    async def run(self) -> None:
        clock, rng = self.client.env.clock, self.client.env.rng
        while not self.stopping:
            for node_id, led in (await self._by_leader()).items():
                await self._fetch(node_id, led)
            await clock.sleep(PAUSE_S * rng.random())

    def untold(self, ends: Callable[[int], int | None]) -> list[str]:
        """Of each partition, how far it is. `ends` are the high watermarks."""
        found: list[str] = []
        for reader in self.readers:
            end = ends(reader.partition)
            told = self.high_watermarks.get(reader.partition)
            if end is not None and (reader.offset < end or told != end):
                found.append(
                    f"{reader.key} ends at {end}, {reader.name} is at {reader.offset} and was told of {told}"
                )
        return found

    async def _by_leader(self) -> dict[int, list[tuple[StreamReader, Leader]]]:
        found: dict[int, list[tuple[StreamReader, Leader]]] = {}
        for reader in self.readers:
            try:
                leader = await self.client.leader_now(self.topic, reader.partition)
            except Trouble:
                continue
            if not self._now_and_then(PAUSED_ODDS):
                found.setdefault(leader.node_id, []).append((reader, leader))
        return found

    def _now_and_then(self, odds: float) -> bool:
        return not self.is_steady and self.client.env.rng.random() < odds

    async def _fetch(self, node_id: int, led: list[tuple[StreamReader, Leader]]) -> None:
        """An answer that did not come leaves both sides with different pictures: the next request begins anew."""
        session = self._sessions.setdefault(node_id, Session())
        if session.id and self._now_and_then(CLOSED_ODDS):
            session.epoch, session.asked = FINAL_EPOCH, {}
        try:
            answers = await self._ask(session, led)
        except SessionLost:
            session.again()
            return
        except Trouble:
            session.again()
            for reader, leader in led:
                self.client.forget(self.topic, reader.partition, leader)
            return
        for reader, leader in led:
            answer = answers.get((leader.topic_id, reader.partition))
            if answer is None:
                self.left_out += 1
                continue
            try:
                checked(leader, reader.partition, answer.records)
            except Damaged as damage:
                self.client.served_damage(reader.key, reader.offset, damage)
                self.client.forget(self.topic, reader.partition, leader)
                continue
            if answer.error_code is ErrorCode.none:
                self.high_watermarks[reader.partition] = answer.high_watermark
            await reader.hear(leader, answer)

    async def _ask(
        self, session: Session, led: list[tuple[StreamReader, Leader]]
    ) -> dict[tuple[UUID, int], Any]:
        wanted: dict[tuple[UUID, int], Asked] = {
            (leader.topic_id, reader.partition): {
                "partition": reader.partition,
                "fetch_offset": reader.offset,
                "partition_max_bytes": self._bytes_max,
                "current_leader_epoch": leader.leader_epoch,
            }
            for reader, leader in led
        }
        is_full = session.epoch in (INITIAL, FINAL_EPOCH)
        said = {at: each for at, each in wanted.items() if session.asked.get(at) != each}
        forgotten = [at for at in session.asked if at not in wanted]
        reply = await led[0][1].wire.request(
            ApiKey.fetch,
            max_wait=WAIT_MS,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=0,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=_by_topic(said, lambda at: said[at]),
            forgotten_topics_data=_by_topic(dict.fromkeys(forgotten), lambda at: at[1]),
        )
        if reply.error_code is not ErrorCode.none:
            if reply.error_code is ErrorCode.fetch_session_id_not_found:
                session.id = NO_SESSION
            raise SessionLost(f"fetch: {reply.error_code.name}", Outcome.REFUSED)
        answers = {
            (topic.topic_id, each.partition_index): each
            for topic in reply.responses
            for each in topic.partitions
        }
        assert not is_full or answers.keys() == wanted.keys(), "a full answer leaves nothing out"
        self.incremental += not is_full
        self._goes_on(session, reply.session_id, wanted)
        return answers

    @staticmethod
    def _goes_on(session: Session, id_: int, wanted: dict[tuple[UUID, int], Asked]) -> None:
        if id_ == NO_SESSION:
            session.id = NO_SESSION
            session.again()
            return
        session.id, session.asked = id_, dict(wanted)
        session.epoch += 1


def _by_topic(
    places: Mapping[tuple[UUID, int], Any], of: Callable[[tuple[UUID, int]], Any]
) -> list[dict[str, Any]]:
    topics: dict[UUID, list[Any]] = {}
    for at in places:
        topics.setdefault(at[0], []).append(of(at))
    return [{"topic_id": topic, "partitions": topics[topic]} for topic in topics]
