"""Requests about offsets: topics by name or by id, what does not exist answered here, the rest asked for.

INVARIANT  every partition of a request has exactly one row in its answer, in the request's order.
PREVENTS   a client taking the error of one partition for that of another.
PROVED BY  tests/txn/test_offset_requests.py::test_every_partition_asked_about_is_answered_once_in_order
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.image import ClusterImage, TopicState

from ..runtime.decision import Fields
from .commands import Commit, OffsetCommit, OffsetFetch, TxnOffsetCommit, Wanted
from .config import GroupConfig
from .offsets_machine import is_of_another
from .records import NO_TOPIC_ID
from .requests import Caller, commits_of, milliseconds, topic_id_of

E = ErrorCode
TOPIC_IDS_SINCE: Final = 10  # OffsetCommit and OffsetFetch (KIP-848)
BATCHED_FETCH_SINCE: Final = 8  # KIP-709
TOP_LEVEL_ERROR_SINCE: Final = 2
_NO_POSITION: Final[Fields] = {
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "metadata": "",
}


def _find(image: ClusterImage, topic: Any) -> TopicState | ErrorCode:
    if hasattr(topic, "name"):
        return image.topics.get(topic.name, E.unknown_topic_or_partition)
    return image.topics_by_id.get(topic_id_of(topic), E.unknown_topic_id)


def _names(topic: Any, state: TopicState | ErrorCode) -> Fields:
    """What stands over the rows: the topic as the client called it."""
    name = topic.name if hasattr(topic, "name") else ""
    if isinstance(state, TopicState):
        name = state.name
    return {"name": name, "topic_id": topic_id_of(topic)}


class CommitPlan:
    """What can be committed, and the rows of the answer with holes for its outcome (None)."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.commits: list[Commit] = []
        self._named: dict[str, UUID] = {}  # whom this node took the names for
        self._topics: list[tuple[Fields, list[tuple[int, ErrorCode | None]]]] = []

    def add(self, topic: Any) -> None:
        state = _find(self._image, topic)
        rows: list[tuple[int, ErrorCode | None]] = []
        if isinstance(state, ErrorCode):
            rows.extend((row.partition_index, state) for row in topic.partitions)
        else:
            # Named or not, the position is of this topic and not of the next one to have its name.
            if hasattr(topic, "name"):
                self._named[state.name] = state.topic_id
            commits = commits_of(state.name, state.topic_id, topic.partitions)
            for commit in commits:
                exists = 0 <= commit.partition < len(state.partitions)
                rows.append((commit.partition, None if exists else E.unknown_topic_or_partition))
                if exists:
                    self.commits.append(commit)
        self._topics.append((_names(topic, state), rows))

    async def stored(
        self,
        store: Callable[[], Awaitable[Any]],
        confirm_image: Callable[[], Awaitable[bool]],
        config: GroupConfig,
    ) -> Any:
        """What was stored for a name is acknowledged only if the topic that has it now is the one that was found: whoever
        commits may know of a topic that was made anew, of which this node has not heard.

        What he knows he knew before his request came, so the quorum is asked while it is stored, and not afterwards. It
        is not waited for longer than what is stored is: a member's heartbeats wait behind this on its connection.
        """
        if not self.commits:
            return []
        if not self._named:
            return await store()
        within_s = config.offsets_commit_timeout_ms / 1000
        async with asyncio.TaskGroup() as both:
            asked = both.create_task(_in_time(confirm_image, within_s))
            reply = await store()
            is_refused = isinstance(reply, ErrorCode) or E.none not in reply
            if not is_refused and not (await asked and self._is_of_now()):
                reply = E.coordinator_load_in_progress  # clients ask again, here
            asked.cancel()
        return reply

    def _is_of_now(self) -> bool:
        topics = self._image.topics
        found = {name: state.topic_id for name in self._named if (state := topics.get(name))}
        return found == self._named

    def command(self, ctx: Caller, body: Any) -> OffsetCommit:
        retention_time_ms = -1
        if hasattr(body, "retention_time"):  # v2 to v4
            retention_time_ms = milliseconds(body.retention_time)
        return OffsetCommit(
            group_id=body.group_id,
            generation_id_or_member_epoch=body.generation_id_or_member_epoch,
            member_id=body.member_id,
            group_instance_id=getattr(body, "group_instance_id", None),
            retention_time_ms=retention_time_ms,
            api_version=ctx.api_version,
            commits=tuple(self.commits),
        )

    def command_in_transaction(self, body: Any) -> TxnOffsetCommit:
        return TxnOffsetCommit(
            group_id=body.group_id,
            generation_id=getattr(body, "generation_id", -1),
            member_id=getattr(body, "member_id", ""),
            group_instance_id=getattr(body, "group_instance_id", None),
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            commits=tuple(self.commits),
        )

    def answer(self, reply: Sequence[ErrorCode] | ErrorCode) -> list[Fields]:
        """`reply` is one code for each commit, or one for all."""
        codes: Iterator[ErrorCode]
        if isinstance(reply, ErrorCode):
            codes = iter([reply] * len(self.commits))
        else:
            codes = iter(reply)
        topics = [
            {
                **names,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": next(codes) if code is None else code,
                    }
                    for index, code in rows
                ],
            }
            for names, rows in self._topics
        ]
        assert next(codes, None) is None, "an outcome is left over"
        return topics


async def _in_time(confirm_image: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await confirm_image()
    except TimeoutError:
        return False


def plan_commit(image: ClusterImage, topics: Sequence[Any]) -> CommitPlan:
    plan = CommitPlan(image)
    for topic in topics:
        plan.add(topic)
    return plan


class FetchPlan:
    """One group of an OffsetFetch. Positions on topics that are gone are still told by name."""

    def __init__(
        self, image: ClusterImage, ctx: Caller, group: Any, *, require_stable: bool
    ) -> None:
        self.group_id: str = group.group_id
        self._image = image
        self._version = ctx.api_version
        self._group = group
        self._asked = group.topics
        self._require_stable = require_stable
        self._unknown: list[int] = []  # places of topics whose id nobody knows

    @functools.cached_property
    def command(self) -> OffsetFetch:
        """What to ask, of the topics as they are when it is first looked at."""
        return OffsetFetch(
            group_id=self.group_id,
            member_id=getattr(self._group, "member_id", None),
            member_epoch=getattr(self._group, "member_epoch", -1),
            topics=None if self._asked is None else tuple(self._wanted(self._asked)),
            require_stable=self._require_stable,
        )

    def _wanted(self, topics: Sequence[Any]) -> Iterator[Wanted]:
        for place, topic in enumerate(topics):
            if hasattr(topic, "name"):
                # Named or not, what is asked for is of today's topic; of one that is gone, whatever there is.
                named = self._image.topics.get(topic.name)
                topic_id = NO_TOPIC_ID if named is None else named.topic_id
                yield Wanted(topic.name, topic_id, tuple(topic.partition_indexes))
                continue
            state = self._image.topics_by_id.get(topic_id_of(topic))
            if state is None:
                self._unknown.append(place)
            else:
                yield Wanted(state.name, state.topic_id, tuple(topic.partition_indexes))

    def answer(self, reply: Fields | ErrorCode) -> Fields:
        group_id = self.group_id
        if isinstance(reply, ErrorCode):
            reply = {"group_id": group_id, "topics": [], "error_code": reply}
        error = reply["error_code"]
        if error is not E.none:
            # Version 1 has no place for it but the partitions.
            topics = self._rows_of(error) if self._version < TOP_LEVEL_ERROR_SINCE else []
            return {"group_id": group_id, "topics": topics, "error_code": error}
        topics = list(reply["topics"])
        if self._asked is None:
            topics = list(self._with_ids(topics))
        for place in self._unknown:
            topics.insert(place, self._row_of(self._asked[place], E.unknown_topic_id))
        return {"group_id": group_id, "topics": topics, "error_code": E.none}

    def _with_ids(self, topics: list[Fields]) -> Iterator[Fields]:
        """All of a group's topics, without what is of an earlier one of that name; by id only those of today."""
        for topic in topics:
            state = self._image.topics.get(topic["name"])
            if state is None and self._version >= TOPIC_IDS_SINCE:
                continue
            topic_id = NO_TOPIC_ID if state is None else state.topic_id
            rows = [
                {key: value for key, value in row.items() if key != "topic_id"}
                for row in topic["partitions"]
                if not is_of_another(topic_id, row["topic_id"])
            ]
            if rows:
                yield {"name": topic["name"], "topic_id": topic_id, "partitions": rows}

    def _rows_of(self, error: ErrorCode) -> list[Fields]:
        return [self._row_of(topic, error) for topic in self._asked or ()]

    def _row_of(self, topic: Any, error: ErrorCode) -> Fields:
        rows = [
            {**_NO_POSITION, "partition_index": index, "error_code": error}
            for index in topic.partition_indexes
        ]
        return {**_names(topic, error), "partitions": rows}


def plan_fetch(image: ClusterImage, ctx: Caller, body: Any) -> list[FetchPlan]:
    require_stable = getattr(body, "require_stable", False)
    groups = body.groups if ctx.api_version >= BATCHED_FETCH_SINCE else (body,)
    return [FetchPlan(image, ctx, group, require_stable=require_stable) for group in groups]


def single(group: Fields) -> Fields:
    """The answer about one group as it was before several could be asked about."""
    return {"topics": by_name(group["topics"]), "error_code": group["error_code"]}


def by_name(topics: list[Fields]) -> list[Fields]:
    """For the messages that no version of which knows topic ids."""
    return [{"name": row["name"], "partitions": row["partitions"]} for row in topics]


class DeletePlan:
    def __init__(self, image: ClusterImage, body: Any) -> None:
        self._topics: list[tuple[str, list[tuple[int, bool]]]] = []
        for topic in body.topics:
            state = image.topics.get(topic.name)
            count = 0 if state is None else len(state.partitions)
            rows = [
                (row.partition_index, 0 <= row.partition_index < count) for row in topic.partitions
            ]
            self._topics.append((topic.name, rows))

    @property
    def known(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What exists, topic by topic: only this is asked of the group."""
        return tuple(
            (name, tuple(index for index, exists in rows if exists)) for name, rows in self._topics
        )

    def answer(self, reply: Fields) -> Fields:
        if reply["error_code"] is not E.none:
            return reply
        topics = []
        for (name, rows), answered in zip(self._topics, reply["topics"], strict=True):
            codes = iter(answered["partitions"])
            partitions = [
                next(codes)
                if exists
                else {"partition_index": index, "error_code": E.unknown_topic_or_partition}
                for index, exists in rows
            ]
            topics.append({"name": name, "partitions": partitions})
        return {"error_code": E.none, "topics": topics}


def plan_delete(image: ClusterImage, body: Any) -> DeletePlan:
    return DeletePlan(image, body)
