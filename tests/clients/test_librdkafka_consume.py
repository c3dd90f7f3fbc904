"""librdkafka (confluent-kafka) reads: from where it likes, as long as it likes, and told when it can't."""

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from librdkafka import (
    WAIT_S,
    admin_of,
    consumer_of,
    create,
    error_code,
    producer_of,
    read_all,
    receive,
    send,
    until,
)

# A fetch that waits three times as long as `receive` does: what comes within that was not its deadline's.
PARKED = {"fetch_wait_max_ms": 3_000 * WAIT_S, "socket_timeout_ms": 3_000 * WAIT_S + 5_000}


def fill(bootstrap: str, topic: str, count: int, **options) -> None:
    values = [b"%d" % number for number in range(count)]
    send(producer_of(bootstrap, **options), topic, values)


def test_a_seek_moves_to_any_offset_in_both_directions(bootstrap, topic) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 300)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert receive(consumer, 1)[0].offset() == 0
        for offset in (250, 17, 299, 0):
            consumer.seek(TopicPartition(topic, 0, offset))
            [got] = receive(consumer, 1)
            assert (got.offset(), got.value()) == (offset, b"%d" % offset)
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 1


def test_the_end_is_where_the_next_record_will_be(bootstrap, topic) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 10)
    with consumer_of(bootstrap, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        eof = consumer.poll(WAIT_S)
        assert eof.error().code() == KafkaError._PARTITION_EOF
        assert eof.offset() == 10
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (0, 10)
        fill(bootstrap, topic, 1)
        assert receive(consumer, 1)[0].offset() == 10


def test_a_time_finds_the_first_record_that_is_not_older(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap)
    for second in (10, 20, 30):
        send(producer, topic, [b"x", b"y"], timestamp=1_700_000_000_000 + second * 1000)
    asked = {0: 0, 10: 0, 11: 2, 20: 2, 30: 4, 31: -1}
    with consumer_of(bootstrap) as consumer:
        for second, offset in asked.items():
            when = TopicPartition(topic, 0, 1_700_000_000_000 + second * 1000)
            [found] = consumer.offsets_for_times([when], timeout=WAIT_S)
            assert found.offset == offset, f"asked for {second} s"


def test_an_offset_past_the_end_is_told_or_reset(bootstrap, topic) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 5)
    with consumer_of(bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = consumer.poll(WAIT_S)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in message.error().str().lower()
    with consumer_of(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        assert receive(consumer, 5)[0].offset() == 0


def test_a_waiting_fetch_is_woken_by_a_record(bootstrap, topic) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 1)
    with consumer_of(bootstrap, **PARKED) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        receive(consumer, 1)
        assert consumer.poll(0.3) is None  # the next fetch is parked now
        producer = producer_of(bootstrap, linger_ms=0)
        send(producer, topic, [b"wake"])
        receive(consumer, 1)  # long before the fetch's own deadline


def test_fetch_min_bytes_waits_for_enough_or_for_the_deadline(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap, linger_ms=0)
    send(producer, topic, [b"first"])
    with consumer_of(bootstrap, fetch_min_bytes=50_000, fetch_wait_max_ms=1_000) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert receive(consumer, 1)[0].value() == b"first"
    with consumer_of(bootstrap, fetch_min_bytes=50_000, **PARKED) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1)])
        assert consumer.poll(0.3) is None  # the fetch is parked now
        send(producer, topic, [bytes(60_000)])
        receive(consumer, 1)  # enough bytes end the wait, long before its deadline


def test_a_paused_partition_is_silent_until_it_is_resumed(bootstrap, topic) -> None:
    create(bootstrap, topic, partitions=2)
    producer = producer_of(bootstrap)
    for partition in (0, 1):
        send(producer, topic, [b"x"] * 10, partition=partition)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
        consumer.pause([TopicPartition(topic, 0)])
        assert {message.partition() for message in receive(consumer, 10)} == {1}
        assert consumer.poll(0.2) is None
        consumer.resume([TopicPartition(topic, 0)])
        assert {message.partition() for message in receive(consumer, 10)} == {0}


def test_a_topic_that_is_not_there_is_told_to_a_consumer(bootstrap, topic, group) -> None:
    with consumer_of(bootstrap, group, allow_auto_create_topics=False) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
        assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with consumer_of(bootstrap) as consumer, pytest.raises(KafkaException) as caught:
        consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=3)
    assert error_code(caught) in {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }


def test_small_fetches_of_many_partitions_bring_everything(bootstrap, topic) -> None:
    create(bootstrap, topic, partitions=12)
    producer = producer_of(bootstrap, compression_type="lz4")
    for partition in range(12):
        send(producer, topic, [b"%d" % n + bytes(2000) for n in range(50)], partition=partition)
    limits = {"fetch_message_max_bytes": 4_000, "fetch_max_bytes": 20_000}
    with consumer_of(bootstrap, message_max_bytes=20_000, **limits) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(12)])
        got = receive(consumer, 600)
    for partition in range(12):
        offsets = [m.offset() for m in got if m.partition() == partition]
        assert offsets == list(range(50))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_what_no_transaction_wrote(bootstrap, topic, isolation) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 100, enable_idempotence=True)
    with consumer_of(bootstrap, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [m.offset() for m in receive(consumer, 100)] == list(range(100))


def test_a_reader_that_was_overtaken_by_delete_records_goes_on_at_the_new_start(
    bootstrap, topic
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 20)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 3)])
        before = TopicPartition(topic, 0, 15)
        [deleted] = admin_of(bootstrap).delete_records([before]).values()
        assert deleted.result(WAIT_S).low_watermark == 15
        consumer.seek(TopicPartition(topic, 0, 3))
        until(
            lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (15, 20),
            what="the low watermark moved",
        )
        offsets = [m.offset() for m in receive(consumer, 5)]
    assert offsets[-1] == 19
    assert [m.offset() for m in read_all(bootstrap, topic, 5)] == [15, 16, 17, 18, 19]
