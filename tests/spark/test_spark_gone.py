"""What goes while a query looks at it, or went and stays away: told, told once, and no reason to end by itself. No brokers."""

from typing import Any

import pytest
from fencepost.clients.spark.cluster import Vanished
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Offsets, Range
from fencepost.clients.spark.option_table import BATCH, STREAM
from fencepost.clients.spark.options import ReadOptions, read_options
from fencepost.clients.spark.reading import StreamPlan, batch_ranges
from told_cluster import Told

A, C = ("t", 0), ("u", 0)


class Deleting(Told):
    """The topic u is deleted when its offsets are asked for, having been listed."""

    def _asked(self, places: Any) -> None:
        if C in set(places):
            self.last.pop(C, None)
            raise Vanished("u-0 is not there any more: was it deleted?")

    def starts(self, places: Any) -> Offsets:
        self._asked(places)
        return super().starts(places)

    def ends(self, places: Any) -> Offsets:
        self._asked(places)
        return super().ends(places)


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
