"""Database, log and brokers are made up, and fail: how a source goes on, or ends."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from fencepost.clients.binlog import Settings, kept_positions, source, transactions, troubles
from fencepost.clients.binlog import __main__ as command
from fencepost.clients.binlog.changes import CREATE, Change, Event, Idle, TransactionEnd, Untold
from fencepost.clients.binlog.columns import Column, Table
from fencepost.clients.binlog.database import CannotFollow, SourceLost
from fencepost.clients.binlog.kept_positions import KeptPositions
from fencepost.clients.binlog.reading import NotReadable
from fencepost.clients.binlog.records import Record
from fencepost.clients.binlog.transactions import Fenced, NotWritten, Transactions
from fencepost.clients.binlog.troubles import Clocks, Part, raise_if_hopeless
from made_up import MadeUp, refusal

ORDERS = Table("shop", "orders", (Column("id", "int"),), ("id",))
SETTINGS = Settings(source="s")


class FakeTime:
    """Goes on by itself while somebody waits, and a little each time that it is asked for."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    for each in (source, transactions):
        monkeypatch.setattr(each, "time", made)
    return made


def waiting(made: Any, clock: FakeTime) -> Any:
    """A source whose pauses take no time."""

    def wait(pause_s: float) -> None:
        clock.pauses.append(pause_s)
        clock.now_s += pause_s

    made._stopping = SimpleNamespace(is_set=lambda: False, wait=wait, set=lambda: None)
    return made


def test_commits_that_fail_for_good_end_a_source_whose_database_is_well(
    made_up: MadeUp, clock: FakeTime
) -> None:
    """Each incarnation hears the database. That is no reason to try for ever, nor five times a second."""
    made_up.source().run()
    made_up.commit(ORDERS, CREATE, after={"id": 1})

    def refuse() -> None:
        raise refusal(KafkaError.NOT_ENOUGH_REPLICAS)

    made_up.brokers.before_commit = refuse
    ending = waiting(made_up.source(give_up_s=60), clock)
    began_s = clock.now_s
    with pytest.raises(KafkaException, match="NOT_ENOUGH_REPLICAS"):
        ending.run()
    assert 60 < clock.now_s - began_s < 70
    assert clock.pauses[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0] and set(clock.pauses[6:]) == {5.0}


def test_what_fails_now_and_then_is_tried_for_ever(made_up: MadeUp, clock: FakeTime) -> None:
    """Every other commit is not answered, for longer than anybody would try who heard of none."""
    made_up.source().run()
    tries = 0

    def refuse_every_other() -> None:
        nonlocal tries
        tries += 1
        clock.now_s += 50
        if tries % 2:
            raise refusal(KafkaError.NOT_ENOUGH_REPLICAS)

    made_up.brokers.before_commit = refuse_every_other
    for number in range(5):
        made_up.commit(ORDERS, CREATE, after={"id": number})
    waiting(made_up.source(give_up_s=60), clock).run()
    assert [key["id"] for key, _ in made_up.brokers.told("orders")] == list(range(5))


def test_each_part_has_its_own_clock() -> None:
    clocks = Clocks(give_up_s=10)
    assert clocks.failed(Part.COMMITS, 0) == 0.2
    assert clocks.failed(Part.DATABASE, 6) == 0.4
    clocks.well(Part.DATABASE)
    assert clocks.failed(Part.DATABASE, 11) == 0.8  # the first failure of another time
    assert clocks.failed(Part.COMMITS, 11) is None
    clocks.well(Part.COMMITS)
    clocks.well(Part.DATABASE)
    assert clocks.failed(Part.COMMITS, 12) == 0.2
    assert Clocks(give_up_s=0).failed(Part.COMMITS, 1e9) is not None


def test_a_commit_whose_answer_was_lost_is_known_by_the_position(made_up: MadeUp, clock) -> None:
    """1. A commit is done and not answered. 2. Nothing happens for an hour. 3. Another one fails, once."""
    made_up.source().run()
    answers = iter([False])
    brokers = made_up.brokers
    keep = brokers.keep

    def keep_unanswered(record: dict[str, Any]) -> None:
        keep(record)
        if record["topic"] == SETTINGS.position_topic and not next(answers, True):
            raise refusal(KafkaError._TIMED_OUT)

    brokers.keep = keep_unanswered  # type: ignore[method-assign]
    made_up.commit(ORDERS, CREATE, after={"id": 0})
    following = waiting(made_up.source(give_up_s=60), clock)
    following.run()
    clock.now_s += 3_600
    brokers.before_commit = fail_once()
    made_up.commit(ORDERS, CREATE, after={"id": 1})
    following.run()
    assert [key["id"] for key, _ in brokers.told("orders")] == [0, 1]


def fail_once() -> Any:
    tries = iter([True])

    def fail() -> None:
        if next(tries, False):
            raise refusal(KafkaError.NOT_ENOUGH_REPLICAS)

    return fail


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, r"--transaction-timeout-s 900 .*max\.timeout\.ms"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, r"Allow this user .*fencepost-binlog-s.*s\.schema"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Allow this user the transactional id"),
        (KafkaError._AUTHENTICATION, r"sasl\.username"),
    ],
)
def test_what_the_brokers_refuse_for_good_ends_at_once_in_a_sentence(code: int, said: str) -> None:
    with pytest.raises(CannotFollow, match=f"^the brokers at 127.0.0.1:9092 refuse: .*{said}"):
        raise_if_hopeless(refusal(code), SETTINGS)


@pytest.mark.slow
def test_a_transaction_timeout_that_the_brokers_do_not_allow_is_named_at_once(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch, bootstrap: str
) -> None:
    monkeypatch.setattr(transactions, "TellingProducer", Producer)
    with pytest.raises(CannotFollow, match=r"--transaction-timeout-s 90000 is more than they"):
        made_up.source(bootstrap=bootstrap, transaction_timeout_s=90_000).run()


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ({"nonsense": "1"}, r"--kafka \(nonsense\): No such configuration property"),
        ({"acks": "1"}, r"--kafka \(acks\): .*`acks` must be set to `all`"),
    ],
)
def test_what_librdkafka_does_not_take_is_named_at_once(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch, kafka: dict[str, str], said: str
) -> None:
    """For five minutes it was tried again."""
    monkeypatch.setattr(transactions, "TellingProducer", Producer)
    with pytest.raises(CannotFollow, match=said):
        made_up.source(kafka=kafka).run()


# -- brokers that take no record -----------------------------------------------------------------


class FullProducer:
    """Nothing goes out of its queue."""

    def __init__(self, *_: Any) -> None: ...

    def begin_transaction(self) -> None: ...

    def poll(self, _: float) -> None: ...

    def produce(self, *_: Any, **__: Any) -> None:
        raise BufferError("Local: Queue full")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Transactions:
    monkeypatch.setattr(transactions, "TellingProducer", FullProducer)
    monkeypatch.setattr(transactions, "QUEUE_FULL_S", 0.0)
    monkeypatch.setattr(transactions, "ensure_topic", lambda *_, **__: 1)
    return Transactions(SETTINGS, KeptPositions({}, "p"))


def test_a_queue_that_stays_full_is_a_trouble_like_others(full: Transactions) -> None:
    """Brokers are away, and rows come faster than 100,000 in a minute."""
    with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:9092 have taken no record for"):
        full.write(Record("t", b"{}", b"{}"))
    with pytest.raises(TimeoutError, match="have taken no record for"):
        full.commit("0-1-7")


@pytest.mark.parametrize("trouble", [TimeoutError("the topic t is not there"), SourceLost("gone")])
def test_a_trouble_that_does_not_pass_ends_the_command_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: Exception
) -> None:
    def run(_: Any) -> None:
        raise trouble

    monkeypatch.setattr(command.BinlogSource, "run", run)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    assert command.main(["--source", "s"]) == 2
    assert capsys.readouterr().err == f"s ended: {trouble}\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "^t takes no record .*allow this user to write"),
        (
            KafkaError.MSG_SIZE_TOO_LARGE,
            r"^t takes no record with the key b'\{\}' .*a value of 2\. If t does not .* say --kafka batch\.size, which is 70000, no",
        ),
    ],
)
def test_a_record_that_is_refused_is_named_though_more_are_written_behind_it(
    full: Transactions, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    """What librdkafka says of those behind it is that the transaction has failed."""
    message = SimpleNamespace(topic=lambda: "t", value=lambda: b"{}", key=lambda: b"{}")
    monkeypatch.setattr(transactions.topic_limits, "bytes_max", lambda *_: None)
    full._settings = replace(full._settings, kafka={"batch.size": "70000"})
    full._delivered(KafkaError(code), message)

    def produce(*_: Any, **__: Any) -> None:
        raise refusal(KafkaError._STATE)

    full._producer.produce = produce
    with pytest.raises(NotWritten, match=said):
        full.write(Record("t", b"{}", b"{}"))


def test_of_a_batch_that_was_refused_the_largest_record_is_named(
    full: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is told to be too large. Which one is, or whether it was the batch, the topic's limit says."""
    for size in (100, 3_000, 200):
        each = SimpleNamespace(
            topic=lambda: "t", value=lambda n=size: b"v" * n, key=lambda n=size: str(n).encode()
        )
        full._delivered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), each)
    monkeypatch.setattr(transactions.topic_limits, "bytes_max", lambda *_: 2_000)
    assert re.search("key b'3000' .* a value of 3,000, and t takes 2,000", full._why_refused())
    monkeypatch.setattr(transactions.topic_limits, "bytes_max", lambda *_: 50_000)
    assert "Say --kafka batch.size=50000" in full._why_refused()


# -- two copies ----------------------------------------------------------------------------------


def test_of_two_copies_the_older_one_ends_when_the_newer_one_takes_its_stream(
    made_up: MadeUp, clock: FakeTime
) -> None:
    """1. A follows a database in which nothing happens. 2. B begins: it fences A, and asks the database as the same replica.
    3. The database ends A's stream. 4. A must not begin anew before it has asked: it would fence B, and cut it off."""
    made_up.source().run()
    newer = made_up.source()

    def begins_anew() -> Iterator[Event]:
        raise AssertionError("the older one began anew")

    def cut_off() -> Iterator[Event]:
        made_up.at_end = begins_anew
        newer.run()
        return iter(())

    made_up.commit(ORDERS, CREATE, after={"id": 1})
    older = waiting(made_up.source(stop_when_caught_up=False), clock)
    made_up.at_end = cut_off
    with pytest.raises(Fenced, match="another copy of the source s has begun"):
        older.run()
    newest = made_up.brokers.last
    newest.begin_transaction()
    newest.commit_transaction(1)  # B can go on


def test_a_stream_that_its_database_ended_alone_is_asked_for_again(made_up: MadeUp, clock) -> None:
    made_up.source().run()
    made_up.commit(ORDERS, CREATE, after={"id": 1})

    def end() -> Iterator[Event]:
        made_up.commit(ORDERS, CREATE, after={"id": 2})
        return iter(())

    made_up.at_end = end
    following = waiting(made_up.source(stop_when_caught_up=False), clock)
    following._stopping.is_set = lambda: following.transactions >= 2
    following.run()
    assert [key["id"] for key, _ in made_up.brokers.told("orders")] == [1, 2]


# -- a large transaction of the database ---------------------------------------------------------


def test_what_was_told_does_not_wait_for_a_large_transaction_behind_it(
    made_up: MadeUp, clock
) -> None:
    """It is of tables that are not followed, or is held until its end: nothing of it is told for long."""
    made_up.source().run()
    made_up.commit(ORDERS, CREATE, after={"id": 1})
    seen: list[int] = []

    def large() -> Iterator[Event]:
        for _ in range(3):
            clock.now_s += 60
            yield Untold()
            seen.append(len(made_up.brokers.told("orders")))
        yield Idle()

    made_up.at_end = large
    following = waiting(made_up.source(stop_when_caught_up=False, linger_ms=100), clock)
    made_up.commit(ORDERS, CREATE, after={"id": 2})
    following._stopping.is_set = lambda: len(seen) == 3
    following.run()
    assert seen == [2, 2, 2]


def test_pauses_are_bounded() -> None:
    clocks = Clocks(give_up_s=0)
    pauses = [clocks.failed(Part.DATABASE, 0) for _ in range(20)]
    assert max(each or 0 for each in pauses) == troubles.PAUSE_MAX_S


def test_a_schema_topic_that_would_forget_is_refused(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its columns nothing says whose rows are gone with a schema, nor that a primary key is another one."""
    monkeypatch.setattr(kept_positions, "losing_policy", lambda *_: "delete")
    said = r"^the topic s\.schema has cleanup\.policy=delete: .*\(--schema-topic\)$"
    with pytest.raises(NotReadable, match=said):
        made_up.source().run()


def test_a_commit_that_fails_long_after_the_last_trouble_is_tried_again(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch, clock: FakeTime
) -> None:
    """Database and brokers were away together at night; both are well since, and nothing happened in the database."""
    lives = failing = 0

    def before_commit() -> None:
        nonlocal failing
        if failing:
            failing -= 1
            raise refusal(KafkaError._TIMED_OUT)

    def at_end() -> Iterator[Event]:
        nonlocal lives, failing
        lives += 1
        if lives == 1:
            failing = 1  # what it asks, to know whether it was fenced, gets no answer
            raise SourceLost("the database restarts")
        if lives == 2:
            clock.now_s += 3_600
            yield Idle()
            failing = 1
        yield Change("0-1-2", 0, 5_000, ORDERS, CREATE, None, {"id": 2})
        yield TransactionEnd("0-1-2")
        if lives == 3:
            found.stop()
        yield Idle()

    made_up.commit(ORDERS, CREATE, after={"id": 1})
    made_up.source().run()
    made_up.brokers.before_commit = before_commit
    made_up.at_end = at_end
    found = waiting(made_up.source(stop_when_caught_up=False, give_up_s=300), clock)
    stopped = threading.Event()
    monkeypatch.setattr(found._stopping, "is_set", stopped.is_set)
    monkeypatch.setattr(found._stopping, "set", stopped.set)
    found.run()
    assert lives == 3
    assert [value["after"]["id"] for _, value in made_up.brokers.told("orders")] == [2]
