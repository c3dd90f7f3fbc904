"""A member's request to be let in that is read late, by a connection that it gave up: it speaks of a time when the member held nothing."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from sim_node import NODE, PORT, SimNode

E = ErrorCode
TOPIC = "t"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="late joins")
    node.start()
    node.create_topic(TOPIC, partitions=2)
    node.ask(ApiKey.find_coordinator, 3, key="g", key_type=0)
    node.sleep(1.0)
    yield node
    node.close()


@pytest.fixture
def wires(node: SimNode) -> Iterator[list[WireClient]]:
    """The one that was given up, the one that is used instead, and that of somebody else: opened in this order."""
    wires = [WireClient(node.env, NODE, PORT, client_id="c") for _ in "abc"]
    for wire in wires:
        node.run(partial(wire.request, ApiKey.api_versions))
    yield wires
    for wire in wires:
        node.run(wire.close)


def beat(node: SimNode, wire: WireClient, member_id: str, epoch: int, **said: Any) -> Any:
    joins = epoch == 0
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": timedelta(milliseconds=60_000 if joins else -1),
        "subscribed_topic_names": [TOPIC] if joins else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [] if joins else None,
        **said,
    }
    return node.run(partial(wire.request, ApiKey.consumer_group_heartbeat, 1, **fields))


def given(reply: Any) -> list[int]:
    rows = () if reply.assignment is None else reply.assignment.topic_partitions
    return [partition for row in rows for partition in row.partitions]


def test_a_late_join_does_not_give_up_what_its_member_has_been_given_since(
    node: SimNode, wires: list[WireClient]
) -> None:
    """It names no partitions, so that what `a` was told to give up, and still read, was another's at once."""
    given_up, now, other = wires
    first = beat(node, now, "a", 0)
    assert (first.error_code, given(first)) == (E.none, [0, 1])
    node.sleep(2.0)  # past the assignment interval
    assert given(beat(node, other, "b", 0)) == []
    told = beat(node, now, "a", first.member_epoch)
    assert len(given(told)) == 1, "it is to give up the other one, and has not yet"
    assert beat(node, given_up, "a", 0).error_code is E.not_coordinator
    assert given(beat(node, other, "b", 0)) == []
    kept = [{"topic_id": told.assignment.topic_partitions[0].topic_id, "partitions": given(told)}]
    done = beat(node, now, "a", told.member_epoch, topic_partitions=kept)
    assert (done.error_code, done.member_epoch > told.member_epoch) == (E.none, True)
    assert len(given(beat(node, other, "b", 0))) == 1


def test_a_member_that_joins_again_by_an_older_connection_is_let_in(
    node: SimNode, wires: list[WireClient]
) -> None:
    older, now, _ = wires
    assert beat(node, now, "a", 0).error_code is E.none
    assert [beat(node, older, "a", 0).error_code for _ in range(2)] == [E.not_coordinator, E.none]


def join(node: SimNode, wire: WireClient, member_id: str = "", version: int = 5) -> Any:
    fields = {
        "group_id": "g",
        "session_timeout": timedelta(seconds=45),
        "rebalance_timeout": timedelta(seconds=60),
        "member_id": member_id,
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    if version >= 8:
        fields["reason"] = None
    return node.run(partial(wire.request, ApiKey.join_group, version, **fields))


@pytest.mark.parametrize("version", [5, 9])
def test_a_late_join_of_a_static_member_does_not_fence_the_one_that_lives(
    node: SimNode, wires: list[WireClient], version: int
) -> None:
    """FENCED_INSTANCE_ID ends its consumer for good, and what it had is read by nobody until a session is over."""
    given_up, now, _ = wires
    joined = join(node, now, version=version)
    assert joined.error_code is E.none
    assert join(node, given_up, version=version).error_code is E.not_coordinator
    alive = node.run(
        partial(
            now.request,
            ApiKey.heartbeat,
            3,
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
        )
    )
    assert alive.error_code is E.none
