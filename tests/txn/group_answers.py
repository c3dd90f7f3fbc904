"""One conversation about groups, held with Kafka and with us.

    python tests/txn/group_answers.py HOST PORT > tests/txn/kafka_4_3_group_answers.json

holds it with a fresh single broker (`group.initial.rebalance.delay.ms=0`) and writes down what it answered.
`test_group_answers.py` holds it with a GroupService, without a socket. What is drawn by chance is given names, and
rows whose order means nothing are sorted.
"""

import asyncio
import dataclasses
import datetime as dt
import json
import re
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

Ask = Callable[..., Awaitable[Any]]  # (client, api, version, **fields) -> response body
PROTOCOLS = [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOBODY = {"group_id": "nope", "generation_id": 1, "member_id": "m"}
NAMED = {"protocol_type": "consumer", "protocol_name": "range"}


class Conversation:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._names: dict[str, str] = {}
        self.said: list[tuple[str, str, int, Any]] = []

    async def ask(self, label: str, client: str, api: str, version: int, **fields: Any) -> Any:
        body = await self._ask(client, api, version, **fields)
        self.said.append((label, api, version, self._plain(body)))
        return body

    def later(self, label: str, client: str, api: str, version: int, **fields: Any) -> Any:
        work = self.ask(label, client, api, version, **fields)
        return asyncio.get_running_loop().create_task(work)

    def _plain(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name != "throttle_time"
            }
        if isinstance(value, tuple | list):
            rows = [self._plain(row) for row in value]
            return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, str):
            return UUID.sub(lambda found: self._name(found[0]), value)
        if isinstance(value, dt.timedelta | uuid.UUID):
            return str(value)
        return getattr(value, "name", value)

    def _name(self, drawn: str) -> str:
        return self._names.setdefault(drawn, f"<{len(self._names)}>")


def joining(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 8_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        **more,
    }


def syncing(group: str, generation: int, member_id: str, **more: Any) -> dict[str, Any]:
    given = more.pop("assign", {})
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        **NAMED,
        "assignments": [{"member_id": who, "assignment": what} for who, what in given.items()],
        **more,
    }


def position(offset: int, partition: int = 0, metadata: str = "") -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }


def committing(group: str, offset: int, **more: Any) -> dict[str, Any]:
    """What exists, what does not, and what is too long."""
    here = [position(offset), position(offset, 7), position(offset, 1, "x" * 5_000)]
    topics = [{"name": "t", "partitions": here}, {"name": "zz", "partitions": [position(1)]}]
    return {"group_id": group, "member_id": "", "topics": topics, **more}


def one(offset: int) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [position(offset)]}]


def deleting(*partitions: int) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition_index": index} for index in partitions]}]


async def hold(talk: Conversation) -> None:
    await about_nobody(talk)
    await about_offsets(talk)
    await about_a_member(talk)
    await about_two_members(talk)
    await about_old_clients(talk)


async def about_nobody(talk: Conversation) -> None:
    a = "a"
    unasked = {"include_authorized_operations": False}
    await talk.ask("heartbeat", a, "heartbeat", 4, **NOBODY)
    await talk.ask("sync", a, "sync_group", 5, **NOBODY, **NAMED, assignments=[])
    leaving = [{"member_id": "m"}]
    await talk.ask("leave", a, "leave_group", 5, group_id="nope", members=leaving)
    await talk.ask("leave old", a, "leave_group", 2, group_id="nope", member_id="m")
    await talk.ask("describe v5", a, "describe_groups", 5, groups=["nope"], **unasked)
    await talk.ask("describe v6", a, "describe_groups", 6, groups=["nope"], **unasked)
    await talk.ask("delete", a, "delete_groups", 2, groups_names=["nope", "nope"])
    await talk.ask("delete offsets", a, "offset_delete", 0, group_id="nope", topics=deleting(0))
    await talk.ask("join as somebody", a, "join_group", 9, **joining("nope", "m"))
    await talk.ask("join in no time", a, "join_group", 6, **joining("n", session_timeout_ms=5))
    await talk.ask("join no group", a, "join_group", 7, **joining(""))
    empty = {**NOBODY, "group_id": ""}
    await talk.ask("sync no group", a, "sync_group", 4, **empty, assignments=[])
    await talk.ask("sync unnamed", a, "sync_group", 5, **empty, assignments=[])
    await talk.ask("heartbeat no group", a, "heartbeat", 0, **empty)
    await talk.ask("join without protocols", a, "join_group", 9, **joining("n2", protocols=[]))


async def about_offsets(talk: Conversation) -> None:
    a = "a"
    stranger = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    await talk.ask("commit", a, "offset_commit", 9, **committing("s1", 5))
    await talk.ask("commit as m, v9", a, "offset_commit", 9, **committing("s2", 5, **stranger))
    await talk.ask("commit as m, v8", a, "offset_commit", 8, **committing("s2", 5, **stranger))
    await talk.ask("commit v2", a, "offset_commit", 2, **committing("s3", 5, retention_time_ms=-1))
    await talk.ask("commit no group", a, "offset_commit", 9, **committing("", 5))
    wanted = [
        {"name": "t", "partition_indexes": [0, 1, 9]},
        {"name": "zz", "partition_indexes": [0]},
    ]
    for version in (1, 2, 5, 7):
        label = f"fetch v{version}"
        await talk.ask(label, a, "offset_fetch", version, group_id="s1", topics=wanted)
    await talk.ask("fetch all v2", a, "offset_fetch", 2, group_id="s1", topics=None)
    groups = [
        {"group_id": "s1", "topics": None},
        {"group_id": "nope", "topics": None},
        {"group_id": "nope", "topics": wanted},
    ]
    await talk.ask("fetch several", a, "offset_fetch", 8, groups=groups, require_stable=True)
    groups = [{"group_id": "s1", "member_id": "x", "member_epoch": 3, "topics": wanted}]
    await talk.ask("fetch as x", a, "offset_fetch", 9, groups=groups)
    gone = [*deleting(0, 9), {"name": "zz", "partitions": [{"partition_index": 0}]}]
    await talk.ask("delete some", a, "offset_delete", 0, group_id="s1", topics=gone)
    unasked = {"include_authorized_operations": False}
    await talk.ask("describe simple", a, "describe_groups", 6, groups=["s1", ""], **unasked)
    await talk.ask("delete simple", a, "delete_groups", 2, groups_names=["s1", ""])


async def about_a_member(talk: Conversation) -> None:
    """The group g with one member, in each of its phases; `about_two_members` goes on with it."""
    c, g = "c1", "g"
    member_id = (await talk.ask("join", c, "join_group", 9, **joining(g))).member_id
    await talk.ask("join again", c, "join_group", 9, **joining(g, member_id))
    unasked = {"include_authorized_operations": False}
    me = {"group_id": g, "member_id": member_id}
    mine = {**me, "topics": one(3)}
    await talk.ask("beat before sync", c, "heartbeat", 4, **me, generation_id=1)
    await talk.ask(
        "commit before sync", c, "offset_commit", 9, **mine, generation_id_or_member_epoch=1
    )
    await talk.ask("describe before sync", c, "describe_groups", 6, groups=[g], **unasked)
    await talk.ask("sync in 0", c, "sync_group", 5, **syncing(g, 0, member_id))
    other = syncing(g, 1, member_id, protocol_name="other")
    await talk.ask("sync for another protocol", c, "sync_group", 5, **other)
    await talk.ask("sync as nobody", c, "sync_group", 5, **syncing(g, 1, "nobody"))
    first = syncing(g, 1, member_id, assign={member_id: b"A"})
    await talk.ask("sync in 1", c, "sync_group", 5, **first)
    await talk.ask("sync once more", c, "sync_group", 3, **me, generation_id=1, assignments=[])
    await talk.ask("describe stable", c, "describe_groups", 5, groups=[g], **unasked)
    await talk.ask("list", c, "list_groups", 5, states_filter=["stable"], types_filter=["Classic"])
    await talk.ask("beat in 2", c, "heartbeat", 4, **me, generation_id=2)
    for label, generation in (("commit in 2", 2), ("commit in 1", 1)):
        await talk.ask(
            label, c, "offset_commit", 9, **mine, generation_id_or_member_epoch=generation
        )
    nobodys = {"group_id": g, "member_id": "", "topics": one(3)}
    await talk.ask("commit as nobody", c, "offset_commit", 9, **nobodys)
    await talk.ask("delete offsets in use", c, "offset_delete", 0, group_id=g, topics=deleting(0))
    await talk.ask("delete alive", c, "delete_groups", 2, groups_names=[g])
    sticky = joining(g, protocols=[{"name": "sticky", "metadata": b""}])
    await talk.ask("join for another protocol", "c2", "join_group", 9, **sticky)
    await talk.ask(
        "join of another kind", "c2", "join_group", 5, **joining(g, protocol_type="connect")
    )
    await talk.ask(
        "describe as new", c, "consumer_group_describe", 0, group_ids=[g, "nope"], **unasked
    )


async def about_two_members(talk: Conversation) -> None:
    """A static member comes, is replaced by its restart, and is removed by its instance."""
    g, static = "g", {"group_instance_id": "i2"}
    described = await talk.ask(
        "before the second", "c1", "describe_groups", 5, groups=[g],
        include_authorized_operations=False,
    )  # fmt: skip
    first = described.groups[0].members[0].member_id
    me = {"group_id": g, "member_id": first}
    second_joins = talk.later("second joins", "c2", "join_group", 9, **joining(g, **static))
    await asyncio.sleep(0.3)
    await talk.ask("beat while joining", "c1", "heartbeat", 4, **me, generation_id=1)
    await talk.ask("sync while joining", "c1", "sync_group", 5, **syncing(g, 1, first))
    mine = {**me, "generation_id_or_member_epoch": 1, "topics": one(5)}
    await talk.ask("commit while joining", "c1", "offset_commit", 9, **mine)
    await talk.ask("first joins", "c1", "join_group", 9, **joining(g, first))
    second = (await second_joins).member_id
    mine = {**me, "generation_id_or_member_epoch": 2, "topics": one(6)}
    await talk.ask("commit while syncing", "c1", "offset_commit", 9, **mine)
    second_syncs = talk.later(
        "second syncs", "c2", "sync_group", 5, **syncing(g, 2, second, **static)
    )
    await asyncio.sleep(0.3)
    assign = {first: b"A", second: b"B"}
    await talk.ask("first syncs", "c1", "sync_group", 5, **syncing(g, 2, first, assign=assign))
    await second_syncs
    restarted = await talk.ask("restart", "c3", "join_group", 9, **joining(g, **static))
    old = {"group_id": g, "generation_id": 2, "member_id": second}
    await talk.ask("beat of the replaced", "c2", "heartbeat", 4, **old, **static)
    await talk.ask("beat without instance", "c2", "heartbeat", 4, **old)
    await talk.ask(
        "sync of the restarted", "c3", "sync_group", 5,
        **syncing(g, 2, restarted.member_id, **static),
    )  # fmt: skip
    await talk.ask("restart v8", "c3", "join_group", 8, **joining(g, **static))
    leaving = [
        {"member_id": "", "group_instance_id": "nothing"},
        {"member_id": "nobody", "group_instance_id": "i2"},
        {"member_id": "nobody"},
        {"member_id": "", "group_instance_id": "i2"},
    ]
    await talk.ask("remove", "c3", "leave_group", 4, group_id=g, members=leaving)
    await talk.ask("beat after that", "c1", "heartbeat", 4, **me, generation_id=2)
    await talk.ask("leave v1", "c1", "leave_group", 1, **me)
    await talk.ask(
        "describe empty", "c1", "describe_groups", 6, groups=[g],
        include_authorized_operations=False,
    )  # fmt: skip
    await talk.ask("join with an old id", "c1", "join_group", 9, **joining(g, first))
    nobodys = {"group_id": g, "member_id": "", "topics": one(9)}
    await talk.ask("commit to the empty", "c1", "offset_commit", 9, **nobodys)
    await talk.ask("fetch of the empty", "c1", "offset_fetch", 7, group_id=g, topics=None)
    await talk.ask("delete the empty", "c1", "delete_groups", 1, groups_names=[g])


async def about_old_clients(talk: Conversation) -> None:
    joined = await talk.ask("old join", "c4", "join_group", 2, **joining("old"))
    me = {"group_id": "old", "member_id": joined.member_id}
    given = [{"member_id": joined.member_id, "assignment": b"z"}]
    await talk.ask("old sync", "c4", "sync_group", 0, **me, generation_id=1, assignments=given)
    await talk.ask("old beat", "c4", "heartbeat", 0, **me, generation_id=1)
    await talk.ask("old join again", "c4", "join_group", 3, **joining("old", joined.member_id))
    await talk.ask("old leave", "c4", "leave_group", 0, **me)
    late = (await talk.ask("late join", "c5", "join_group", 9, **joining("late"))).member_id
    await talk.ask("late join again", "c5", "join_group", 9, **joining("late", late))
    await asyncio.sleep(7.0)
    me = {"group_id": "late", "member_id": late}
    await talk.ask("beat too late", "c5", "heartbeat", 4, **me, generation_id=1)
    await talk.ask(
        "describe the late", "c5", "describe_groups", 6, groups=["late"],
        include_authorized_operations=False,
    )  # fmt: skip


async def with_a_broker(host: str, port: int) -> list[Any]:
    from fencepost.cluster.base.errors import ErrorCode
    from fencepost.cluster.base.real_env import RealEnv
    from fencepost.cluster.wire.api import ApiKey
    from fencepost.cluster.wire.client import WireClient

    env = RealEnv()
    clients: dict[str, WireClient] = {}

    async def ask(client: str, api: str, version: int, **fields: Any) -> Any:
        if client not in clients:
            clients[client] = WireClient(env, host, port, client_id=client)
        return await clients[client].request(ApiKey[api], version=version, **fields)

    topic = {"name": "t", "num_partitions": 2, "replication_factor": 1}
    await ask("a", "create_topics", 7, topics=[{**topic, "assignments": [], "configs": []}])
    for _ in range(100):
        await ask("a", "find_coordinator", 6, key_type=0, coordinator_keys=["warm"])
        warm = await ask("a", "join_group", 9, **joining("warm"))
        if warm.error_code is ErrorCode.member_id_required:
            break
        await asyncio.sleep(0.2)
    await asyncio.sleep(2)
    talk = Conversation(ask)
    await hold(talk)
    return talk.said


if __name__ == "__main__":
    print(json.dumps(asyncio.run(with_a_broker(sys.argv[1], int(sys.argv[2]))), indent=1))
