"""aiokafka#844: offsets in a transaction whose client can't say of which generation of its group it is.

After a rebalance in the middle of it somebody else reads the partition, too, and both would store positions.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from sim_node import NODE, SimNode
from txn_talk import TOPIC, Producer, Talk

E = ErrorCode


@pytest.fixture
def talk() -> Iterator[Talk]:
    one = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    node = SimNode(seed="generations", **one)
    node.start()
    node.create_topic(TOPIC, 2)
    talk = Talk(node)
    for kind in (0, 1):
        talk.until(lambda kind=kind: found(talk, kind))  # type: ignore[misc]
    yield talk
    node.close()


def found(talk: Talk, kind: int) -> bool:
    reply = talk.node.ask(ApiKey.find_coordinator, 3, key="g", key_type=kind)
    return bool(reply.error_code is E.none)


def a_generation_begins(talk: Talk, member_id: str = "") -> Any:
    """One member joins and is settled."""
    protocol = {"name": "range", "metadata": b""}
    joined = talk.node.ask(
        ApiKey.join_group,
        3,
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    assert joined.error_code is E.none
    synced = talk.node.ask(
        ApiKey.sync_group,
        3,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[{"member_id": joined.member_id, "assignment": b""}],
    )
    assert synced.error_code is E.none
    talk.node.sleep(0.01)
    return joined


def begin(talk: Talk) -> Producer:
    who = talk.begun("begin", "pay")
    talk.add_offsets("add offsets", who, 0)
    talk.node.sleep(0.01)
    return who


def stored(talk: Talk, label: str, who: Producer, version: int) -> ErrorCode:
    reply = talk.commit_offset(label, who, version)
    code: ErrorCode = reply.topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_a_transaction_that_is_older_than_the_generation_are_fenced(
    talk: Talk, version: int
) -> None:
    who = begin(talk)
    assert stored(talk, "before anybody joins", who, version) is E.none
    a_generation_begins(talk)
    assert stored(talk, "after", who, version) is E.invalid_producer_epoch


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_a_transaction_that_began_in_the_generation_are_stored(
    talk: Talk, version: int
) -> None:
    member = a_generation_begins(talk)
    who = begin(talk)
    assert stored(talk, "in it", who, version) is E.none
    a_generation_begins(talk, member.member_id)
    talk.node.sleep(0.01)
    assert stored(talk, "in the next", who, version) is E.invalid_producer_epoch


@pytest.mark.parametrize("version", [2, 3])
def test_whoever_is_fenced_by_transactional_id_or_could_say_its_generation_is_heard(
    talk: Talk, version: int
) -> None:
    who = begin(talk)
    a_generation_begins(talk)
    assert stored(talk, "after", who, version) is E.none


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000], ids=["back", "ahead"])
def test_a_clock_that_is_set_fences_nobody_and_lets_nobody_in(talk: Talk, jump_ms: int) -> None:
    """Set back by an hour it fenced everybody for that hour; set ahead, between two generations, it took what is old for new."""
    wall = talk.node.world.machine(NODE).wall
    member = a_generation_begins(talk)
    wall.jump(jump_ms)
    who = begin(talk)
    assert stored(talk, "in it", who, 1) is E.none
    wall.jump(-jump_ms)
    a_generation_begins(talk, member.member_id)
    wall.jump(2 * jump_ms)
    assert stored(talk, "in the next", who, 1) is E.invalid_producer_epoch


def test_who_began_in_the_generation_is_not_fenced_when_its_coordinators_begin_anew(
    talk: Talk,
) -> None:
    a_generation_begins(talk)
    who = begin(talk)
    talk.node.world.kill(NODE)
    talk.node.start()
    for kind in (0, 1):
        talk.until(lambda kind=kind: found(talk, kind))  # type: ignore[misc]
    assert stored(talk, "after", who, 1) is E.none
