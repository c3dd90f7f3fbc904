"""A member's OffsetCommit that is read late, by a connection that it gave up, behind one that was acknowledged meanwhile."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.heard_over import COMMITS_ALIVE_AFTER_S
from sim_node import NODE, PORT, SimNode
from test_late_positions import fetched
from txn_talk import TOPIC, Talk

E = ErrorCode
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


@pytest.fixture
def talk() -> Iterator[Talk]:
    node = SimNode(seed="late commits")
    node.start()
    node.create_topic(TOPIC)
    node.ask(ApiKey.find_coordinator, 3, key="g", key_type=0)
    node.sleep(1.0)
    yield Talk(node)
    node.close()


class Member:
    """The only one of its group, by a connection of the caller's choice."""

    def __init__(self, talk: Talk, wire: WireClient) -> None:
        self.talk = talk
        self.member_id = ""
        self.member_id = self._join(wire).member_id
        joined = self._join(wire)
        assert joined.error_code is E.none
        self.generation = joined.generation_id
        synced = self._ask(
            wire,
            ApiKey.sync_group,
            3,
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            assignments=[{"member_id": self.member_id, "assignment": b"x"}],
        )
        assert synced.error_code is E.none

    def _ask(self, wire: WireClient, key: ApiKey, version: int, **fields: Any) -> Any:
        return self.talk.node.run(partial(wire.request, key, version, **fields))

    def _join(self, wire: WireClient) -> Any:
        return self._ask(
            wire,
            ApiKey.join_group,
            5,
            group_id="g",
            session_timeout=timedelta(seconds=45),
            rebalance_timeout=timedelta(seconds=60),
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
        )

    def commit(self, wire: WireClient, offset: int) -> ErrorCode:
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        reply = self._ask(
            wire,
            ApiKey.offset_commit,
            7,
            group_id="g",
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            topics=[{"name": TOPIC, "partitions": [row]}],
        )
        return ErrorCode(reply.topics[0].partitions[0].error_code)


def test_a_late_commit_by_a_connection_that_was_given_up_does_not_set_the_group_back(
    talk: Talk,
) -> None:
    one, two, now = (WireClient(talk.node.env, NODE, PORT, client_id="c") for _ in "abc")
    for given_up in (one, two):
        talk.node.run(partial(given_up.request, ApiKey.api_versions))
    member = Member(talk, now)
    # 100 was sent by `one`, which was slow, again by `two`, which was too, and 200 is acknowledged.
    assert member.commit(now, 200) is E.none
    assert [member.commit(wire, 100) for wire in (one, two)] == [E.not_coordinator] * 2
    assert fetched(talk) == 200
    assert member.commit(now, 300) is E.none
    assert fetched(talk) == 300
    for wire in (one, two, now):
        talk.node.run(wire.close)


def test_what_was_sent_behind_the_other_by_a_connection_that_was_given_up_is_late_too(
    talk: Talk,
) -> None:
    """Positions are committed without waiting for answers: more than one may lie in it."""
    given_up, now = (WireClient(talk.node.env, NODE, PORT, client_id="c") for _ in "ab")
    talk.node.run(partial(given_up.request, ApiKey.api_versions))
    member = Member(talk, now)
    assert member.commit(now, 200) is E.none
    assert [member.commit(given_up, each) for each in (100, 110, 120)] == [E.not_coordinator] * 3
    assert fetched(talk) == 200
    for wire in (given_up, now):
        talk.node.run(wire.close)


def test_a_member_that_goes_on_by_an_older_connection_is_heard_in_the_end(talk: Talk) -> None:
    one, now = (WireClient(talk.node.env, NODE, PORT, client_id="c") for _ in "ab")
    talk.node.run(partial(one.request, ApiKey.api_versions))
    member = Member(talk, now)
    assert member.commit(now, 200) is E.none
    assert member.commit(one, 250) is E.not_coordinator
    talk.node.sleep(COMMITS_ALIVE_AFTER_S)
    assert member.commit(one, 250) is E.none
    assert fetched(talk) == 250
    for wire in (one, now):
        talk.node.run(wire.close)
