"""A transaction that has failed before its end: whoever writes on is told why, though librdkafka's `produce` does not say it."""

import gc
import time
import weakref
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.kept_positions import KeptPositions
from fencepost.clients.binlog.records import Record
from fencepost.clients.binlog.transactions import NotWritten, Transactions, is_fenced

pytestmark = pytest.mark.slow
SOON_S = 30.0


def begun(bootstrap: str, source: str) -> Transactions:
    settings = Settings(source=source, bootstrap=bootstrap)
    positions = KeptPositions({"bootstrap.servers": bootstrap}, settings.position_topic)
    positions.prepare()
    made = Transactions(settings, positions)
    made.start()
    return made


def create(bootstrap: str, topic: str, **config: str) -> None:
    named = {name.replace("_", "."): config[name] for name in config}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=named)])[topic].result(SOON_S)


@pytest.mark.parametrize("writes_on", [False, True], ids=["it commits", "it writes on"])
def test_a_record_that_was_refused_is_named_by_whatever_comes_next(
    bootstrap: str, *, writes_on: bool
) -> None:
    """With the default --linger-ms its broker has answered long before the commit: for five minutes it was tried again, and
    then said to be "Erroneous state"."""
    topic = f"small-{writes_on}"
    create(bootstrap, topic, max_message_bytes="1000")
    transactions = begun(bootstrap, topic)
    transactions.write(Record(topic, b"{}", Random(1).randbytes(4_000), 0))
    time.sleep(0.5)
    with pytest.raises(NotWritten, match=rf"^{topic} takes no record with the key b'\{{\}}'"):
        if writes_on:
            transactions.write(Record(topic, b"{}", b"v", 0))
        transactions.commit("0-1-1")
    transactions.abandon()


@pytest.mark.parametrize("writes_on", [False, True], ids=["it commits", "it writes on"])
def test_who_was_fenced_is_told_so_by_whatever_comes_next(
    bootstrap: str, *, writes_on: bool
) -> None:
    """It would begin anew, fence the newer copy in its turn, and so on."""
    topic = f"fenced-{writes_on}"
    create(bootstrap, topic)
    older = begun(bootstrap, topic)
    record = Record(topic, b"{}", b"v", 0)
    older.write(record)
    newer = begun(bootstrap, topic)
    deadline = time.monotonic() + SOON_S
    with pytest.raises(KafkaException) as raised:
        older.write(record)
        time.sleep(0.5)
        while writes_on and time.monotonic() < deadline:
            older.write(record)
        older.commit("0-1-1")
    assert is_fenced(raised.value), raised.value
    newer.commit("0-1-1")


class CutOff(Producer):
    """Its brokers are away, and its commit is still under way; or it was fenced, and says so with each call."""

    says_so = False

    def flush(self, *arguments: float) -> int:
        left = super().flush(*arguments)
        if self.says_so:
            raise KafkaException(KafkaError(KafkaError._FENCED))
        return left

    def abort_transaction(self, *_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "a commit is under way"))


@pytest.mark.parametrize("says_so", [False, True])
def test_a_producer_that_is_given_up_takes_its_records_with_it(*, says_so: bool) -> None:
    """Nobody was left to be told of them, so librdkafka kept them, and they their transactions with all of its threads: once more with
    each outage in the middle of a commit."""
    given_up = object.__new__(Transactions)
    given_up._undelivered, given_up._refused, given_up.is_open = None, [], True
    given_up._producer = CutOff({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    given_up._producer.says_so = says_so
    given_up._producer.produce("t", b"row", on_delivery=given_up._delivered)
    seen = weakref.ref(given_up)
    given_up.abandon()
    del given_up
    gc.collect()
    assert seen() is None
