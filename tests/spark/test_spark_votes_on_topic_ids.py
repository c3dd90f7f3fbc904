"""Which id a topic has most brokers say: each has one voice, by however many names it can be reached."""

from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.clients.spark.cluster import NotReached
from fencepost.clients.spark.offsets import Range
from support.module_clock import set_clock
from test_spark_listings import TIMED
from test_spark_stale_topic_ids import AWAY, END, NEW, OLD, START, Namer, Naming, stream

BROKERS = ("a:9092", "b:9092", "c:9092")


class Known(Naming):
    """They name each other; the bootstrap addresses are others of theirs."""

    def client(self, settings: Any) -> "Namer":
        self.made += 1
        return KnownNamer(self, settings["bootstrap.servers"].split(",")[0], self.made)


class KnownNamer(Namer):
    def list_topics(self, timeout: float) -> Any:
        seen = super().list_topics(timeout)
        addresses = [each.split(":") for each in BROKERS]
        seen.brokers = {
            number: SimpleNamespace(host=host, port=int(port))
            for number, (host, port) in enumerate(addresses)
        }
        return seen


@pytest.mark.parametrize("names", [["any:9092"], ["a.internal:9092", "a.outside:9092"]])
@pytest.mark.parametrize("fails", [True, False])
def test_a_broker_that_is_cut_off_has_one_voice_by_however_many_names_it_was_asked(
    monkeypatch: pytest.MonkeyPatch, names: list[str], *, fails: bool
) -> None:
    """One name for all brokers, which led to the one that is cut off, and that one's own name were most of three: all of the
    topic was read twice, or the query ended."""
    ids = dict.fromkeys(names, OLD) | dict(zip(BROKERS, (OLD, NEW, NEW), strict=True))
    brokers = Known(**ids)
    monkeypatch.setattr(brokers, "ids", dict.fromkeys(names, OLD))  # what is given as bootstrap
    made = stream(brokers, monkeypatch, fails=fails)
    monkeypatch.setattr(brokers, "ids", ids)
    end = made.next_end(START, None)
    assert end == END
    assert made.ranges(START, end) == [Range("t", 0, 5, 7)]


@pytest.mark.parametrize("fails", [True, False])
def test_brokers_that_may_be_cut_off_together_with_the_query_do_not_decide(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """All of the topic was read once more, as an old leader has it; and again when the others could be reached."""
    made = stream(Naming(a=OLD, b=AWAY, c=AWAY), monkeypatch, fails=fails)
    with pytest.raises(NotReached, match="1 of 3 brokers answer"):
        made.next_end(START, None)
    with pytest.raises(NotReached):
        made.ranges(START, END)


def test_most_brokers_are_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Naming(a=OLD, b=AWAY, c=AWAY)
    made = stream(brokers, monkeypatch, fails=True)

    def sleep(seconds: float) -> None:
        brokers.sleep(seconds)
        brokers.ids |= {"b": NEW, "c": NEW}

    set_clock(monkeypatch, *TIMED, now_s=lambda: brokers.now_s, sleep=sleep)
    assert made.next_end(START, None) == END
