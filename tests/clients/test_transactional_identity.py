"""A producer that can say who it is: what it leaves behind."""

import gc
import os
from collections.abc import Callable, Iterator

import pytest
from fencepost.clients.transactional import AdminApi, GroupMember, HalfMessageProducer
from fencepost.clients.transactional.identity import IdentifiedProducer
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
