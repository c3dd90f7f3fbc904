"""A topic that was deleted and made anew is another topic: its old offsets mean nothing there."""

from typing import Any

import pytest
from fencepost.clients.spark.cluster import Cluster
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Range, from_json, to_json
from fencepost.clients.spark.option_table import STREAM
from fencepost.clients.spark.options import read_options
from fencepost.clients.spark.reading import StreamPlan
from spark_topics import Served
from told_cluster import Told, available_now, plan, plan_that_waits

A, B, C = ("t", 0), ("t", 1), ("u", 0)
START = {"@cluster": "me", "@topics": {"t": "old"}, "t": {"0": 5}}


def test_a_stream_s_offsets_say_which_topics_they_are_of() -> None:
    table = {"@cluster": "me", "@topics": {"t": "x", "u": "y"}, "t": {"0": 5}, "u": {"0": 0}}
    assert to_json({A: 5, C: 0}, "me", {"u": "y", "t": "x", "of no offset": "z"}) == table
    assert from_json(table) == {A: 5, C: 0}
    assert plan(Told({}, {A: 5, C: 0}, t="x", u="y")).initial()["@topics"] == table["@topics"]


def test_a_topic_made_anew_that_has_outgrown_its_offset_is_told() -> None:
    """Nothing else shows it: the new one has an offset 5, too, and other records before it."""
    with pytest.raises(
        DataLoss,
        match=r"the topic t was deleted and created again: .* with the id old, and t has the id new now\. .*"
        "Start a new query .* or say failOnDataLoss=false to read the new topic from its beginning",
    ):
        plan(Told({}, {A: 9}, t="new")).next_end(START, None)


def test_a_topic_made_anew_is_read_from_its_beginning_if_that_was_asked_for(caplog: Any) -> None:
    cluster = Told({A: 1}, {A: 9, C: 3}, t="new", u="same")
    start = {**START, "@topics": {"t": "old", "u": "same"}, "u": {"0": 2}, "t": {"0": 5, "1": 70}}
    stream = plan(cluster, failondataloss="false")
    end = stream.next_end(start, None)
    assert end == to_json({A: 9, C: 3}, "me", {"t": "new", "u": "same"}, begun={A: 1})
    assert stream.ranges(start, end) == [Range("t", 0, 1, 9), Range("u", 0, 2, 3)]
    assert "failOnDataLoss=false: reading the new topic from its beginning" in caplog.text
    # The next one goes on there: also in the partition that the old one had, and the new one has later.
    cluster.last |= {A: 12, B: 80}
    after = stream.next_end(end, None)
    assert stream.ranges(end, after) == [Range("t", 0, 9, 12), Range("t", 1, 0, 80)]


def test_a_shorter_topic_made_anew_is_read_from_its_beginning_too() -> None:
    lax = {"failondataloss": "false", "minoffsetspertrigger": "50"}
    stream = plan_that_waits(Told({}, {A: 4}, t="new"), **lax)
    end = stream.next_end(START, 3)
    assert stream.ranges(START, end) == [Range("t", 0, 0, 3)]


def test_a_topic_that_lost_its_last_records_is_not_taken_for_a_new_one() -> None:
    cluster = Told({}, {A: 4}, t="old")
    with pytest.raises(DataLoss, match="t-0 was read up to 5 and ends at 4 now; its last records"):
        plan(cluster).next_end(START, None)
    assert plan(cluster, failondataloss="false").next_end(START, None)["t"] == {"0": 4}


def test_available_now_reads_a_topic_made_anew_to_its_end_and_ends() -> None:
    for last in (3, 9):
        cluster = Told({}, {A: last}, t="new")
        stream = available_now(cluster, failondataloss="false")
        end = stream.next_end(START, None)
        assert stream.ranges(START, end) == [Range("t", 0, 0, last)]
        assert stream.next_end(end, None) == end


def test_offsets_of_an_older_build_get_ids_at_the_next_batch() -> None:
    cluster = Told({}, {A: 5}, t="new")
    start = {"@cluster": "me", "t": {"0": 5}}
    stream = plan(cluster)
    assert stream.next_end(start, None) == start, "no batch"
    cluster.last = {A: 6}
    end = stream.next_end(start, None)
    assert end == {"@cluster": "me", "@topics": {"t": "new"}, "t": {"0": 6}}
    assert stream.ranges(start, end) == [Range("t", 0, 5, 6)]


def test_brokers_without_ids_are_read_and_what_is_known_is_kept() -> None:
    stream = plan(Told({}, {A: 9}))
    end = stream.next_end(START, None)
    assert end == {**START, "t": {"0": 9}}
    assert stream.ranges(START, end) == [Range("t", 0, 5, 9)]


def test_the_ids_of_another_cluster_say_nothing_where_topics_were_copied() -> None:
    stream = plan(Told({}, {A: 9}, t="copy"), checkclusterid="false")
    start = {**START, "@cluster": "other"}
    end = stream.next_end(start, None)
    assert end == {"@cluster": "me", "@topics": {"t": "copy"}, "t": {"0": 9}}
    assert stream.ranges(start, end) == [Range("t", 0, 5, 9)]


def test_ids_are_asked_for_once_a_batch_and_not_where_there_is_none() -> None:
    cluster = Told({}, {A: 5}, t="old")
    stream = plan(cluster)
    for _ in range(3):
        assert stream.next_end(START, None) == START
    assert cluster.asked_for_ids == 0
    cluster.last = {A: 9}
    stream.ranges(START, stream.next_end(START, None))
    assert cluster.asked_for_ids == 1


def test_a_batch_that_is_planned_again_has_nothing_of_a_topic_made_anew_meanwhile() -> None:
    """The driver died before the batch was done, and its offsets are of a topic that is no more."""
    end = {**START, "t": {"0": 9}, "u": {"0": 3}}
    start = {**START, "u": {"0": 0}}
    cluster = Told({}, {A: 20, C: 3}, t="new")
    with pytest.raises(DataLoss, match="the topic t was deleted and created again"):
        plan(cluster).ranges(start, end)
    lax = plan(cluster, failondataloss="false")
    assert lax.ranges(start, end) == [Range("u", 0, 0, 3)]
    after = lax.next_end(end, None)
    assert lax.ranges(end, after) == [Range("t", 0, 0, 20)]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_node_says_of_a_topic_made_anew_that_it_is_another_one(node: Served, topic: str) -> None:
    def stream(**said: str) -> StreamPlan:
        given = {**node.reading, "subscribe": topic, "startingoffsets": "earliest", **said}
        options = read_options(given, STREAM)
        return StreamPlan(Cluster(options), options)

    node.write(topic, ["a", "b"])
    strict = stream()
    start = strict.initial()
    end = strict.next_end(start, None)
    assert (start["@topics"], end[topic]) == (end["@topics"], {"0": 2, "1": 0})
    node.delete(topic)
    node.create(topic, partitions=2)
    node.write(topic, list("cdef"))
    with pytest.raises(DataLoss, match=f"the topic {topic} was deleted and created again"):
        strict.next_end(end, None)
    lax = stream(failondataloss="false")
    after = lax.next_end(end, None)
    assert lax.ranges(end, after) == [Range(topic, 0, 0, 4)]
    assert after["@topics"].keys() == {topic} and after["@topics"] != end["@topics"]
    options = read_options({**node.reading, "subscribe": topic}, STREAM)
    assert Cluster(options).topic_ids([topic, "nowhere"]) == after["@topics"]
