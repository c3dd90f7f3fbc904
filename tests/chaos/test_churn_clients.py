"""Clients of topics that come and go keep apart what is of one life of a name and what is of another."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fencepost.chaos.workloads.churn_clients import LifeReader, _last_last
from fencepost.chaos.workloads.cluster_client import Leader

OLD, NEW = UUID(int=1), UUID(int=2)


def leader(topic_id: UUID) -> Leader:
    wire: Any = None
    return Leader(1, 0, topic_id, wire)


def test_a_reader_goes_on_where_it_was_in_the_topic_that_is_led_there() -> None:
    """A node that lags behind still shows the one before: it is not read again from its beginning."""
    client: Any = SimpleNamespace(name="r")
    reader = LifeReader(client)
    reader.positions["t", 0] = 0
    assert reader.position_at(leader(OLD), "t", 0) == 0
    reader.positions["t", 0] = 7
    assert reader.position_at(leader(NEW), "t", 0) == 0
    reader.positions["t", 0] = 3
    assert reader.position_at(leader(OLD), "t", 0) == 7
    assert reader.position_at(leader(NEW), "t", 0) == 3
    assert reader.key_at(leader(NEW), "t", 0) == f"t@{NEW}-0"


def test_the_topic_that_answered_is_named_last() -> None:
    assert _last_last([]) == []
    assert _last_last([OLD, OLD, NEW]) == [OLD, NEW]
    assert _last_last([OLD, NEW, OLD]) == [NEW, OLD]
