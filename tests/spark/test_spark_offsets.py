"""Ranges, limits and the plan of a stream, without Spark and without brokers."""

from typing import Any

import pytest
from fencepost.clients.spark.cluster import Cluster
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import (
    Offsets,
    Place,
    Range,
    admitted,
    distance,
    from_json,
    ranges_between,
    split,
    to_json,
)
from fencepost.clients.spark.option_table import BATCH, STREAM
from fencepost.clients.spark.options import Bound, read_options
from fencepost.clients.spark.progress import Lag, lag_of
from fencepost.clients.spark.reading import (
    AnotherCluster,
    OffsetOutOfRange,
    StreamPlan,
    batch_ranges,
)
from fencepost.cluster.base import ids
from hypothesis import given
from hypothesis import strategies as st
from told_cluster import Told, plan

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_offsets_are_written_as_sparks_kafka_connector_does() -> None:
    table = {"@cluster": "me", "t": {"0": 5, "1": 7}, "u": {"0": 0}}
    assert to_json({A: 5, B: 7, C: 0}, "me") == table
    assert from_json(table) == {A: 5, B: 7, C: 0}
    begun = to_json({A: 5, B: 7, C: 0}, "me", begun={A: 2})
    assert begun == {**table, "@begun": {"t": {"0": 2}}}
    assert from_json(begun) == from_json(table)


def test_a_limit_is_shared_by_size_and_starves_nobody() -> None:
    start, end = {A: 0, B: 0, C: 0}, {A: 1000, B: 100, C: 1}
    assert admitted(start, end, 110) == {A: 99, B: 9, C: 1}
    assert admitted(start, end, 2000) == end


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5000)), min_size=1, max_size=6),
    st.integers(1, 3000),
)
def test_a_limit_makes_progress_and_is_kept_to_a_record_a_partition(
    sizes: list[tuple[int, int]], most: int
) -> None:
    start = {("t", n): first for n, (first, _) in enumerate(sizes)}
    end = {("t", n): first + size for n, (first, size) in enumerate(sizes)}
    until = admitted(start, end, most)
    assert all(start[place] <= until[place] <= end[place] for place in end)
    taken = distance(start, until)
    assert taken <= most + len(sizes)
    assert taken > 0 or distance(start, end) == 0


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_ranges_that_are_split_cover_the_same_offsets_once(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    ranges = ranges_between(
        {("t", n): 10 for n in range(len(sizes))},
        {("t", n): 10 + size for n, size in enumerate(sizes)},
    )
    pieces = split(ranges, least, most)
    seen = [(p.partition, offset) for p in pieces for offset in range(p.start, p.end)]
    assert seen == [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert all(each.size > 0 and (most is None or each.size <= most) for each in pieces)


def test_a_large_range_is_split_and_a_small_one_is_not() -> None:
    ranges = [Range("t", 0, 0, 900), Range("t", 1, 0, 10)]
    assert split(ranges, 4) == [
        Range("t", 0, 0, 300),
        Range("t", 0, 300, 600),
        Range("t", 0, 600, 900),
        Range("t", 1, 0, 10),
    ]


@pytest.mark.parametrize("said", ["earliest", "latest"])
def test_a_plan_follows_from_its_two_offsets(said: str) -> None:
    """Of the first batch Spark keeps the end alone, and asks for its start again: in each run, and twice in the first."""
    cluster = Told({A: 1}, {A: 10, B: 5})
    stream = plan(cluster)
    start = stream.initial()
    end = stream.next_end(start, 9)
    first = stream.ranges(start, end)
    assert first == [Range("t", 0, 1, 6), Range("t", 1, 0, 3)]
    cluster.last = {A: 1000, B: 2000, C: 3}
    for again in (stream, plan(cluster, startingoffsets=said)):
        assert again.ranges(plan(cluster, startingoffsets=said).initial(), end) == first


def test_what_aged_out_before_the_first_batch_was_done_is_told() -> None:
    """1. It was noted with its end. 2. The driver died. 3. Retention. A start that is asked for again hides what is gone."""
    cluster = Told({A: 100}, {A: 200, B: 5})
    stream = plan(cluster)
    end = stream.next_end(stream.initial(), None)
    cluster.first = {A: 150}
    strict, lax = plan(cluster), plan(cluster, failondataloss="false")
    with pytest.raises(
        DataLoss,
        match=r"t-0\[100,200\) was to be read by a batch .* the partition begins at 150 now",
    ):
        strict.ranges(strict.initial(), end)
    assert lax.ranges(lax.initial(), end) == [Range("t", 0, 150, 200), Range("t", 1, 0, 5)]
    cluster.first, cluster.last = {A: 300}, {A: 300, B: 5}
    assert lax.ranges(lax.initial(), end) == [Range("t", 1, 0, 5)]
    cluster.last = {B: 5}
    assert lax.ranges(lax.initial(), end) == [Range("t", 0, 100, 200), Range("t", 1, 0, 5)], (
        "its task says that it is gone"
    )


def test_a_first_batch_is_done_again_though_its_start_can_not_be_asked_for_any_more() -> None:
    """1. It was noted with its end. 2. The driver died. 3. What the options say can't be resolved now: the topic has grown, or
    what they name has aged out. The batch's own end has the answer."""
    named = '{"t":{"0":3}}'
    cluster = Told({}, {A: 10})
    stream = plan(cluster, startingoffsets=named)
    start = stream.start()
    end = stream.next_end(start, 4)
    first = stream.ranges(start, end)
    assert first == [Range("t", 0, 3, 7)]
    cluster.last = {A: 10, B: 5}
    again = plan(cluster, startingoffsets=named)
    assert again.ranges(again.start(), end) == first
    assert again.next_end(end, None)["t"] == {"0": 10, "1": 5}
    cluster.first, cluster.last = {A: 5}, {A: 10}
    strict, lax = plan(cluster, startingoffsets=named), plan(cluster, failondataloss="false")
    with pytest.raises(DataLoss, match=r"t-0\[3,7\) was to be read by a batch that was planned"):
        strict.ranges(strict.start(), end)
    assert lax.ranges(lax.start(), end) == [Range("t", 0, 5, 7)]


def test_a_start_that_can_not_be_resolved_ends_a_query_that_has_no_batch_yet() -> None:
    stream = plan(Told({}, {A: 10}), startingoffsets='{"t":{"0":12}}')
    start = stream.start()
    of_an_older_build = {"@cluster": "me", "t": {"0": 10}}
    for ask in (
        lambda: stream.next_end(start, None),
        lambda: stream.ranges(start, of_an_older_build),
        lambda: plan(Told({}, {A: 10})).next_end(start, None),  # by another process
    ):
        with pytest.raises(OffsetOutOfRange, match=r"asks for 12, .* ends at 10 now"):
            ask()


def test_where_a_new_partition_began_is_kept_too() -> None:
    cluster, start = Told({B: 3}, {A: 10, B: 9}), {"t": {"0": 10}}
    lax = plan(cluster, failondataloss="false")
    end = lax.next_end(start, None)
    assert end == to_json({A: 10, B: 9}, "me", begun={B: 3})
    assert lax.ranges(start, end) == [Range("t", 1, 3, 9)]
    cluster.first = {B: 5}
    with pytest.raises(DataLoss, match=r"t-1\[3,9\) was to be read by a batch"):
        plan(cluster).ranges(start, end)


def test_only_an_end_whose_start_nobody_else_keeps_says_where_it_began() -> None:
    cluster = Told({}, {A: 0})
    stream = plan(cluster)
    start = stream.initial()
    assert start == to_json({A: 0}, "me", begun={A: 0})
    assert stream.next_end(start, None) == start, "the first batch may have nothing in it"
    cluster.last = {A: 4}
    first = stream.next_end(start, None)
    assert first == to_json({A: 4}, "me", begun={A: 0})
    assert stream.next_end(first, None) == first, "another end would be another batch"
    cluster.last = {A: 6}
    second = stream.next_end(first, None)
    assert second == to_json({A: 6}, "me")
    assert stream.ranges(first, second) == [Range("t", 0, 4, 6)]


def test_an_offset_that_is_not_there_yet_is_told_before_anybody_waits_for_it() -> None:
    cluster, said = Told({A: 4}, {A: 10}), {"bootstrap.servers": "here", "subscribe": "t"}
    later = read_options({**said, "endingoffsets": '{"t":{"0":11}}'}, BATCH)
    with pytest.raises(OffsetOutOfRange, match=r"endingOffsets asks for 11, .* ends at 10 now"):
        batch_ranges(cluster, later)
    with pytest.raises(OffsetOutOfRange, match=r"startingOffsets asks for 12, .* ends at 10 now"):
        plan(cluster, startingoffsets='{"t":{"0":12}}').initial()
    with pytest.raises(DataLoss, match="offset 3 was asked for, and the partition begins at 4"):
        plan(cluster, startingoffsets='{"t":{"0":3}}').initial()
    lax = plan(cluster, startingoffsets='{"t":{"0":3}}', failondataloss="false")
    assert lax.initial()["t"] == {"0": 4}


def test_a_query_s_lag_is_what_it_has_not_read_yet() -> None:
    one = {
        "endOffset": '{"@cluster":"me","t":{"0":5,"1":7}}',
        "latestOffset": '{"@cluster":"me","t":{"0":9,"1":7,"2":3}}',
    }
    rate = {"endOffset": "17", "latestOffset": "20"}
    assert lag_of({"sources": [one, rate]}) == [
        Lag(total=7, most=4, by_partition={A: 4, B: 0, ("t", 2): 3})
    ]


def test_a_source_that_does_not_say_where_it_ends_has_no_lag() -> None:
    """A rate source among ours; Java's null is the text "None" in PySpark's objects."""
    ours = {"endOffset": '{"t":{"0":5}}', "latestOffset": '{"t":{"0":9}}'}
    for silent in ("None", None, "null", "", "[1]"):
        rate = {"endOffset": "17", "latestOffset": silent}
        begins = {"endOffset": silent, "latestOffset": '{"t":{"0":9}}'}
        assert lag_of({"sources": [rate, ours, begins]}) == [
            Lag(total=4, most=4, by_partition={A: 4})
        ]


def test_a_checkpoint_of_another_cluster_is_refused_with_its_name() -> None:
    with pytest.raises(
        AnotherCluster, match="checkpoint is of cluster other, and here is cluster me"
    ):
        plan(Told({}, {A: 10})).next_end({"@cluster": "other", "t": {"0": 3}}, None)
    with pytest.raises(AnotherCluster, match="checkpoint is of cluster other"):
        plan(Told({}, {A: 10})).ranges(
            {"@cluster": "me", "t": {"0": 0}}, {"@cluster": "other", "t": {"0": 500}}
        )
    stream = plan(Told({}, {A: 10}), checkclusterid="false")
    assert stream.next_end({"@cluster": "other", "t": {"0": 3}}, None)["t"] == {"0": 10}


@pytest.mark.parametrize(
    ("first", "last", "start", "sentence"),
    [
        ({}, {A: 10}, {"t": {"0": 1, "1": 4}}, "t-1 was read up to 4 and is not there any more"),
        ({}, {A: 10}, {"t": {"0": 12}}, "t-0 was read up to 12 and ends at 10 now"),
        ({B: 3}, {A: 10, B: 5}, {"t": {"0": 1}}, "t-1 is new to this query and begins at 3"),
    ],
)
def test_what_is_gone_fails_the_query_or_is_skipped(
    first: Offsets, last: Offsets, start: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataLoss, match=sentence):
        plan(Told(first, last)).next_end(start, None)
    plan(Told(first, last), failondataloss="false").next_end(start, None)


def test_a_pattern_that_meant_internal_topics_once_goes_on_without_them() -> None:
    """Older builds took them for its topics: they are in the checkpoint."""
    said = {"bootstrap.servers": "here", "subscribepattern": ".*", "startingoffsets": "earliest"}
    stream = StreamPlan(Told({}, {A: 10}), read_options(said, STREAM))
    start = {"__transaction_state": {"4": 20}, "t": {"0": 1}}
    assert stream.next_end(start, None)["t"] == {"0": 10}
    with pytest.raises(DataLoss, match="u-0 was read up to 4 and is not there any more"):
        stream.next_end({**start, "u": {"0": 4}}, None)


@pytest.mark.parametrize(
    ("said", "topics"),
    [
        ({"subscribepattern": ".*"}, {"mine", "__mine"}),
        ({"subscribe": "mine,__transaction_state"}, {"mine", "__transaction_state"}),
        ({"assign": '{"__consumer_offsets": [0]}'}, {"__consumer_offsets"}),
    ],
)
def test_a_pattern_means_no_internal_topics_and_a_name_does(
    monkeypatch: Any, said: dict[str, str], topics: set[str]
) -> None:
    """As Kafka's own consumers have it. '.*' would write what a query reads as it writes, for ever."""
    there = {each: [0] for each in {"mine", "__mine"} | ids.INTERNAL_TOPICS}
    monkeypatch.setattr(Cluster, "_topics", lambda *_, **__: there)
    options = read_options({"bootstrap.servers": "127.0.0.1:1", **said}, STREAM)
    assert {topic for topic, _ in Cluster(options).places()} == topics


def test_a_batch_from_before_the_beginning_fails_or_is_cut() -> None:
    class Old(Told):
        def resolve(self, side: str, bound: Bound, places: list[Place]) -> Offsets:
            return dict.fromkeys(places, 0) if bound.everywhere == -2 else self.ends(places)

    said = {"bootstrap.servers": "here", "subscribe": "t"}
    with pytest.raises(DataLoss, match="offset 0 was asked for, and the partition begins at 4"):
        batch_ranges(Old({A: 4}, {A: 10}), read_options(said, BATCH))
    lax = read_options({**said, "failondataloss": "false"}, BATCH)
    assert batch_ranges(Old({A: 4}, {A: 10}), lax) == [Range("t", 0, 4, 10)]
