"""One process of the queue workload, on a producer and a consumer that know no broker."""

import io
import time

import pytest
from confluent_kafka import OFFSET_STORED, KafkaError
from fencepost.chaos.checkers.txn_history import Polled, from_lines
from fencepost.chaos.workloads.queue_client import AGAIN, BEGUN_S, QueueClient, parser
from fencepost.chaos.workloads.txn_process import Worker


class FakeProducer:
    """Acknowledges all, and keeps what was noted when the positions were sent."""

    def __init__(self, notes: io.StringIO) -> None:
        self.notes = notes
        self.sent: list[tuple] = []
        self.noted: list = []
        self._told: list = []

    def begin_transaction(self) -> None: ...

    def produce(self, topic, data, *, partition, on_delivery) -> None:
        self.sent.append((topic, partition, data))
        self._told.append(on_delivery)

    def poll(self, seconds) -> None:
        for told in self._told:
            told(None, FakeMessage(7))
        self._told.clear()

    def send_offsets_to_transaction(self, offsets, metadata, seconds) -> None:
        self.noted = from_lines(self.notes.getvalue().splitlines())

    def commit_transaction(self, seconds) -> None: ...

    def abort_transaction(self, seconds) -> None: ...


class FakeMessage:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class FakeConsumer:
    def __init__(self) -> None:
        self.assigned: list[tuple] = []

    def assign(self, places) -> None:
        self.assigned = [(each.topic, each.partition, each.offset) for each in places]

    def consumer_group_metadata(self) -> object:
        return object()


class Client(QueueClient):
    """Polls one record each time; `moved` comes with the next poll."""

    moved = False

    def poll(self, consumer, op, most, seconds) -> None:
        at = self.positions.get("t0-1") or 4
        op.polls.append(Polled("t0-1", at, at * 8, at))
        self.positions["t0-1"] = at + 1


@pytest.fixture
def made():
    notes = io.StringIO()
    words = ["--slot", "1", "--life", "1", "--bootstrap", "127.0.0.1:1", "--notes", "none"]
    client = Client(parser().parse_args(words), notes)
    client.producer = FakeProducer(notes)
    client.topics._there = {f"t{number}" for number in range(40)}
    client.born()
    client.positions = {"t0-1": None}
    client.rng.random = lambda: 0.99  # neither aborts nor dawdles, and polls only
    return client, notes, FakeConsumer()


def test_what_a_transaction_consumes_is_written_down_before_its_positions_are_sent(made) -> None:
    client, notes, consumer = made
    assert client._operate(consumer)
    before = client.producer.noted[-1]
    assert (before.type, before.ended_s) == ("info", 0.0)
    assert before.polls
    assert before.offsets == {"queue-1.1.1|t0-1": before.polls[-1].offset + 1}
    assert from_lines(notes.getvalue().splitlines())[-1].type == "ok"


def test_what_was_polled_before_a_rebalance_is_noted_as_shown_and_nothing_else(
    made, monkeypatch
) -> None:
    """It is nobody's to work on, and a reader at read_committed was shown it: it may not vanish."""
    client, notes, consumer = made
    before, after = Polled("t0-1", 4, 32, 4), Polled("t0-1", 9, 72, 9)

    def polls(self, consumer, op, most, seconds) -> None:
        moves = not op.shown
        op.polls.append(before if moves else after)
        self._moved += ["t0-1"] if moves else []

    monkeypatch.setattr(Worker, "poll", polls)
    monkeypatch.setattr(Client, "poll", QueueClient.poll)
    client.rng.randint = lambda _least, most: most  # steps
    assert client._operate(consumer)
    op = from_lines(notes.getvalue().splitlines())[-1]
    assert (op.type, op.shown, op.rebalanced) == ("ok", [before], ["t0-1"])
    assert set(op.polls) == {after}


def test_what_is_worked_on_again_after_a_rebalance_is_in_the_transaction_though_it_ends_where_it_was(
    made, monkeypatch
) -> None:
    """Its group had lost the position: with nothing in the transaction nobody would see that the same was done twice."""
    client, notes, consumer = made
    client.subscribes, client._mine = True, ["t0-1"]
    client.positions = {"t0-1": 10}
    again = Polled("t0-1", 9, 72, 9)

    def polls(self, consumer, op, most, seconds) -> None:
        if not op.shown and not op.rebalanced:
            self._moved += ["t0-1"]
        else:
            op.polls.append(again)
            self.positions["t0-1"] = 10

    monkeypatch.setattr(Worker, "poll", polls)
    monkeypatch.setattr(Client, "poll", QueueClient.poll)
    client.rng.randint = lambda _least, most: most  # steps
    assert client._operate(consumer)
    op = from_lines(notes.getvalue().splitlines())[-1]
    assert (op.type, op.rebalanced, op.offsets) == ("ok", ["t0-1"], {"queue|t0-1": 10})


def test_after_an_abort_it_polls_again_from_the_first_record_on(made) -> None:
    client, _, consumer = made
    client.positions = {"t0-0": None, "t0-1": 4}
    client.producer.commit_transaction = refuse
    assert client._operate(consumer)
    assert client.positions == {"t0-0": None, "t0-1": 4}
    assert ("t0", 1, 4) in consumer.assigned


def test_where_it_begins_is_written_down_where_it_is_and_where_its_group_is_and_else_0(
    made,
) -> None:
    """Else what it is shown first could be anything."""
    client, notes, consumer = made
    assert client._operate(consumer)
    end = client.positions["t0-1"]
    client.window, client.rng.randint = [0, 1, 2], lambda _least, most: most
    client.unseen.clear()
    client.positions = {"t0-0": 3}  # t0-1 was left meanwhile
    assert client._choose(consumer)
    op = from_lines(notes.getvalue().splitlines())[-1]
    assert op.begins == {"t0-0": 3, "t0-1": end, "t1-0": 0}
    assert sorted(op.positions) == sorted(op.begins)
    began = {("t0", 0, 3), ("t0", 1, OFFSET_STORED), ("t1", 0, OFFSET_STORED)}
    assert set(consumer.assigned) == began
    client._begin_again(consumer, time.monotonic() + BEGUN_S)
    assert from_lines(notes.getvalue().splitlines())[-1].begins == op.begins


def test_what_was_assigned_and_has_not_begun_is_assigned_again_and_noted(made) -> None:
    """librdkafka leaves it so for good when a coordinator had moved (its issue 5586)."""
    client, notes, consumer = made
    client.positions = {"t0-0": None, "t0-1": 4}
    client._assign(consumer)
    client._begin_again(consumer, time.monotonic() + BEGUN_S - 1.0)
    assert not notes.getvalue(), "it has had no time"
    consumer.assigned = []
    client._begin_again(consumer, time.monotonic() + BEGUN_S)
    [op] = from_lines(notes.getvalue().splitlines())
    assert (op.f, op.why, sorted(op.positions)) == ("assign", AGAIN, ["t0-0", "t0-1"])
    assert consumer.assigned == [("t0", 0, OFFSET_STORED), ("t0", 1, 4)]
    client.positions["t0-0"] = 0
    client._begin_again(consumer, time.monotonic() + 100.0)
    assert len(notes.getvalue().splitlines()) == 1, "all have begun"


def test_who_subscribes_says_which_partitions_it_may_be_given(made) -> None:
    client, notes, consumer = made
    client.subscribes, client.window = True, [4, 5, 7]
    client.rng.randint = lambda _low, high: high
    consumer.subscribe = lambda *_, **__: None
    assert client._choose(consumer)
    [op] = from_lines(notes.getvalue().splitlines())
    assert (op.f, op.rebalanced) == ("subscribe", ["t2-0", "t2-1", "t3-0", "t3-1"])


def refuse(_seconds) -> None:
    from confluent_kafka import KafkaException

    raise KafkaException(Abortable(KafkaError._STATE))


class Abortable(KafkaError):
    def retriable(self) -> bool:
        return False

    def txn_requires_abort(self) -> bool:
        return True


def test_a_key_that_was_written_to_often_enough_is_left_for_the_next(made) -> None:
    client, _, _ = made
    client.chosen.keys, client.chosen.writes_max, client.chosen.clients = 1, 6, 2
    client.window = [5]
    assert [client._next_key() for _ in range(7)] == [5, 5, 5, 6, 6, 6, 7]
