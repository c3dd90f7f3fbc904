"""Brokers of which one is cut off from its cluster: it answers clients, and does not know what was made, or deleted, since."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark import cluster, listings
from fencepost.clients.spark.cluster import Cluster, Vanished, WrongTopic
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.option_table import BATCH, STREAM
from fencepost.clients.spark.options import read_options
from fencepost.clients.spark.reading import batch_ranges
from fencepost.clients.transactional import asking_again, asking_others
from support.module_clock import set_clock
from told_cluster import Told, plan

Topics = Mapping[str, int]  # how many partitions


class Brokers:
    """By address, what each lists; None is one where nobody answers. A client of more than one address asks the first of them, or
    whom it is told to. `ends` is what a client made as the nth is told of any partition."""

    def __init__(self, **lists: Topics | None) -> None:
        self.lists = lists
        self.now_s = 0.0
        self.asked: list[str] = []
        self.made = 0
        self.ends: Callable[[int], int] = lambda _: 7

    def client(self, settings: Mapping[str, Any]) -> "Admin":
        self.made += 1
        return Admin(self, settings["bootstrap.servers"].split(",")[0], self.made)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Admin:
    def __init__(self, brokers: Brokers, address: str, number: int) -> None:
        self._brokers, self._address, self._number = brokers, address, number

    def list_topics(self, timeout: float) -> Any:
        self._brokers.asked.append(self._address)
        listed = self._brokers.lists[self._address]
        if listed is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        topics = {
            name: SimpleNamespace(partitions=dict.fromkeys(range(listed[name]))) for name in listed
        }
        return SimpleNamespace(cluster_id="me", brokers={}, topics=topics)

    def list_offsets(self, places: Any, **_: Any) -> Any:
        answers: dict[Any, Future[Any]] = {}
        for place in places:
            answers[place] = Future()
            try:
                offset = self._brokers.ends(self._number)
                answers[place].set_result(SimpleNamespace(offset=offset))
            except KafkaException as told:
                answers[place].set_exception(told)
        return answers


def of(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, use: str = STREAM, **said: str
) -> Cluster:
    for module in (cluster, listings):
        monkeypatch.setattr(module, "AdminClient", brokers.client)
    set_clock(monkeypatch, *TIMED, now_s=lambda: brokers.now_s, sleep=brokers.sleep)
    given = {"bootstrap.servers": ",".join(brokers.lists), **(said or {"subscribe": "t"})}
    return Cluster(read_options(given, use))


TIMED = (cluster, listings, asking_again, asking_others)
STALE, GOOD = {"t": 1}, {"t": 2, "u": 1}


@pytest.mark.parametrize("others", [{"b": GOOD}, {"b": None, "c": GOOD}, {"b": STALE, "c": GOOD}])
def test_a_partition_that_any_broker_lists_is_there(
    monkeypatch: pytest.MonkeyPatch, others: dict[str, Topics | None]
) -> None:
    """A query would end with DataLoss, or with failOnDataLoss=false go on without it, and nothing is missing."""
    brokers = Brokers(a=STALE, **others)
    found = of(brokers, monkeypatch).places([("t", 0), ("t", 1)])
    assert found == [("t", 0), ("t", 1)]
    assert brokers.now_s == 0.0, "nobody waits"


@pytest.mark.parametrize(
    ("said", "found"),
    [({"subscribe": "t,u"}, [("t", 0), ("t", 1), ("u", 0)]), ({"assign": '{"u":[0]}'}, [("u", 0)])],
)
def test_a_topic_that_any_broker_lists_is_there(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], found: list[Any]
) -> None:
    assert of(Brokers(a=STALE, b=GOOD), monkeypatch, **said).places() == found


def test_what_a_broker_comes_to_know_meanwhile_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=STALE)
    asked = of(brokers, monkeypatch, subscribe="u")

    def sleep(seconds: float) -> None:
        brokers.sleep(seconds)
        brokers.lists["a"] = GOOD

    set_clock(monkeypatch, *TIMED, now_s=lambda: brokers.now_s, sleep=sleep)
    assert asked.places() == [("u", 0)]


def test_what_no_broker_lists_for_a_while_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=STALE, b=STALE)
    asked = of(brokers, monkeypatch)
    assert asked.places([("t", 1)]) == [("t", 0)]
    assert brokers.now_s >= asking_others.GONE_S
    with pytest.raises(WrongTopic, match="there is no topic u in the cluster at a,b"):
        of(brokers, monkeypatch, subscribe="u").places()
    with pytest.raises(WrongTopic, match="there is no partition t-1: t has 1; correct assign"):
        of(brokers, monkeypatch, assign='{"t":[1]}').places()


def test_who_lists_what_its_leader_does_not_know_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic v was deleted, which the broker that is cut off has not heard of. It would be asked for again and again."""
    brokers = Brokers(a={"t": 2}, b={"t": 1, "v": 1})
    asked = of(brokers, monkeypatch, subscribepattern=".")
    known = [("t", 0), ("v", 0)]
    assert asked.places(known) == [("t", 0), ("t", 1), ("v", 0)]

    def gone(_: int) -> int:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    brokers.ends = gone
    with pytest.raises(Vanished, match="v-0 is not there any more"):
        asked.ends([("v", 0)])
    assert asked.places(known) == [("t", 0), ("t", 1)]
    brokers.lists["a"] = {"t": 2, "v": 1}
    assert asked.places(known) == [("t", 0), ("t", 1), ("v", 0)], "made again"


def test_a_broker_that_has_one_name_for_all_is_asked_beside_those_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(all=STALE, **{"one:1": STALE, "two:1": GOOD})
    named = {n: SimpleNamespace(host=host, port=1) for n, host in enumerate(("one", "two", "x"))}
    listed = Admin.list_topics
    monkeypatch.setattr(
        Admin,
        "list_topics",
        lambda self, timeout: SimpleNamespace(**{**vars(listed(self, timeout)), "brokers": named}),
    )
    asked = of(brokers, monkeypatch, subscribe="t", **{"bootstrap.servers": "all"})
    assert asked.places([("t", 1)]) == [("t", 0), ("t", 1)]
    assert sorted(brokers.asked) == ["all", "all", "one:1", "two:1"]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    ],
)
def test_a_broker_that_refuses_to_say_where_it_ends_is_left_for_another(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It was the leader when it was cut off, as it says itself; or it has not heard of the partition."""
    brokers = Brokers(a=GOOD)
    asked = of(brokers, monkeypatch)

    def ends(client: int) -> int:
        if client <= 2:
            raise KafkaException(KafkaError(code))
        return 9

    brokers.ends = ends
    assert asked.ends([("t", 0)]) == {("t", 0): 9}
    assert brokers.made == 3
    assert brokers.now_s < asking_others.GONE_S


def test_a_plan_looks_for_what_was_read_and_once_for_what_is_gone() -> None:
    """Spark looks a hundred times a second: nobody waits at each for what was told as lost."""
    told = Told({}, {("t", 0): 10})
    stream = plan(told, failondataloss="false")
    start = {"@cluster": "me", "t": {"0": 10, "1": 4}}
    stream.next_end(start, None)
    assert told.looked_for == [("t", 0), ("t", 1)]
    stream.next_end(start, None)
    assert told.looked_for == [("t", 0)]
    told.last["t", 1] = 5
    assert stream.next_end(start, None)["t"] == {"0": 10, "1": 5}
    stream.next_end(start, None)
    assert told.looked_for == [("t", 0), ("t", 1)]


def test_what_is_not_listed_is_told_with_what_helps() -> None:
    """A new query would read from the beginning, or leave out what it had not read; a longer retention changes nothing."""
    start = {"@cluster": "me", "t": {"0": 10, "1": 4}}
    said = r"t-1 was read up to 4 and .* Start the query again; if it stays so, start a new query"
    with pytest.raises(DataLoss, match=said) as told:
        plan(Told({}, {("t", 0): 10})).next_end(start, None)
    assert "retention.ms" not in str(told.value)


@pytest.mark.parametrize(
    "said", [{"subscribe": "t"}, {"subscribepattern": "t"}], ids=["subscribe", "pattern"]
)
def test_a_batch_read_covers_what_any_broker_lists(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    """Nobody would ever be told of the partition that is not in it."""
    brokers = Brokers(a=STALE, b=None, c=GOOD)
    asked = of(brokers, monkeypatch, BATCH, **said)
    told = iter([0, 0, 7, 7, 0, 0])  # its starts, its ends, and its starts
    brokers.ends = lambda _: next(told)
    options = asked._options
    assert batch_ranges(asked, options) == [Range("t", 0, 0, 7), Range("t", 1, 0, 7)]
    assert brokers.now_s == 0.0


def test_a_batch_read_does_not_wait_for_brokers_that_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(a=GOOD, b=None, c=None)
    assert of(brokers, monkeypatch, BATCH).places(of_all=True) == [("t", 0), ("t", 1)]
    assert (sorted(brokers.asked), brokers.now_s) == (["a", "a", "b", "c"], 0.0)


def test_a_batch_read_goes_by_those_who_know_that_a_topic_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a topic that was made anew with fewer partitions, and one that was deleted."""
    brokers = Brokers(a={"t": 2}, b={"t": 3, "v": 1})
    asked = of(brokers, monkeypatch, BATCH, subscribepattern=".")
    assert asked.places(of_all=True) == [("t", 0), ("t", 1), ("t", 2), ("v", 0)]

    def gone(_: int) -> int:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    brokers.ends = gone
    for place in (("v", 0), ("t", 2)):
        with pytest.raises(Vanished):
            asked.ends([place])
        assert asked.places(of_all=True) == [("t", 0), ("t", 1)]
