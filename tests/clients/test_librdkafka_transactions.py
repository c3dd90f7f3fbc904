"""librdkafka's transactions: seen whole or not at all, whoever is fenced, late, purged or gone."""

import threading

import pytest
from brokers import WAIT_S, calm
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from librdkafka import (
    admin_of,
    consumer_of,
    create,
    error_code,
    producer_of,
    receive,
    send,
    until,
)
from librdkafka_transactions import (
    COMMITTED,
    UNCOMMITTED,
    abort,
    commit,
    ends_of,
    numbered,
    read_settled,
    read_to,
    transact,
    transactional,
    values_of,
    wait_settled,
    write,
)


@calm
def test_a_transaction_is_seen_whole_when_it_is_committed_and_not_before(
    bootstrap, topic, fresh
) -> None:
    create(bootstrap, topic, partitions=3)
    producer = transactional(bootstrap, fresh("writer"))
    producer.begin_transaction()
    write(producer, topic, numbered(30), partitions=3)
    assert producer.flush(WAIT_S) == 0
    assert ends_of(bootstrap, topic, 3, COMMITTED) == {0: 0, 1: 0, 2: 0}
    ends = ends_of(bootstrap, topic, 3, UNCOMMITTED)
    assert ends == {0: 10, 1: 10, 2: 10}
    assert len(read_to(bootstrap, topic, ends, UNCOMMITTED)) == 30
    producer.commit_transaction(WAIT_S)
    got = values_of(read_settled(bootstrap, topic, 3))
    assert got == {part: numbered(30)[part::3] for part in range(3)}
    assert ends_of(bootstrap, topic, 3, COMMITTED) == {0: 11, 1: 11, 2: 11}, "a marker in each"


@calm
def test_an_aborted_transaction_is_passed_over_and_leaves_its_offsets_unused(
    bootstrap, topic, fresh
) -> None:
    create(bootstrap, topic)
    producer = transactional(bootstrap, fresh("writer"))
    for first, end in ((0, producer.abort_transaction), (10, producer.commit_transaction)) * 2:
        producer.begin_transaction()
        write(producer, topic, numbered(10, first))
        assert producer.flush(WAIT_S) == 0
        end(WAIT_S)
    got = read_settled(bootstrap, topic)
    assert [message.value() for message in got] == numbered(10, 10) * 2
    assert [message.offset() for message in got] == [*range(11, 21), *range(33, 43)]
    seen = read_settled(bootstrap, topic, isolation=UNCOMMITTED)
    assert [message.value() for message in seen] == numbered(20) * 2


@calm
def test_readers_wait_at_the_oldest_open_transaction_for_what_stands_behind_it(
    bootstrap, topic, fresh
) -> None:
    create(bootstrap, topic)
    slow, quick = (transactional(bootstrap, fresh(name)) for name in ("slow", "quick"))
    slow.begin_transaction()
    write(slow, topic, [b"slow"])
    assert slow.flush(WAIT_S) == 0
    send(producer_of(bootstrap), topic, [b"plain"])
    quick.begin_transaction()
    write(quick, topic, [b"quick"])
    quick.commit_transaction(WAIT_S)
    until(lambda: ends_of(bootstrap, topic, 1, UNCOMMITTED) == {0: 4}, what="the quick marker")
    assert ends_of(bootstrap, topic, 1, COMMITTED) == {0: 0}
    with consumer_of(bootstrap, isolation_level=COMMITTED) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert reader.poll(0.3) is None
        slow.abort_transaction(WAIT_S)
        got = receive(reader, 2)
    assert [(m.offset(), m.value()) for m in got] == [(1, b"plain"), (2, b"quick")]
    assert wait_settled(bootstrap, topic) == {0: 5}


def test_a_second_producer_with_the_same_id_fences_the_first(bootstrap, topic, fresh) -> None:
    create(bootstrap, topic)
    name = fresh("writer")
    zombie = transactional(bootstrap, name)
    zombie.begin_transaction()
    write(zombie, topic, [b"from the dead"])
    zombie.flush(WAIT_S)
    heir = transactional(bootstrap, name)
    transact(heir, lambda: write(heir, topic, [b"heir"]))
    with pytest.raises(KafkaException) as caught:
        commit(zombie)
    assert caught.value.args[0].fatal()
    assert error_code(caught) == KafkaError._FENCED
    transact(heir, lambda: write(heir, topic, [b"again"]))
    assert [message.value() for message in read_settled(bootstrap, topic)] == [b"heir", b"again"]


def test_a_new_producer_ends_what_its_last_incarnation_left_open(bootstrap, topic, fresh) -> None:
    create(bootstrap, topic, partitions=4)
    name = fresh("writer")

    def live_and_die(value: bytes) -> None:
        producer = transactional(bootstrap, name)
        wait_settled(bootstrap, topic, 4)
        transact(producer, lambda: write(producer, topic, [value] * 8, 4))
        producer.begin_transaction()
        write(producer, topic, [b"left open"] * 8, 4)
        producer.flush(WAIT_S)

    for number in range(3):
        live_and_die(b"%d" % number)
    transactional(bootstrap, name)
    got = values_of(read_settled(bootstrap, topic, 4))
    assert got == {part: [b"0", b"0", b"1", b"1", b"2", b"2"] for part in range(4)}


@pytest.mark.slow
def test_a_transaction_that_lasts_too_long_is_aborted_by_its_coordinator(
    bootstrap, topic, fresh
) -> None:
    """The coordinator looks for them every ten seconds."""
    create(bootstrap, topic)
    late = transactional(bootstrap, fresh("late"), transaction_timeout_ms=1_000)
    late.begin_transaction()
    write(late, topic, [b"too late"])
    late.flush(WAIT_S)
    send(producer_of(bootstrap), topic, [b"behind it"])
    got = read_settled(bootstrap, topic)
    assert [message.value() for message in got] == [b"behind it"]
    with pytest.raises(KafkaException) as caught:
        commit(late)
    assert caught.value.args[0].fatal()
    assert error_code(caught) == KafkaError._FENCED


def test_a_purged_transaction_can_only_be_aborted(bootstrap, topic, fresh) -> None:
    create(bootstrap, topic)
    producer = transactional(bootstrap, fresh("writer"), linger_ms=30_000)
    producer.begin_transaction()
    write(producer, topic, numbered(10))
    producer.purge()
    with pytest.raises(KafkaException) as caught:
        commit(producer)
    assert caught.value.args[0].txn_requires_abort()
    abort(producer)
    transact(producer, lambda: write(producer, topic, [b"the next"]))
    assert [message.value() for message in read_settled(bootstrap, topic)] == [b"the next"]


def test_a_refused_record_ends_in_an_abort_and_the_producer_goes_on(
    bootstrap, topic, fresh
) -> None:
    create(bootstrap, topic, max_message_bytes=10_000)
    producer = transactional(bootstrap, fresh("writer"))
    producer.begin_transaction()
    write(producer, topic, [b"small", bytes(20_000)])
    with pytest.raises(KafkaException) as caught:
        commit(producer)
    assert caught.value.args[0].txn_requires_abort()
    abort(producer)
    # librdkafka misses the sequence numbers of what was refused, and gives up one more transaction for it.
    transact(producer, lambda: write(producer, topic, [b"the next"]), again=True)
    assert [message.value() for message in read_settled(bootstrap, topic)] == [b"the next"]


def test_a_transaction_over_many_partitions_is_seen_whole(bootstrap, topic, fresh) -> None:
    topics = [f"{topic}.{number}" for number in range(3)]
    for each in topics:
        create(bootstrap, each, partitions=20)
    producer = transactional(bootstrap, fresh("writer"))

    def everywhere(value: bytes) -> None:
        for each in topics:
            write(producer, each, [value] * 20, 20)

    for number in range(3):
        transact(producer, lambda: everywhere(b"%d" % number))  # noqa: B023
        producer.begin_transaction()
        everywhere(b"never")
        producer.flush(WAIT_S)
        abort(producer)
    for each in topics:
        got = values_of(read_settled(bootstrap, each, 20))
        assert got == {part: [b"0", b"1", b"2"] for part in range(20)}


@pytest.mark.slow
def test_many_producers_at_once_leave_each_transaction_whole_and_in_order(
    bootstrap, topic, fresh
) -> None:
    create(bootstrap, topic, partitions=3)
    producers, rounds = 12, 10
    failures: list[BaseException] = []

    def work(who: int) -> None:
        try:
            producer = transactional(bootstrap, fresh(f"writer-{who}"))
            for number in range(rounds):
                values = [b"%d:%d:%d" % (who, number, part) for part in range(9)]
                transact(producer, lambda: write(producer, topic, values, 3))  # noqa: B023
                producer.begin_transaction()
                write(producer, topic, [b"never"] * 3, 3)
                producer.flush(WAIT_S)  # else it may abort what no coordinator has heard of
                abort(producer)
        except BaseException as failure:  # noqa: BLE001 - raised where the test hears it
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    got = values_of(read_settled(bootstrap, topic, 3))
    for partition in range(3):
        for who in range(producers):
            mine = [value for value in got[partition] if value.startswith(b"%d:" % who)]
            assert mine == [
                b"%d:%d:%d" % (who, number, part)
                for number in range(rounds)
                for part in range(partition, 9, 3)
            ]
    assert sum(len(values) for values in got.values()) == producers * rounds * 9


def test_a_timeout_over_the_maximum_is_refused(bootstrap, fresh) -> None:
    with pytest.raises(KafkaException) as caught:
        transactional(bootstrap, fresh("writer"), transaction_timeout_ms=900_001)
    assert caught.value.args[0].fatal()
    assert error_code(caught) == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_a_topic_deleted_inside_a_transaction_does_not_hold_up_the_others(
    bootstrap, topic, fresh
) -> None:
    doomed, name = fresh("doomed"), fresh("writer")
    for each in (topic, doomed):
        create(bootstrap, each)
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, [b"kept"])
    write(producer, doomed, [b"gone"])
    assert producer.flush(WAIT_S) == 0
    admin_of(bootstrap).delete_topics([doomed])[doomed].result(WAIT_S)
    commit(producer)
    transact(producer, lambda: write(producer, topic, [b"the next"]))
    assert [m.value() for m in read_settled(bootstrap, topic)] == [b"kept", b"the next"]


def test_transactions_without_a_record_are_committed_and_aborted_too(
    bootstrap, topic, fresh
) -> None:
    create(bootstrap, topic)
    producer = transactional(bootstrap, fresh("writer"))
    for _ in range(3):
        transact(producer, lambda: None)
        producer.begin_transaction()
        abort(producer)
    transact(producer, lambda: write(producer, topic, [b"at last"]))
    assert [message.value() for message in read_settled(bootstrap, topic)] == [b"at last"]


def test_one_producer_goes_on_and_on(bootstrap, topic, fresh) -> None:
    """With transaction.version 2 each transaction has an epoch of its own."""
    create(bootstrap, topic, partitions=2)
    producer = transactional(bootstrap, fresh("writer"), linger_ms=0)
    for number in range(100):
        transact(producer, lambda: write(producer, topic, [b"%d" % number] * 2, 2))  # noqa: B023
    got = values_of(read_settled(bootstrap, topic, 2))
    assert got == {0: numbered(100), 1: numbered(100)}
