"""A producer that can say who it is: what it leaves behind."""

import gc
import os
from collections.abc import Callable, Iterator

import pytest
from fencepost.clients.transactional import (
    AdminApi,
    GroupMember,
    HalfMessageProducer,
    resting_producer,
)
from fencepost.clients.transactional.identity import IdentifiedProducer, Statistics
from fencepost.clients.transactional.resting_producer import RestingProducer
from librdkafka import create, until

QUIET = {"log_level": 0}


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Circles are not looked for meanwhile: what goes, goes because nobody has it any more."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.usefixtures("no_collector")
def test_a_producer_that_is_dropped_takes_its_threads_with_it() -> None:
    """Each has four, and eight descriptors: 125 half messages that were left to checks had used up 1,024."""
    before = threads()
    for number in range(5):
        dropped = IdentifiedProducer("127.0.0.1:1", f"g::m-{number}", QUIET, statistics_ms=10)
        dropped.producer.poll(0.05)
        assert threads() > before
        del dropped
    until(lambda: threads() <= before, what="their threads end")


def test_a_producer_at_rest_keeps_no_statistics(monkeypatch) -> None:
    """An idle lane kept five a second, of 7 KB each, until somebody used it: 3 GB a day."""
    told: list[str] = []
    monkeypatch.setattr(resting_producer, "HEAR_S", 0.01)
    monkeypatch.setattr(Statistics, "take", lambda _, text: told.append(text))
    resting = IdentifiedProducer("127.0.0.1:1", "g::m", QUIET, statistics_ms=10)
    until(lambda: len(told) > 100, what="it is heard, though nobody polls")
    assert len(resting.producer) < 50


def test_what_became_of_a_record_is_told_to_its_owner_alone() -> None:
    """Else `flush` could come back while another thread is yet to be told of an error.

    Polls are counted at this producer, not at its class: what a class loses when the old method is put back goes before CPython
    3.11 forgets where it was, and the thread that hears calls what is gone (a segmentation fault) if a producer went with it.
    """
    producer = RestingProducer({"bootstrap.servers": "127.0.0.1:1", **QUIET})
    polls: list[float] = []
    producer.poll = polls.append
    producer.hear()
    assert polls
    producer.produce("t", b"x")
    polls.clear()
    producer.hear()
    assert producer.flush(0) == 1
    producer.hear()
    assert not polls
    producer.purge()
    assert producer.flush(5.0) == 0
    producer.hear()
    assert polls


def test_a_callback_that_raises_does_not_end_the_hearing_of_others(monkeypatch, caplog) -> None:
    monkeypatch.setattr(resting_producer, "HEAR_S", 0.01)
    heard: list[int] = []

    def take(number: int) -> None:
        heard.append(number)
        raise ValueError(f"of {number}")

    quiet = {"bootstrap.servers": "127.0.0.1:1", "statistics.interval.ms": 10, **QUIET}
    both = [RestingProducer({**quiet, "stats_cb": lambda _, n=n: take(n)}) for n in range(2)]
    until(lambda: {*heard[-10:]} == {0, 1} and len(heard) > 20, what="both are heard on")
    assert "of 0" in caplog.text
    both.clear()


@pytest.mark.usefixtures("no_collector")
def test_a_producer_of_half_messages_that_was_closed_keeps_no_threads() -> None:
    """Who holds it, as an application its services, held four for each lane that was ever used."""
    before = threads()
    pay = HalfMessageProducer("127.0.0.1:1", "pay", AdminApi("127.0.0.1:1"), lanes=3)
    for _ in range(2):
        assert pay._lanes.get() is None
    for number in range(2):
        pay._lanes.put(IdentifiedProducer("127.0.0.1:1", f"pay::m-{number}", QUIET))
    assert threads() > before
    pay.close()
    until(lambda: threads() <= before, what="their threads end")
    assert [pay._lanes.get_nowait() for _ in range(3)] == [None] * 3, "and their places are free"


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
def test_a_member_that_is_dropped_with_records_under_way_takes_its_threads_with_it(
    bootstrap: str, fresh: Callable[[str], str]
) -> None:
    """As a writer does whose brokers are away. Nobody is left to hear what becomes of the records: no collector ends that circle, as
    a part of it is librdkafka's."""
    topic = fresh("out")
    create(bootstrap, topic)
    member = GroupMember(bootstrap, fresh("group"), "m", {"linger.ms": 50_000, "log_level": 0})
    member.begin()
    member.produce(topic, value=b"a row")
    started = threads()
    del member
    until(lambda: threads() <= started - 4, what="its threads end")
