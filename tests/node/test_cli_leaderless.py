"""`consume` and `produce` on a partition that nobody leads: librdkafka waits in silence, so they look and say why."""

import time
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_on_the_wire import NOBODY, ToldCluster
from confluent_kafka import KafkaException
from fencepost.node.cli import consume, leaderless, produce
from fencepost.node.cli.cluster import Outage
from fencepost.node.cli.leaderless import Stall
from support.module_clock import set_clock

SAID = (
    "fencepost: orders-1 has no leader: nothing can be read there. `fencepost partition list --offline orders` says"
    " why, and what to do.\n"
)


class Admin:
    """Of topic orders, partition 0 is led by node 1."""

    def __init__(self, *leaderless: int) -> None:
        self.leaderless = leaderless
        self.looks = 0

    def list_topics(self, timeout: float) -> Any:
        self.looks += 1
        partitions = {
            each: SimpleNamespace(id=each, leader=-1 if each in self.leaderless else 1)
            for each in (0, 1)
        }
        topic = SimpleNamespace(partitions=partitions)
        return SimpleNamespace(topics={"orders": topic, "__consumer_offsets": topic})


class Consumer:
    """It has read all of partition 0, and of partition 1 nothing ever comes."""

    def __init__(self, *assigned: int) -> None:
        self._assigned = [SimpleNamespace(partition=each) for each in assigned]
        self.polls = 0

    def poll(self, _timeout: float) -> Any:
        self.polls += 1
        if self.polls > 1:
            if self.polls > 5:
                raise KeyboardInterrupt
            return None
        eof = SimpleNamespace(code=lambda: -191)
        return SimpleNamespace(error=lambda: eof, partition=lambda: 0)

    def assignment(self) -> list[Any]:
        return self._assigned


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    monkeypatch.setattr(leaderless, "STILL_S", 0.0)
    return ToldCluster(monkeypatch)


def arguments(**more: Any) -> Namespace:
    usual = {"topic": "orders", "bootstrap": "127.0.0.1:9002", "partition": None, "file": None}
    usual |= {"start": "start", "key_separator": None, "group": None}
    return Namespace(**usual | {"count": None, "follow": False, "json": False} | more)


def consumed(admin: Admin, consumer: Consumer, **more: Any) -> int:
    words = arguments(**more)
    written = consume._Written(consumer, words)
    return consume._print_records(words, written, Outage("x"), Stall(words, admin, "read"))


def test_who_reads_to_the_end_fails_where_nobody_leads(capsysbinary) -> None:
    consumer = Consumer(0, 1)
    assert consumed(Admin(1), consumer) == 1
    assert capsysbinary.readouterr().err.decode() == f"{SAID}0 records\n"


def test_who_follows_is_told_once_and_goes_on(monkeypatch, capsysbinary) -> None:
    monkeypatch.setattr(leaderless, "AGAIN_S", 0.0)
    assert consumed(Admin(1), Consumer(0, 1), follow=True) == 0
    assert capsysbinary.readouterr().err.decode() == f"{SAID}0 records\n"


def test_who_has_read_all_and_follows_asks_nobody() -> None:
    admin = Admin(1)
    assert consumed(admin, Consumer(0), follow=True) == 0
    assert admin.looks == 0


def test_who_follows_up_to_a_count_and_is_ended_before_it_was_interrupted() -> None:
    """Ctrl-C is how following ends, unless a count was to end it."""
    assert consumed(Admin(), Consumer(0), follow=True, count=1) == 130


class Short(Consumer):
    """Both partitions end at once, at 2 and at 90."""

    def poll(self, _timeout: float) -> Any:
        self.polls += 1
        if self.polls > 2:
            raise KeyboardInterrupt
        eof = SimpleNamespace(code=lambda: -191)
        number = self.polls - 1
        return SimpleNamespace(
            error=lambda: eof, partition=lambda: number, offset=lambda: (2, 90)[number]
        )


@pytest.mark.parametrize("more", [{}, {"follow": True}])
def test_who_begins_beyond_the_end_is_told_where_that_is(capsysbinary, more: Any) -> None:
    assert consumed(Admin(), Short(0, 1), start="7", **more) == 0
    assert capsysbinary.readouterr().err.decode() == (
        "fencepost: orders-0 ends at 2: --from 7 is beyond that, where nothing has been written yet. `fencepost topic"
        " describe orders` shows what there is.\n0 records\n"
    )
    assert consumed(Admin(), Short(0, 1), start="2", **more) == 0
    assert capsysbinary.readouterr().err == b"0 records\n"


def test_a_leader_that_is_slow_is_waited_for(capsysbinary) -> None:
    assert consumed(Admin(), Consumer(0, 1)) == 130
    assert capsysbinary.readouterr().err == b"0 records\n"


def test_a_leader_that_is_gone_and_that_nobody_can_replace_is_not_waited_for(
    cluster: ToldCluster, capsysbinary
) -> None:
    """Its name is in the metadata yet, as without a majority nobody takes it out."""
    cluster.leads = None
    assert consumed(Admin(), Consumer(0, 1)) == 1
    assert capsysbinary.readouterr().err.decode() == (
        f"fencepost: {NOBODY} Until somebody does, a partition whose leader is down gets no other, and nothing can be read"
        " there.\n0 records\n"
    )


def test_a_group_that_can_not_begin_is_told_which_positions_nobody_leads(capsysbinary) -> None:
    consumer = Consumer()
    consumer.polls = 1
    assert consumed(Admin(0), consumer, group="g") == 130
    assert (
        "__consumer_offsets-0 has no leader: some groups" in capsysbinary.readouterr().err.decode()
    )


@pytest.mark.parametrize(("partition", "is_told"), [(None, True), (1, True), (0, False)])
def test_what_is_written_and_not_acknowledged_is_told_apart(partition, is_told, capsys) -> None:
    words = arguments(partition=partition)
    admin = Admin(1)
    creation = produce._Creation(admin, words.topic)
    tally = produce._Tally(words, Outage("x"), Stall(words, admin, "written"), creation)
    tally.waits()
    tally.waits()
    assert (
        capsys.readouterr().err.count("orders-1 has no leader: nothing can be written") == is_told
    )


@pytest.mark.parametrize(
    ("leaderless", "partition", "places"),
    [((1,), None, "orders-1"), ((), None, "orders-0, orders-1"), ((), 1, "orders-1")],
)
def test_what_is_waited_for_is_said_again_with_how_long_yet(
    monkeypatch, capsys, leaderless, partition, places
) -> None:
    """Five minutes of silence are taken for a command that hangs."""
    words, admin = arguments(partition=partition), Admin(*leaderless)
    tally = produce._Tally(
        words, Outage("x"), Stall(words, admin, "written"), produce._Creation(admin, words.topic)
    )
    tally.queues()
    tally.queues()
    tally.waits()
    assert "still waiting" not in capsys.readouterr().err
    now = time.monotonic()
    for after_s, left in ((11, "4 min 49 s"), (12, None), (22, "4 min 38 s"), (250, "50 s")):
        set_clock(monkeypatch, produce, now_s=lambda after_s=after_s: now + after_s)
        tally.waits()
        said = [line for line in capsys.readouterr().err.splitlines() if "still waiting" in line]
        assert said == [
            f"fencepost: still waiting for {places}: 2 records are not acknowledged; they fail in {left} at the latest."
            " Ctrl-C ends it before."
            for _ in range(left is not None)
        ]
    tally.delivered(None, None)
    tally.waits()
    assert "still waiting" not in capsys.readouterr().err


def test_while_no_broker_answers_nothing_is_said_of_leaders(cluster: ToldCluster, capsys) -> None:
    class Silent(Admin):
        def list_topics(self, timeout: float) -> Any:
            raise KafkaException("timed out")

    assert Stall(arguments(), Silent(1), "read").look(None) is False
    cluster.down = {9002}
    assert Stall(arguments(), Admin(), "read").look(None) is False
    assert capsys.readouterr().err == ""


def test_nothing_is_looked_at_before_everything_has_stood_still(monkeypatch) -> None:
    monkeypatch.setattr(leaderless, "STILL_S", 3.0)
    admin = Admin(1)
    assert Stall(arguments(), admin, "read").look(None) is False
    assert admin.looks == 0
