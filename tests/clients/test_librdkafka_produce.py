"""librdkafka (confluent-kafka) writes: every kind of record, every codec, and the errors it may get back."""

import pytest
from brokers import unsafe
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
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

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize(
    "acks", [pytest.param("0", marks=unsafe), pytest.param("1", marks=unsafe), "all"]
)
def test_every_level_of_acks_writes_every_record_once_in_order(bootstrap, topic, acks) -> None:
    create(bootstrap, topic)
    values = [b"%d" % number for number in range(500)]
    sent = send(producer_of(bootstrap, acks=acks), topic, values)
    assert [message.value() for message in read_all(bootstrap, topic, 500)] == values
    if acks != "0":
        assert [message.offset() for message in sent] == list(range(500))


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_passes_through_untouched(bootstrap, topic, codec) -> None:
    create(bootstrap, topic)
    values = [b"the same words again and again %d " % number * 50 for number in range(200)]
    headers = [("trace", b"\x00\x01"), ("empty", b""), ("none", None), ("trace", b"again")]
    producer = producer_of(bootstrap, compression_type=codec, enable_idempotence=True)
    send(producer, topic, values, key="a key", headers=headers, timestamp=1_700_000_000_123)
    got = read_all(bootstrap, topic, len(values))
    assert [message.value() for message in got] == values
    assert {message.key() for message in got} == {b"a key"}
    assert got[-1].headers() == headers
    assert got[-1].timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)


def test_null_and_empty_keys_and_values_stay_different(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap)
    pairs = [(None, None), (b"", b""), (None, b""), (b"", None), (b"k", None), (None, b"v")]
    for key, value in pairs:
        send(producer, topic, [value], key=key)
    got = read_all(bootstrap, topic, len(pairs))
    assert [(message.key(), message.value()) for message in got] == pairs


def test_an_idempotent_producer_fills_partitions_without_holes(bootstrap, topic) -> None:
    create(bootstrap, topic, partitions=3)
    producer = producer_of(bootstrap, enable_idempotence=True, linger_ms=0)
    sent = send(producer, topic, [b"%d" % number for number in range(3000)])
    for partition in range(3):
        offsets = sorted(m.offset() for m in sent if m.partition() == partition)
        assert offsets == list(range(len(offsets)))
    got = read_all(bootstrap, topic, 3000, partitions=3)
    assert sorted(int(message.value()) for message in got) == list(range(3000))


def test_keys_of_one_hash_go_to_one_partition_in_order(bootstrap, topic) -> None:
    create(bootstrap, topic, partitions=4)
    producer = producer_of(bootstrap, enable_idempotence=True, partitioner="murmur2_random")
    for number in range(100):
        producer.produce(topic, b"%d" % number, key=b"key-%d" % (number % 5))
    assert producer.flush(WAIT_S) == 0
    last: dict[bytes, tuple[int, int]] = {}
    for message in read_all(bootstrap, topic, 100, partitions=4):
        partition, number = last.get(message.key(), (message.partition(), -1))
        assert message.partition() == partition
        assert int(message.value()) > number
        last[message.key()] = (partition, int(message.value()))
    assert len(last) == 5


def test_a_record_just_under_the_limit_is_taken_and_one_over_it_refused(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap, message_max_bytes=4_000_000)
    big = bytes(1_000_000)
    send(producer, topic, [big])
    with pytest.raises(KafkaException) as caught:
        send(producer, topic, [bytes(1_100_000)])
    assert error_code(caught) == KafkaError.MSG_SIZE_TOO_LARGE
    send(producer, topic, [b"after"])
    assert [m.value() for m in read_all(bootstrap, topic, 2)] == [big, b"after"]


def test_a_topic_may_raise_the_limit(bootstrap, topic) -> None:
    create(bootstrap, topic, max_message_bytes=9_000_000)
    value = bytes(range(256)) * 32_000
    send(producer_of(bootstrap, message_max_bytes=9_000_000), topic, [value, b"small"])
    with consumer_of(bootstrap, "unused", fetch_message_max_bytes=65_536) as consumer:
        consumer.subscribe([topic])
        got = receive(consumer, 2)  # the first batch comes whole, however small the limit (KIP-74)
    assert [message.value() for message in got] == [value, b"small"]


def test_log_append_time_is_the_brokers(bootstrap, topic) -> None:
    create(bootstrap, topic, message_timestamp_type="LogAppendTime")
    sent = send(producer_of(bootstrap), topic, [b"x"], timestamp=1_600_000_000_000)
    [got] = read_all(bootstrap, topic, 1)
    kind, written_at = got.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert written_at > 1_700_000_000_000
    assert sent[0].timestamp() == (TIMESTAMP_LOG_APPEND_TIME, written_at)


def test_a_compacted_topic_refuses_a_record_without_key(bootstrap, topic) -> None:
    create(bootstrap, topic, cleanup_policy="compact")
    producer = producer_of(bootstrap)
    send(producer, topic, [b"v"], key=b"k")
    with pytest.raises(KafkaException) as caught:
        send(producer, topic, [b"v"])
    assert error_code(caught) == KafkaError.INVALID_RECORD


def test_a_first_write_creates_the_topic(bootstrap, topic) -> None:
    send(producer_of(bootstrap), topic, [b"first"])
    assert [message.value() for message in read_all(bootstrap, topic, 1)] == [b"first"]
    assert len(admin_of(bootstrap).list_topics(topic, WAIT_S).topics[topic].partitions) == 1


def test_a_name_that_no_topic_can_have_is_refused(bootstrap) -> None:
    producer = producer_of(bootstrap, message_timeout_ms=1_000 * (WAIT_S - 5))
    with pytest.raises(KafkaException) as caught:
        send(producer, "no spaces allowed", [b"x"])
    assert error_code(caught) == KafkaError.TOPIC_EXCEPTION


def test_a_partition_that_is_not_there_is_refused_by_the_client(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap)
    send(producer, topic, [b"x"])
    with pytest.raises(KafkaException) as caught:
        send(producer, topic, [b"x"], partition=7)
    assert error_code(caught) == KafkaError._UNKNOWN_PARTITION


def test_the_internal_topic_refuses_what_a_client_writes(bootstrap, topic, group) -> None:
    send(producer_of(bootstrap), topic, [b"x"])
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        consumer.commit(receive(consumer, 1)[0], asynchronous=False)
    with pytest.raises(KafkaException) as caught:
        send(producer_of(bootstrap), "__consumer_offsets", [b"v"], key=b"k", partition=0)
    assert error_code(caught) == KafkaError.TOPIC_EXCEPTION


def test_a_topic_that_was_deleted_and_made_anew_starts_at_zero(bootstrap, topic) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap, enable_idempotence=True)
    send(producer, topic, [b"old"] * 10)
    admin = admin_of(bootstrap)
    admin.delete_topics([topic])[topic].result(WAIT_S)
    until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, what="the topic is gone")
    create(bootstrap, topic)
    [again] = send(producer_of(bootstrap, enable_idempotence=True), topic, [b"new"])
    assert again.offset() == 0
    assert [message.value() for message in read_all(bootstrap, topic, 1)] == [b"new"]


def test_many_small_requests_in_flight_keep_their_order(bootstrap, topic) -> None:
    """Five requests in flight, each a batch of few records: the window of the idempotent producer."""
    create(bootstrap, topic)
    options = {"linger_ms": 0, "batch_num_messages": 3, "enable_idempotence": True}
    values = [b"%d" % number for number in range(1500)]
    sent = send(producer_of(bootstrap, **options), topic, values)
    assert [message.offset() for message in sent] == list(range(1500))
    assert [message.value() for message in read_all(bootstrap, topic, 1500)] == values
