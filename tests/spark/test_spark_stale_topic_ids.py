"""A broker that is cut off from its cluster says of a topic that was made anew the id that it had before: others are asked."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark import cluster, listings
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.option_table import STREAM
from fencepost.clients.spark.options import read_options
from fencepost.clients.spark.reading import StreamPlan
from fencepost.clients.transactional import asking_others
from support.module_clock import set_clock
from test_spark_listings import TIMED, Admin, Brokers

OLD, NEW, AWAY = "old", "new", None
START = {"@cluster": "me", "@topics": {"t": NEW}, "t": {"0": 5}}
END = {**START, "t": {"0": 7}}


class Naming(Brokers):
    """By address, which id each has for the topic `t`, whose partition has the offsets 0 to 6."""

    def __init__(self, **ids: str | None) -> None:
        super().__init__(**{each: None if ids[each] is None else {"t": 1} for each in ids})
        self.ids = ids

    def client(self, settings: Any) -> "Namer":
        self.made += 1
        return Namer(self, settings["bootstrap.servers"].split(",")[0], self.made)


class Namer(Admin):
    _brokers: Naming

    def describe_topics(self, topics: Any, **_: Any) -> Any:
        told: Future[Any] = Future()
        topic_id = self._brokers.ids[self._address]
        if topic_id is None:
            told.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        else:
            told.set_result(SimpleNamespace(topic_id=topic_id))
        return {"t": told}

    def list_offsets(self, places: Any, **_: Any) -> Any:
        answers: dict[Any, Future[Any]] = {}
        for place in places:
            answers[place] = Future()
            is_start = places[place]._value == -2
            answers[place].set_result(SimpleNamespace(offset=0 if is_start else 7))
        return answers


def stream(brokers: Naming, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> StreamPlan:
    for module in (cluster, listings):
        monkeypatch.setattr(module, "AdminClient", brokers.client)
    set_clock(monkeypatch, *TIMED, now_s=lambda: brokers.now_s, sleep=brokers.sleep)
    given = {
        "bootstrap.servers": ",".join(brokers.ids),
        "subscribe": "t",
        "failondataloss": str(fails).lower(),
    }
    options = read_options(given, STREAM)
    return StreamPlan(cluster.Cluster(options), options)


@pytest.mark.parametrize("fails", [True, False])
def test_a_batch_that_is_run_again_keeps_the_rows_of_a_topic_whose_old_id_one_broker_tells(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """They would be left out, and the next batch, planned by the word of another broker, begins behind them."""
    brokers = Naming(a=OLD, b=NEW, c=NEW)
    assert stream(brokers, monkeypatch, fails=fails).ranges(START, END) == [Range("t", 0, 5, 7)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_is_not_read_from_its_beginning_because_one_broker_tells_its_old_id(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """All of it would be read twice."""
    made = stream(Naming(a=OLD, b=NEW, c=NEW), monkeypatch, fails=fails)
    end = made.next_end(START, None)
    assert end == END
    assert made.ranges(START, end) == [Range("t", 0, 5, 7)]


@pytest.mark.parametrize("others", [{"b": NEW}, {"b": NEW, "c": AWAY}, {}])
def test_a_topic_that_all_who_answer_say_is_another_one_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, others: dict[str, str | None]
) -> None:
    brokers = Naming(a=NEW, **others)
    start = {**START, "@topics": {"t": OLD}}
    with pytest.raises(DataLoss, match="the topic t was deleted and created again"):
        stream(brokers, monkeypatch, fails=True).next_end(start, None)
    assert brokers.now_s == 0.0, "nobody waits"


def test_a_topic_made_anew_is_told_though_a_broker_that_is_cut_off_never_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is cut off is in the minority; one that is only late has heard of it by then."""
    brokers = Naming(a=NEW, b=OLD, c=NEW)
    start = {**START, "@topics": {"t": OLD}}
    made = stream(brokers, monkeypatch, fails=False)
    assert made.ranges(start, made.next_end(start, None)) == [Range("t", 0, 0, 7)]
    assert brokers.now_s >= asking_others.GONE_S


def test_the_id_that_is_noted_first_is_the_one_that_most_brokers_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next batch would find another one, and take the topic that it has read for one that was made anew."""
    made = stream(Naming(a=OLD, b=NEW, c=NEW), monkeypatch, fails=True)
    assert made.initial()["@topics"] == {"t": NEW}
