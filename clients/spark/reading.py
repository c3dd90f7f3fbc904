"""The driver's part of reading: what a batch covers, and how far the next micro-batch goes. Knows nothing of Spark.

INVARIANT  what a micro-batch takes follows from its two offsets alone, however often it is planned.
PREVENTS   a batch that is planned again after a failure and reads less, or more, than the first time.
PROVED BY  tests/spark/test_spark_offsets.py::test_a_plan_follows_from_its_two_offsets

Spark keeps where a batch ends. Where it begins is where the one before ended; of the first batch it asks `initial` whenever
it needs that, and no end tells of partitions that are new. So these starts are in the batch's own end (`offsets.begun_of`):
 1. `startingOffsets=earliest`, the log begins at 100: the first batch is noted with its end, 200. The driver dies.
 2. Retention deletes up to 150.
 3. The next driver asks, and is told 150. What lies between was to be read, and must not be left out in silence.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import wraps
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from . import data_loss, offsets, subscription, topic_ids
from .cluster import Vanished, WrongTopic
from .offsets import BEGUN_KEY, INTERNAL_TOPICS, UNRESOLVED_KEY, Offsets, Place, Range, TopicIds
from .options import Bound, ReadOptions

LISTED_MOST: Final = 10  # times, of one look

Said = ParamSpec("Said")
Planned = TypeVar("Planned")


class AsksCluster(Protocol):
    cluster_id: str

    def places(self, known: Collection[Place] = ..., *, of_all: bool = ...) -> list[Place]: ...

    def topic_ids(self, topics: Iterable[str], noted: Mapping[str, str] = ...) -> TopicIds: ...

    def starts(self, places: Any) -> Offsets: ...

    def ends(self, places: Any, at_least: Mapping[Place, int] = ...) -> Offsets: ...

    def resolve(self, side: str, bound: Bound, places: list[Place]) -> Offsets: ...


class OffsetOutOfRange(ValueError):
    """An offset that was asked for by number, and what there is."""


class AnotherCluster(RuntimeError):
    """The checkpoint's offsets mean nothing here."""


def _listed_again(plan: Callable[Said, Planned]) -> Callable[Said, Planned]:
    """If a topic is deleted between its being listed and its offsets being asked for: the next list is without it."""

    @wraps(plan)
    def planned(*args: Said.args, **kwargs: Said.kwargs) -> Planned:
        for _ in range(LISTED_MOST - 1):
            with suppress(Vanished):
                return plan(*args, **kwargs)
        return plan(*args, **kwargs)

    return planned


@_listed_again
def batch_ranges(cluster: AsksCluster, options: ReadOptions) -> list[Range]:
    places = cluster.places(of_all=True)
    start = cluster.resolve("startingOffsets", options.starting, places)
    end = cluster.resolve("endingOffsets", options.ending, places)
    first = cluster.starts(places)
    fails = options.fail_on_data_loss
    _check_reached(cluster, "startingOffsets", options.starting, start)
    _check_reached(cluster, "endingOffsets", options.ending, end)
    for place in places:
        topic, partition = place
        is_numbered = options.starting.offsets.get(place, offsets.EARLIEST) >= 0
        if end[place] < first[place] and not is_numbered:
            data_loss.report(_begins_later(place, end[place], first[place]), fails=fails)
            start[place] = end[place]
        if start[place] > end[place]:
            raise ValueError(
                f"{topic}-{partition}: {options.starting.said_as('starting')} (offset {start[place]}) is after "
                f"{options.ending.said_as('ending')} (offset {end[place]})"
            )
        if start[place] < first[place]:
            data_loss.report(_begins_later(place, start[place], first[place]), fails=fails)
            start[place] = min(first[place], end[place])
    ranges = offsets.ranges_between(start, end)
    return offsets.split(ranges, options.min_partitions, options.records_max)


def _check_reached(cluster: AsksCluster, side: str, bound: Bound, wanted: Offsets) -> None:
    """A task would wait for offsets that are not there yet."""
    asked = sorted(place for place in bound.offsets if bound.offsets[place] >= 0)
    last = cluster.ends(asked) if asked else {}
    for place in asked:
        if wanted[place] > last[place]:
            raise OffsetOutOfRange(
                f"{place[0]}-{place[1]}: {side} asks for {wanted[place]}, and the partition ends at {last[place]} now (for "
                "read_committed: before the first open transaction). Say an offset up to there, or latest (-1)"
            )


def _begins_later(place: Place, wanted: int, first: int) -> str:
    return f"{place[0]}-{place[1]}: offset {wanted} was asked for, and the partition begins at {first} now."


class StreamPlan:
    """Lives as long as the query's run, in one Python process of Spark's driver."""

    def __init__(
        self,
        cluster: AsksCluster,
        options: ReadOptions,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._now_s = now_s
        self._target: Offsets | None = None  # of Trigger.AvailableNow
        self._newest: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None  # the last end, whose topics were looked at
        # A run does not know how long the one before it has waited: its first look takes what is there.
        self._waiting_since: float | None = -math.inf
        self._reported: set[str] = set()
        self._gone: set[Place] = set()  # at the last look, and told
        self._unresolved: Exception | None = None

    def start(self) -> dict[str, Any]:
        """What was asked for may not be there any more when the first batch is done again, or not be all that there is: that one's
        own end says where it began, so this is a failure only of who has none."""
        try:
            return self.initial()
        except (WrongTopic, OffsetOutOfRange, data_loss.DataLoss) as error:
            self._unresolved = error
            return {UNRESOLVED_KEY: str(error)}

    @_listed_again
    def initial(self) -> dict[str, Any]:
        places = self._cluster.places(of_all=True)
        ids = self._cluster.topic_ids(topic for topic, _ in places)
        bound = self._options.starting
        start = self._cluster.resolve("startingOffsets", bound, places)
        _check_reached(self._cluster, "startingOffsets", bound, start)
        asked = sorted(place for place in bound.offsets if bound.offsets[place] >= 0)
        first = self._cluster.starts(asked) if asked else {}
        for place in asked:
            if start[place] < first[place]:
                said = _begins_later(place, start[place], first[place])
                data_loss.report(said, fails=self._options.fail_on_data_loss)
                start[place] = first[place]
        return offsets.to_json(start, self._cluster.cluster_id, ids, start)

    @_listed_again
    def stop_at_what_is_there(self) -> None:
        """For Trigger.AvailableNow."""
        self._target = self._cluster.ends(self._cluster.places(of_all=True))

    @_listed_again
    def next_end(
        self, start: Mapping[str, Any], most: int | None, *, waits: bool = True
    ) -> dict[str, Any]:
        """Where the next micro-batch ends: at most about `most` offsets away; `start` when there is to be none."""
        is_now = self._target is not None
        if offsets.is_unresolved(start):
            raise self._why_unresolved(start)
        self._check_cluster(start)
        begun = self._read_of(start)
        places = self._cluster.places([each for each in begun if each not in self._gone])
        self._check_gone(begun, places)
        begun = offsets.from_json(start)
        known = [place for place in places if place in begun]
        added = [place for place in places if place not in begun]
        if self._target is not None:
            target = self._target
            newest = self._target_of(known, begun, target)
            added = [place for place in added if place in target]
            newest |= {place: target[place] for place in added}
        else:
            newest = self._cluster.ends(places, begun)
        self._newest = offsets.to_json(newest, self._cluster.cluster_id)
        is_behind = any(newest[place] < begun[place] for place in known)
        # What is new is read from its beginning, as Spark's Kafka connector does.
        from_ = {**{place: begun[place] for place in known}, **self._first_of(added)}
        # Where something went backwards nobody waits: it might outgrow its old offset meanwhile.
        may_wait = waits and not is_now and not is_behind
        if may_wait and self._is_too_little(offsets.distance(from_, newest)):
            return dict(start)
        ids = offsets.topic_ids_of(start, self._cluster.cluster_id)
        if any(newest[place] != begun.get(place) for place in newest):  # there is to be a batch
            # Asked after the ends: of a topic that is made anew between the two, the id is the new one's.
            now = self._cluster.topic_ids((topic for topic, _ in places), ids)
            anew = self._begin_again(ids, now, known, from_, newest)
            begun = {place: begun[place] for place in begun if place[0] not in anew}
            same = ids.keys() & now.keys()
            self._check_backwards([place for place in known if place in begun], begun, newest, same)
            ids |= now
        until = newest if most is None else offsets.admitted(from_, newest, most)
        # Partitions that nobody lists at the moment keep their place in the checkpoint.
        self._planned = self._end(start, begun, from_, {**begun, **until}, ids)
        return dict(self._planned)

    def _end(
        self,
        start: Mapping[str, Any],
        begun: Offsets,
        from_: Offsets,
        until: Offsets,
        ids: TopicIds,
    ) -> dict[str, Any]:
        """`begun` is what `start` says of topics that are the same yet."""
        cluster_id = self._cluster.cluster_id
        end = offsets.to_json(until, cluster_id, ids)
        if end == {key: start[key] for key in start if key != BEGUN_KEY}:
            return dict(start)  # nothing is new: another end would be a batch
        # Only where nothing was read yet a start is its own `begun`.
        is_first = offsets.begun_of(start) == offsets.from_json(start)
        told = {} if is_first else begun
        opened = {place: from_.get(place, until[place]) for place in until if place not in told}
        return offsets.to_json(until, cluster_id, ids, opened)

    def _begin_again(
        self, noted: TopicIds, now: TopicIds, known: list[Place], from_: Offsets, newest: Offsets
    ) -> list[str]:
        """Topics that were made anew are read from their beginning, up to where these end."""
        anew = topic_ids.report(
            noted,
            now,
            fails=self._options.fail_on_data_loss,
            going_on="reading the new topic from its beginning",
        )
        places = [place for place in known if place[0] in anew]
        if places:
            from_ |= self._cluster.starts(places)
            newest |= self._cluster.ends(places)
        if self._target is not None:
            self._target |= {place: newest[place] for place in places}
        return anew

    def _target_of(self, known: list[Place], begun: Offsets, target: Offsets) -> Offsets:
        """A place that is behind its target was begun at `latest` after the target was taken, or its topic went backwards:
        where it ends now tells which. What has come since the target is left for the next run."""
        behind = [place for place in known if target.get(place, 0) < begun[place]]
        now = self._cluster.ends(behind, begun) if behind else {}
        wanted = {place: target.get(place, 0) for place in known}
        return wanted | {place: min(now[place], begun[place]) for place in behind}

    def newest(self) -> dict[str, Any] | None:
        """For the query's progress: where the partitions end, whatever limits a batch has. With Trigger.AvailableNow where
        they ended when the run began: up to there it reads, and what has come since is the next run's."""
        return self._newest

    def _why_unresolved(self, start: Mapping[str, Any]) -> Exception:
        return self._unresolved or OffsetOutOfRange(start[UNRESOLVED_KEY])

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        if offsets.is_unresolved(start):
            offsets.check_noted(end)
            if not offsets.begun_of(end):
                raise self._why_unresolved(start)
            start = {}
        self._check_cluster(start)
        self._check_cluster(end)  # batch 0 may be planned again with a start that was resolved here
        begun, until = offsets.from_json(start), offsets.from_json(end)
        cluster_id = self._cluster.cluster_id
        noted = offsets.topic_ids_of(end, cluster_id)
        anew = topic_ids.made_anew(offsets.topic_ids_of(start, cluster_id), noted)
        begun = {place: begun[place] for place in begun if place[0] not in anew}
        opened = offsets.begun_of(end)
        begun |= opened
        is_again = dict(end) != self._planned  # by a run that has ended
        if is_again:
            gone = self._gone_since(noted)
            until = {place: until[place] for place in until if place[0] not in gone}
        added = [place for place in sorted(until) if place not in begun]  # by an older build
        begun |= self._first_of(added)
        found = offsets.ranges_between(begun, until)
        if is_again:
            found = self._without_what_aged_out(found, opened)
        return offsets.split(found, self._options.min_partitions, self._options.records_max)

    def _without_what_aged_out(self, ranges: list[Range], opened: Offsets) -> list[Range]:
        """Since the batch was planned. Where Spark keeps the start, the task that reads there says so; and of what vanished."""
        asked = [each for each in ranges if each[:2] in opened]
        there = self._cluster.places() if asked else []
        asked = [each for each in asked if each[:2] in there]
        first = self._cluster.starts([each[:2] for each in asked])
        for each in asked:
            if first[each[:2]] > each.start:
                data_loss.report(
                    f"{each} was to be read by a batch that was planned and not finished, and the partition begins at "
                    f"{first[each[:2]]} now.",
                    fails=self._options.fail_on_data_loss,
                )
        kept = [each._replace(start=max(each.start, first.get(each[:2], 0))) for each in ranges]
        return [each for each in kept if each.size > 0]

    def _gone_since(self, noted: TopicIds) -> list[str]:
        """What the next batch reads from its beginning is not this one's."""
        return topic_ids.report(
            noted,
            self._cluster.topic_ids(noted, noted),
            fails=self._options.fail_on_data_loss,
            going_on="this batch has nothing of it, and the next one reads the new topic from its beginning",
        )

    def _first_of(self, added: list[Place]) -> Offsets:
        if not added:
            return {}
        first = self._cluster.starts(added)
        for place in added:
            if first[place] > 0:
                self._report_once(
                    f"{place[0]}-{place[1]} is new to this query and begins at {first[place]}: what was before it is "
                    "gone."
                )
        return first

    def _is_too_little(self, waiting: int) -> bool:
        least = self._options.offsets_min
        if least is None or waiting >= least or waiting == 0:
            self._waiting_since = None
            return False
        now_s = self._now_s()
        if self._waiting_since is None:
            self._waiting_since = now_s
        if now_s - self._waiting_since < self._options.delay_max_s:
            return True
        self._waiting_since = None
        return False

    def _check_cluster(self, noted: Mapping[str, Any]) -> None:
        offsets.check_noted(noted)
        if not self._cluster.cluster_id:
            self._cluster.places()  # learns it
        theirs, ours = offsets.cluster_of(noted), self._cluster.cluster_id
        if theirs and ours and theirs != ours and self._options.check_cluster_id:
            raise AnotherCluster(
                f"the checkpoint is of cluster {theirs}, and {self._options.client['bootstrap.servers']} is cluster "
                f"{ours}: its offsets mean nothing here. Start with a new checkpointLocation, or correct "
                "kafka.bootstrap.servers; where the topics were copied offset by offset, say checkClusterId=false."
            )

    def _read_of(self, start: Mapping[str, Any]) -> Offsets:
        """Older builds took internal topics for a pattern's: these may be in a checkpoint."""
        begun = offsets.from_json(start)
        if self._options.pattern:
            begun = {place: begun[place] for place in begun if place[0] not in INTERNAL_TOPICS}
        return begun

    def _check_gone(self, begun: Mapping[Place, int], places: list[Place]) -> None:
        gone = set(begun) - set(places)
        for place in sorted(gone):
            if subscription.asks_for(self._options, place):
                said = f"{place[0]}-{place[1]} was read up to {begun[place]} and is not there any more."
                self._report_once(said, data_loss.NOT_LISTED)
            else:
                said = subscription.not_asked_for(self._options, place, begun[place])
                going_on = subscription.keeps_its_place(place)
                self._report_once(said, data_loss.NOT_ASKED_FOR, going_on)
        self._gone = gone  # which are not waited for at each look

    def _report_once(
        self, sentence: str, advice: str = data_loss.AGED_OUT, going_on: str = data_loss.BEHIND_IT
    ) -> None:
        """What stays as it is: Spark looks a hundred times a second."""
        if sentence not in self._reported:
            fails = self._options.fail_on_data_loss
            data_loss.report(sentence, fails=fails, advice=advice, going_on=going_on)
            self._reported.add(sentence)

    def _check_backwards(
        self, known: list[Place], begun: Offsets, newest: Offsets, same: AbstractSet[str]
    ) -> None:
        """Of what went backwards this micro-batch has nothing, and the next one begins where it ends now.

        What it holds is not read from its beginning: a log that lost its last records would be read twice. `same` are the
        topics of which their ids say that they are the ones that were read.
        """
        for place in known:
            if newest[place] >= begun[place]:
                continue
            first = self._cluster.starts([place])[place]
            why = (
                "its last records are gone."
                if place[0] in same
                else "was it deleted and created again?"
            )
            data_loss.report(
                f"{place[0]}-{place[1]} was read up to {begun[place]} and ends at {newest[place]} now; {why} "
                f"What it holds from {first} up to there is not looked at any more.",
                fails=self._options.fail_on_data_loss,
            )
