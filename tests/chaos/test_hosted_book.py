"""What hosted clients write down, so that it is known when their process is killed."""

import asyncio
import io
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fencepost.chaos.checkers.txn_history import NO_NUMBER, Txn, from_lines
from fencepost.chaos.runs.notes import Notes
from fencepost.chaos.workloads.cluster_client import Damaged
from fencepost.chaos.workloads.hosted_added import NotedDesk, Wanted
from fencepost.chaos.workloads.hosted_book import NotedBook, NotedClient, NotedProducer
from fencepost.chaos.workloads.txn_answers import BrokenPromise
from fencepost.chaos.workloads.txn_client import TransactionalProducer
from fencepost.chaos.workloads.txn_habits import Habits
from fencepost.chaos.workloads.txn_process import SLOTS_MAX
from fencepost.chaos.workloads.txn_reader import number_of
from fencepost.cluster.base.errors import Trouble

KILLED = asyncio.CancelledError


@pytest.fixture
def notes(tmp_path):
    with (tmp_path / "notes.jsonl").open("a") as file:
        yield file


def left_open(notes) -> list[Txn]:
    return Notes(Path(notes.name), 0.0).left_open(time.monotonic())


class Killed:
    """A producer whose process is killed while it sends, for what anybody knows."""

    async def send(self, *_) -> int:
        raise KILLED


def test_what_a_killed_process_had_sent_was_written_down_before(notes) -> None:
    book = NotedBook(notes, 3)
    op = book.open("feeder-3.1")
    with pytest.raises(KILLED):
        asyncio.run(book.send(Killed(), op, ("in", 0), [0, 0]))
    (found,) = left_open(notes)
    assert (found.f, found.type, found.number) == ("txn", "info", op.number)
    assert [sent.value for sent in found.sends] == [sent.value for sent in op.sends]
    assert found.began_s > 0.0
    assert [*found.sent_s] == ["in-0"] and found.sent_s["in-0"] > 0.0


def test_who_is_killed_while_it_sleeps_had_written_down_for_how_long(notes) -> None:
    book = NotedBook(notes, 3)
    op = book.open("feeder-3.1")

    async def sleep(_seconds: float) -> None:
        raise KILLED

    env = SimpleNamespace(rng=random.Random(1), clock=SimpleNamespace(sleep=sleep))
    habits = Habits(new_protocol=True, timeout_ms=6_000, dawdle_odds=1.0)
    with pytest.raises(KILLED):
        asyncio.run(habits.maybe_dawdle(SimpleNamespace(env=env), book, op))
    (found,) = left_open(notes)
    assert (found.number, found.slept_s) == (op.number, op.slept_s)
    assert 0.0 < found.slept_s <= 12.0


def test_what_it_polled_and_where_it_puts_its_group_is_written_down_before_it_can_be_committed(
    notes, monkeypatch
) -> None:
    async def transact(_self, op, work, *, commit=True) -> None:
        await work()
        raise KILLED

    monkeypatch.setattr(TransactionalProducer, "transact", transact)
    env = SimpleNamespace(rng=random.Random(1), clock=None)
    book = NotedBook(notes, 3)
    client = NotedClient(env, [("h", 1)], name="worker-3.1", book=book)
    producer = NotedProducer(client, "worker-3", book=book, new_protocol=True)
    op = book.open("worker-3.1")

    async def work() -> None:
        op.offsets["pipeline|in-0"] = 7

    with pytest.raises(KILLED):
        asyncio.run(producer.transact(op, work))
    (found,) = left_open(notes)
    assert found.offsets == {"pipeline|in-0": 7}


def test_a_position_names_its_transaction_in_a_way_that_confluent_kafka_reads_to_its_end(
    notes, monkeypatch
) -> None:
    """It takes metadata for a text that ends with a zero byte, and once read a byte of somebody else's behind it."""
    sent: list[str] = []

    async def send_offsets(_self, _group, _offsets, metadata, **_more) -> None:
        sent.append(metadata)

    monkeypatch.setattr(TransactionalProducer, "send_offsets", send_offsets)
    book = NotedBook(notes, 3)
    client = NotedClient(SimpleNamespace(), [], name="worker-3.1", book=book)
    producer = NotedProducer(client, "worker-3", book=book, new_protocol=True)
    asyncio.run(producer.send_offsets("pipeline", {("in", 0): 7}, "3919994892803"))
    assert sent == ["3919994892803\0"]
    assert number_of(sent[0]) == number_of("3919994892803") == 3_919_994_892_803
    assert number_of("") == number_of(None) == NO_NUMBER


def test_numbers_are_unique_among_places_and_rise_from_one_life_to_the_next() -> None:
    books = [NotedBook(io.StringIO(), slot) for slot in (1, 2)]
    found = [book.next_number() for _ in range(500) for book in books]
    found += [book.next_value() for book in books]
    assert len(set(found)) == len(found)
    mine = [each for each in found if each % SLOTS_MAX == 1]
    assert mine == sorted(mine)
    time.sleep(0.01)
    assert NotedBook(io.StringIO(), 1).next_number() > max(mine)


def test_whatever_takes_no_time_has_an_end_all_the_same(notes) -> None:
    """An operation without one counts as under way, until its process is gone."""
    NotedBook(notes, 1).close(Txn("assign", "ok", "worker-1.1"))
    (found,) = left_open(notes)
    assert (found.f, found.type) == ("assign", "ok")


def test_damage_is_written_down_with_its_place_and_once(notes) -> None:
    book = NotedBook(notes, 1)
    client = NotedClient(SimpleNamespace(), [], name="follower-0.1", book=book)
    for _ in range(3):
        client.served_damage("in-0", 5, Damaged("node 2 served a damaged batch"))
    (found,) = left_open(notes)
    assert (found.f, found.positions, client.damaged) == ("damaged", {"in-0": 5}, 3)


def test_what_a_half_message_came_to_is_known_to_who_never_heard_of_it() -> None:
    shop, checker = Wanted(), Wanted()
    names = [f"shop-1.1-{serial}" for serial in range(60)]
    for name in names:
        shop[name] = "rollback"  # as the shop has drawn
    assert [shop[name] for name in names] == [checker[name] for name in names]
    assert {checker[name] for name in names} == {"commit", "rollback"}


def desk(notes) -> NotedDesk:
    return NotedDesk(NotedBook(notes, 1), "shop-1.1")


def test_a_half_message_of_a_killed_shop_is_in_the_history_with_its_name(notes) -> None:
    counter = desk(notes)
    op = counter.book.open("shop-1.1")
    counter.open["shop-1.1-1"] = op
    (found,) = left_open(notes)
    assert (found.type, found.process, found.told) == ("info", "shop-1.1-1", {"shop-1.1-1": ""})


def test_who_ends_a_half_message_of_another_says_what_it_was_told(notes) -> None:
    desk(notes).settle("shop-7.3-9", "committed", 1.0)
    notes.flush()
    (found,) = from_lines(Path(notes.name).read_text().splitlines())
    assert (found.f, found.told) == ("told", {"shop-7.3-9": "committed"})


def test_a_half_message_that_changes_its_mind_breaks_a_promise(notes) -> None:
    counter = desk(notes)
    counter.settle("x", "committed", 1.0)
    with pytest.raises(BrokenPromise, match="was committed and is rolled_back"):
        counter.settle("x", "rolled_back", 2.0)


class Cluster:
    """Whose `transaction.version` is this; None: nobody answers."""

    def __init__(self, level: int | None) -> None:
        self.level = level

    async def request(self, _key, **_fields) -> SimpleNamespace:
        if self.level is None:
            raise Trouble("away")
        feature = SimpleNamespace(name="transaction.version", max_version_level=self.level)
        return SimpleNamespace(finalized_features=[feature])

    def any(self) -> "Cluster":
        return self


@pytest.mark.parametrize(
    ("level", "wants", "has"),
    [(2, True, True), (2, False, False), (1, True, False), (None, True, False)],
)
def test_the_new_protocol_is_spoken_where_the_cluster_has_it(
    notes, monkeypatch, level, wants, has
) -> None:
    """Else nothing that it writes is acknowledged until the last node is upgraded: a key of its alone counts as unavailable."""

    async def init(_self) -> None: ...

    monkeypatch.setattr(TransactionalProducer, "init", init)
    book = NotedBook(notes, 3)
    producer = NotedProducer(Cluster(level), "worker-3", book=book, new_protocol=wants)
    producer.by_id = wants
    asyncio.run(producer.init())
    assert (producer.new_protocol, producer.by_id) == (has, has)
