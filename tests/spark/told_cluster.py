"""A cluster that is what a test says, for the suites of the plan: no brokers."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fencepost.clients.spark.cluster import WrongTopic
from fencepost.clients.spark.offsets import Offsets, Place, to_json
from fencepost.clients.spark.option_table import STREAM
from fencepost.clients.spark.options import Bound, read_options
from fencepost.clients.spark.reading import StreamPlan


class Told:
    """Where its partitions begin and end, and its topics' ids if it has them."""

    cluster_id = "me"

    def __init__(self, first: Offsets, last: Offsets, **ids: str) -> None:
        self.first, self.last, self.ids = first, last, ids
        self.asked_for_ids = 0

    def places(self, known: Collection[Place] = (), *, of_all: bool = False) -> list[Place]:
        self.looked_for = sorted(known)
        self.are_all_asked = of_all
        return sorted(self.last)

    def topic_ids(
        self, topics: Iterable[str], noted: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """As `Cluster` does: nobody is asked about nothing."""
        wanted = set(topics)
        self.asked_for_ids += bool(wanted)
        return {topic: self.ids[topic] for topic in sorted(wanted) if topic in self.ids}

    def starts(self, places: Any) -> Offsets:
        return {place: self.first.get(place, 0) for place in places}

    def ends(self, places: Any, at_least: Mapping[Place, int] = MappingProxyType({})) -> Offsets:
        self.read_up_to = dict(at_least)
        return {place: self.last[place] for place in places}

    def resolve(self, side: str, bound: Bound, places: list[Place]) -> Offsets:
        """As `Cluster` does, but for times."""
        if bound.named is not None and bound.named != frozenset(places):
            raise WrongTopic(f"{side} must name each partition that is read, and no other")
        if bound.offsets:
            return dict(bound.offsets)
        return self.starts(places) if bound.everywhere == -2 else self.ends(places)


def plan(cluster: Told, now: Any = lambda: 0.0, **said: str) -> StreamPlan:
    given = {"bootstrap.servers": "here", "subscribe": "t", "startingoffsets": "earliest", **said}
    return StreamPlan(cluster, read_options(given, STREAM), now)


def plan_that_waits(cluster: Told, now: Any = lambda: 0.0, **said: str) -> StreamPlan:
    """Its first look, which takes what is there, has been, and there was nothing."""
    stream = plan(cluster, now, **said)
    end = to_json(cluster.last, cluster.cluster_id)
    assert stream.next_end(end, None) == end
    return stream


def available_now(cluster: Told, **said: str) -> StreamPlan:
    stream = plan(cluster, **said)
    stream.stop_at_what_is_there()
    return stream
