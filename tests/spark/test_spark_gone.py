"""What goes while a query looks at it, or went and stays away: told, told once, and no reason to end by itself. No brokers."""

from typing import Any

import pytest
from fencepost.clients.spark.cluster import Cluster, Vanished, WrongTopic
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import NotOurs, Offsets, Place, Range
from fencepost.clients.spark.option_table import BATCH, STREAM
from fencepost.clients.spark.options import Bound, ReadOptions, read_options
from fencepost.clients.spark.reading import StreamPlan, batch_ranges
from told_cluster import Told, plan, plan_that_waits

A, B, C = ("t", 0), ("t", 1), ("u", 0)
LOOKS = 100  # Spark's in a second, of a query that has nothing to do


class Deleting(Told):
    """The topic u is deleted when its offsets are asked for, having been listed."""

    def _asked(self, places: Any) -> None:
        if C in set(places):
            self.last.pop(C, None)
            raise Vanished("u-0 is not there any more: was it deleted?")

    def starts(self, places: Any) -> Offsets:
        self._asked(places)
        return super().starts(places)

    def ends(self, places: Any, *more: Any) -> Offsets:
        self._asked(places)
        return super().ends(places, *more)


def of_a_pattern(use: str, **said: str) -> ReadOptions:
    given = {"bootstrap.servers": "here", "subscribepattern": ".*", **said}
    return read_options(given, use)


def test_a_topic_of_a_pattern_that_goes_while_a_batch_is_planned_is_a_topic_that_went() -> None:
    start = {"@cluster": "me", "t": {"0": 4}, "u": {"0": 2}}
    cluster = Deleting({}, {A: 9, C: 5})
    with pytest.raises(DataLoss, match="u-0 was read up to 2 and is not there any more"):
        StreamPlan(cluster, of_a_pattern(STREAM)).next_end(start, None)
    cluster = Deleting({}, {A: 9, C: 5})
    stream = StreamPlan(cluster, of_a_pattern(STREAM, failondataloss="false"))
    end = stream.next_end(start, None)
    assert end == {"@cluster": "me", "t": {"0": 9}, "u": {"0": 2}}
    assert stream.ranges(start, end) == [Range("t", 0, 4, 9)]


def test_what_goes_while_a_query_or_a_batch_read_begins_is_not_in_it() -> None:
    stream = StreamPlan(Deleting({}, {A: 9, C: 5}), of_a_pattern(STREAM))
    assert stream.initial()["t"] == {"0": 9}
    stream = StreamPlan(Deleting({}, {A: 9, C: 5}), of_a_pattern(STREAM))
    stream.stop_at_what_is_there()
    assert stream.next_end({"t": {"0": 4}}, None)["t"] == {"0": 9}
    assert batch_ranges(Deleting({}, {A: 9, C: 5}), of_a_pattern(BATCH)) == [Range("t", 0, 0, 9)]


def test_what_is_gone_for_good_is_told_once_and_not_at_each_look(caplog: Any) -> None:
    """A log of a gigabyte a day, of a query that has been told that it goes on."""
    stream = plan(Told({}, {A: 10}), failondataloss="false")
    start = {"@cluster": "me", "t": {"0": 10, "1": 4, "2": 5}}
    for _ in range(LOOKS):
        assert stream.next_end(start, None) == start
    told = [each.getMessage() for each in caplog.records]
    assert len(told) == 2, "each partition"
    assert "t-1 was read up to 4 and is not there" in told[0]
    assert "t-2 was read up to 5 and is not there" in told[1]


def test_where_a_new_partition_begins_is_told_once_while_there_is_too_little(caplog: Any) -> None:
    cluster = Told({B: 3}, {A: 10, B: 5})
    stream = plan_that_waits(cluster, failondataloss="false", minoffsetspertrigger="50")
    start = {"@cluster": "me", "t": {"0": 10}}
    for _ in range(LOOKS):
        assert stream.next_end(start, None) == start
    assert len(caplog.records) == 1
    assert "t-1 is new to this query and begins at 3" in caplog.text


@pytest.mark.parametrize("starting", ["earliest", '{"t":{"0":1}}'])
def test_a_batch_of_which_all_has_aged_out_is_lost_data_wherever_it_was_to_begin(
    starting: str, caplog: Any
) -> None:
    """The partition begins at 4, and nobody has said that the batch is to."""
    ends = {"endingoffsets": '{"t":{"0":3}}', "startingoffsets": starting}
    said = {"bootstrap.servers": "here", "subscribe": "t", **ends}
    cluster = Told({A: 4}, {A: 10})
    with pytest.raises(DataLoss, match=r"t-0: .* the partition begins at 4 now"):
        batch_ranges(cluster, read_options(said, BATCH))
    lax = read_options({**said, "failondataloss": "false"}, BATCH)
    assert batch_ranges(cluster, lax) == []
    assert "the partition begins at 4 now" in caplog.text
    wrong = read_options({**said, "startingoffsets": '{"t":{"0":5}}'}, BATCH)
    with pytest.raises(
        ValueError, match=r"startingOffsets \(offset 5\) is after endingOffsets \(off"
    ):
        batch_ranges(cluster, wrong)


@pytest.mark.parametrize(
    "noted",
    [
        5,
        {"logOffset": 3},
        {"t": None},
        {"t": {"0": "4"}},
        {"t": {"0": -1}},
        {"t": {"zero": 4}},
        {"@cluster": 5, "t": {"0": 4}},
        {"@topics": ["t"], "t": {"0": 4}},
        {"@begun": {"t": 4}, "t": {"0": 4}},
        {"@of_a_newer_build": {"t": 1}, "t": {"0": 4}},
    ],
)
def test_an_offset_of_another_source_or_a_damaged_one_is_told(noted: Any) -> None:
    """A query whose format was changed, and its checkpoint was not."""
    said = "the checkpoint has the offset .*, which is none of fencepost's, such as .* Start with a"
    stream = plan(Told({}, {A: 10}))
    with pytest.raises(NotOurs, match=said):
        stream.next_end(noted, None)
    with pytest.raises(NotOurs, match=said):
        stream.ranges({"t": {"0": 1}}, noted)


def test_ends_that_are_the_wrong_way_round_are_called_as_they_were_said() -> None:
    class Timed(Told):
        def resolve(self, side: str, bound: Bound, places: list[Place]) -> Offsets:
            return {A: 9 if side.startswith("starting") else 2}

    for said, sentence in (
        (
            {"startingtimestamp": "900", "endingtimestamp": "200"},
            r"startingTimestamp \(offset 9\) is after endingTimestamp \(offset 2\)",
        ),
        (
            {"startingoffsetsbytimestamp": '{"t":{"0":900}}', "endingoffsets": '{"t":{"0":2}}'},
            r"startingOffsetsByTimestamp \(offset 9\) is after endingOffsets \(offset 2\)",
        ),
    ):
        options = read_options({"bootstrap.servers": "here", "subscribe": "t", **said}, BATCH)
        with pytest.raises(ValueError, match=f"t-0: {sentence}"):
            batch_ranges(Timed({}, {A: 10}), options)


def test_a_partition_that_is_not_named_is_not_named_by_the_option_that_was_said() -> None:
    by_time = {"startingoffsetsbytimestamp": '{"t":{"0":900}}'}
    here = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    options = read_options({**here, **by_time}, BATCH)
    said = "startingOffsetsByTimestamp must name each partition that is read, .*: t-1 is not named"
    with pytest.raises(WrongTopic, match=said):
        Cluster(options).resolve("startingOffsets", options.starting, [A, B])


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        ({"subscribe": "t"}, "subscribe=t"),
        ({"subscribepattern": "t.*"}, r"subscribePattern=t\.\*"),
        ({"assign": '{"t": [0]}'}, r'assign=\{"t": \[0\]\}'),
    ],
)
def test_what_a_checkpoint_has_and_is_not_asked_for_any_more_is_told_as_that(
    said: dict[str, str], asks: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was told as a topic that is not there any more, of which some records were missed: the topic was there."""
    start = {"@cluster": "me", "t": {"0": 4}, "u": {"0": 2}}

    def stream(**more: str) -> StreamPlan:
        given = {"bootstrap.servers": "here", **said, **more}
        return StreamPlan(Told({}, {A: 9}), read_options(given, STREAM))

    what = f"u-0 was read up to 2 by the query of this checkpoint, and {asks} does not ask for it"
    with pytest.raises(DataLoss, match=f"{what}.* new query.*failOnDataLoss=false") as told:
        stream().next_end(start, None)
    assert "not there any more" not in str(told.value)
    assert "may have been missed" not in str(told.value)
    going_on = stream(failondataloss="false")
    end = going_on.next_end(start, None)
    assert end == {"@cluster": "me", "t": {"0": 9}, "u": {"0": 2}}, "it keeps its place"
    for _ in range(LOOKS):
        assert going_on.next_end(end, None) == end
    assert caplog.text.count("does not ask for it") == 1
    assert "u-0 keeps its place" in caplog.text


def test_a_partition_that_is_not_assigned_any_more_is_told_as_that() -> None:
    given = {"bootstrap.servers": "here", "assign": '{"t": [0]}'}
    stream = StreamPlan(Told({}, {A: 9}), read_options(given, STREAM))
    with pytest.raises(DataLoss, match=r"t-1 was read up to 3 by .* does not ask for it"):
        stream.next_end({"@cluster": "me", "t": {"0": 4, "1": 3}}, None)
