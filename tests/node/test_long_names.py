"""What is remembered of who came takes as little of the memory however long the names are that it came with."""

import tracemalloc
from collections.abc import Iterator

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.topic_names import TOPIC_NAME_LENGTH_MAX
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.heard_over import HeardOver
from sim_node import SimNode

E = ErrorCode
NAMED = 12  # the last version of Fetch that names topics
LONGEST = 32_000  # that a request may hold
WHOEVER = 100


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(seed="long names")
    node.start()
    yield node
    node.close()


def fetch(node: SimNode, length: int) -> tuple[int, list[ErrorCode]]:
    """The session, and the answer for a topic whose name is so long."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    reply = node.ask(
        ApiKey.fetch,
        NAMED,
        max_wait=0,
        max_bytes=1,
        session_epoch=0,
        topics=[{"topic": "x" * length, "partitions": [wanted]}],
    )
    return reply.session_id, [row.error_code for row in reply.responses[0].partitions]


def test_there_is_no_fetch_session_for_a_name_that_no_topic_can_have(node: SimNode) -> None:
    """A session keeps its names: 3,000 that fill a request were 100 MB, and there may be 1,000 sessions."""
    session_id, codes = fetch(node, TOPIC_NAME_LENGTH_MAX)
    assert (session_id != 0, codes) == (True, [E.unknown_topic_or_partition])
    session_id, codes = fetch(node, TOPIC_NAME_LENGTH_MAX + 1)
    assert (session_id, codes) == (0, [E.unknown_topic_or_partition])


def test_nor_does_a_session_take_one_in_later(node: SimNode) -> None:
    session_id, _ = fetch(node, 3)
    before = node.broker.services.fetch_sessions.partition_count
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    node.ask(
        ApiKey.fetch,
        NAMED,
        max_wait=0,
        max_bytes=1,
        session_id=session_id,
        session_epoch=1,
        topics=[{"topic": "x" * LONGEST, "partitions": [wanted]}],
    )
    assert node.broker.services.fetch_sessions.partition_count == before


def test_who_was_heard_of_takes_as_much_whatever_his_name_is() -> None:
    """A group's, a member's and an instance's: 10,000 of each kind that is remembered were 1.6 GB."""
    heard = HeardOver()
    tracemalloc.start()
    try:
        for number in range(WHOEVER):
            heard.is_late((f"{number}" + "g" * LONGEST, None, f"{number}" + "m" * LONGEST), 5)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < WHOEVER * LONGEST
    assert heard.is_late(("7" + "g" * LONGEST, None, "7" + "m" * LONGEST), 4)
