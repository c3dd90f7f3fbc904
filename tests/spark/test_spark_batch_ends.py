"""Where a stream's next batch ends: limits, what waits for more, and runs that read what was there when they began."""

from typing import Any

import pytest
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Range, to_json
from fencepost.clients.spark.option_table import STREAM
from fencepost.clients.spark.options import read_options
from told_cluster import Told, available_now, plan, plan_that_waits

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_nothing_new_is_no_batch() -> None:
    stream = plan(Told({}, {A: 10}))
    at = {"@cluster": "me", "t": {"0": 10}}
    assert stream.next_end(at, None) == at


def test_a_new_partition_is_read_from_its_beginning() -> None:
    cluster = Told({}, {A: 10, B: 4})
    stream = plan(cluster)
    start = {"t": {"0": 10}}
    end = stream.next_end(start, None)
    assert stream.ranges(start, end) == [Range("t", 1, 0, 4)]


def test_available_now_ends_at_what_was_there() -> None:
    cluster = Told({}, {A: 10})
    stream = plan(cluster)
    stream.stop_at_what_is_there()
    cluster.last = {A: 50, B: 7}
    once = stream.next_end({"t": {"0": 0}}, 6)
    assert once["t"] == {"0": 6}
    twice = stream.next_end(once, 6)
    assert twice["t"] == {"0": 10}
    assert stream.next_end(twice, 6) == twice


def test_available_now_tells_of_a_topic_that_went_backwards() -> None:
    """Every run would end with success and without a record, and the topic's first thousand never be read."""
    start = {"@cluster": "me", "t": {"0": 1000}}
    with pytest.raises(DataLoss, match=r"t-0 was read up to 1000 and ends at 10 now; was it"):
        available_now(Told({}, {A: 10})).next_end(start, None)


def test_a_topic_that_went_backwards_is_read_on_from_where_it_ended_when_that_was_seen(
    caplog: Any,
) -> None:
    """It would be unread until it has outgrown the old one, and be read from the middle then."""
    cluster = Told({A: 3}, {A: 10, B: 7})
    start = {"@cluster": "me", "t": {"0": 1000, "1": 5}}
    stream = plan_that_waits(cluster, failondataloss="false", minoffsetspertrigger="50")
    end = stream.next_end(start, 1)
    assert end == {"@cluster": "me", "t": {"0": 10, "1": 6}}
    assert stream.ranges(start, end) == [Range("t", 1, 5, 6)]
    assert "What it holds from 3 up to there is not looked at any more" in caplog.text
    cluster.last = {A: 2000, B: 7}
    after = plan(cluster, failondataloss="false").next_end(end, None)
    assert plan(cluster).ranges(end, after) == [Range("t", 0, 10, 2000), Range("t", 1, 6, 7)]


def test_available_now_goes_on_where_a_topic_that_went_backwards_ends() -> None:
    start = {"@cluster": "me", "t": {"0": 1000}}
    stream = available_now(Told({}, {A: 10}), failondataloss="false")
    end = stream.next_end(start, None)
    assert end == {"@cluster": "me", "t": {"0": 10}}
    assert stream.ranges(start, end) == []
    assert stream.next_end(end, None) == end


def test_available_now_tells_of_a_topic_that_was_away_when_it_began() -> None:
    cluster = Told({}, {B: 5})
    stream = available_now(cluster)
    cluster.last = {A: 10, B: 5}
    with pytest.raises(DataLoss, match=r"t-0 was read up to 1000 and ends at 10 now"):
        stream.next_end({"t": {"0": 1000, "1": 5}}, None)


def test_available_now_may_begin_behind_its_target_at_latest() -> None:
    """Spark asks for the first offsets after the target, and records may have come in between."""
    cluster = Told({}, {A: 10})
    stream = available_now(cluster, startingoffsets="latest")
    cluster.last = {A: 12}
    start = stream.initial()
    cluster.last = {A: 50}
    assert stream.next_end(start, None) == start == to_json({A: 12}, "me", begun={A: 12})


def test_too_little_waits_and_not_for_ever() -> None:
    at_s = [0.0]
    stream = plan_that_waits(
        Told({}, {A: 10}), lambda: at_s[0], minoffsetspertrigger="50", maxtriggerdelay="30s"
    )
    start = {"@cluster": "me", "t": {"0": 0}}
    assert stream.next_end(start, None) == start
    at_s[0] = 29.0
    assert stream.next_end(start, None) == start
    at_s[0] = 30.0
    assert stream.next_end(start, None)["t"] == {"0": 10}


def test_a_run_s_first_look_takes_what_is_there_though_it_is_too_little() -> None:
    """Runs that end sooner than `maxTriggerDelay` would read nothing, however many they are. So does Spark's Kafka connector,
    whose last trigger was at 0 (4.2.0)."""
    cluster = Told({}, {A: 10})
    stream = plan(cluster, minoffsetspertrigger="50")
    first = stream.next_end({"@cluster": "me", "t": {"0": 0}}, None)
    assert first["t"] == {"0": 10}
    cluster.last = {A: 20}
    assert stream.next_end(first, None) == first


def test_whoever_asks_for_all_waits_for_no_more() -> None:
    """`Trigger.Once` has one batch."""
    stream = plan_that_waits(Told({}, {A: 10}), minoffsetspertrigger="50")
    start = {"@cluster": "me", "t": {"0": 0}}
    assert stream.next_end(start, None, waits=False)["t"] == {"0": 10}


@pytest.mark.needs("python:pyspark")
@pytest.mark.parametrize("most", [{}, {"maxoffsetspertrigger": "60"}])
def test_a_least_is_a_limit_of_its_own_and_not_that_of_once(most: dict[str, str]) -> None:
    """Spark hands a run with `Trigger.Once` the one that says all; were the default the same, nobody could tell them apart."""
    from fencepost.clients.spark.readers import StreamReader
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    said = {"bootstrap.servers": "here", "subscribe": "t", "minoffsetspertrigger": "50", **most}
    reader = StreamReader(read_options(said, STREAM))
    reader._made = plan_that_waits(Told({}, {A: 10}), minoffsetspertrigger="50")
    start = {"@cluster": "me", "t": {"0": 0}}
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert reader.latestOffset(start, ReadAllAvailable())["t"] == {"0": 10}
