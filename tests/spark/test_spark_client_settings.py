"""What is said to librdkafka with `kafka.…`: tried on the driver, and refused by the option's name."""

import ctypes
from collections.abc import Mapping
from typing import Any

import pytest
from fencepost.clients.spark import c_library, fencing
from fencepost.clients.spark.client_settings import of_sink
from fencepost.clients.spark.fencing import fence
from fencepost.clients.spark.option_table import BATCH, BATCH_SINK
from fencepost.clients.spark.options import WrongOption, read_options, write_options

READS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
WRITES = {"kafka.bootstrap.servers": "127.0.0.1:9092", "adminurl": "http://127.0.0.1:10092"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.compresion.type", "lz4", r"no setting compresion\.type \(is it kafka\.compression\.codec\?\)"),
        ("kafka.nonsense", "1", "kafka.nonsense: librdkafka has no setting nonsense; .*CONFIGURATION.md"),
        ("kafka.sasl.jaas.config", "x", "Java JAAS configuration is not supported"),
        ("kafka.buffer.memory", "9", "of Java's clients: say kafka.queue.buffering.max.kbytes"),
        ("kafka.compression.type", "brotli", "kafka.compression.type=brotli is refused by librdkafka: .*brotli"),
        ("kafka.linger.ms", "soon", "kafka.linger.ms=soon is refused by librdkafka"),
        ("kafka.acks", "1", "kafka.acks=1 can't be: what transactions write needs all"),
    ],
)  # fmt: skip
def test_a_setting_that_librdkafka_does_not_know_is_refused_with_the_nearest(
    name, value, said
) -> None:
    with pytest.raises(WrongOption, match=said):
        write_options({**WRITES, name: value}, BATCH_SINK)
    if name != "kafka.acks":
        with pytest.raises(WrongOption, match=said):
            read_options({**READS, name: value}, BATCH)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.sasl.passwrod", "S3CRET", r"no setting sasl\.passwrod \(is it kafka\.sasl\.password\?\)"),
        ("kafka.sasl.jaas.config", "x required password='S3CRET';", "Java JAAS configuration is not supported"),
        ("kafka.debug", "all,S3CRET", 'Invalid value "…" for configuration property "debug"'),
        ("kafka.linger.mss", "S3CRET", "no setting linger.mss"),
        ("kafka.enable.ssl.certificate.verification", "S3CRET", "Expected bool value"),
    ],
)  # fmt: skip
def test_a_refused_setting_s_value_is_not_shown_where_it_may_be_a_secret(name, value, said) -> None:
    """What is raised here stands in the driver's log."""
    for read, use, given in ((write_options, BATCH_SINK, WRITES), (read_options, BATCH, READS)):
        with pytest.raises(WrongOption, match=said) as refused:
            read({**given, name: value}, use)
        assert str(refused.value).startswith(name)
        assert "S3CRET" not in str(refused.value)


def test_a_password_in_an_admin_door_s_address_is_not_shown() -> None:
    with pytest.raises(WrongOption, match="adminUrl=https://…@door:1: ") as refused:
        write_options({**WRITES, "adminurl": "https://me:S3CRET@door:1"}, BATCH_SINK)
    assert "S3CRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.max.in.flight", "100", "kafka.max.in.flight=100 can't be: .* must be set <= 5 when"),
        ("kafka.retries", "0", "kafka.retries=0 can't be: .* must be set >= 1"),
        ("kafka.message.timeout.ms", "1000000", "kafka.message.timeout.ms=1000000 can't be: .*transaction.timeout.ms"),
        ("kafka.delivery.timeout.ms", "1000000", "can't be: .*transaction.timeout.ms"),
    ],
)  # fmt: skip
def test_what_a_sink_s_producer_can_not_be_told_together_is_refused(name, value, said) -> None:
    """Each is a value that librdkafka takes, and none that it makes a transactional producer of."""
    with pytest.raises(WrongOption, match=said):
        write_options({**WRITES, name: value}, BATCH_SINK)


def test_what_a_reader_s_consumer_can_not_be_told_together_is_refused() -> None:
    with pytest.raises(WrongOption, match=r"kafka.fetch.max.bytes=1000 can't be: .*message.max"):
        read_options({**READS, "kafka.fetch.max.bytes": "1000"}, BATCH)


def test_what_a_task_s_producer_is_told_its_driver_s_is_told_too(monkeypatch) -> None:
    """Else it can't end what tasks left open: `message.timeout.ms` must be set <= `transaction.timeout.ms`, a minute by itself."""
    begun = []
    monkeypatch.setattr("fencepost.clients.spark.fencing.retrying", lambda *_: begun.append(1))
    fence("127.0.0.1:1", {"message.timeout.ms": "800000"}, "night", ["job.p0.a0"])
    assert begun == [1]


def test_a_secret_is_not_shown_by_a_client_that_can_not_be_made() -> None:
    tls = {"kafka.security.protocol": "ssl", "kafka.ssl.key.pem": "S3CRET"}
    for read, use, given in ((write_options, BATCH_SINK, WRITES), (read_options, BATCH, READS)):
        with pytest.raises(WrongOption, match=r"kafka\.ssl\.key\.pem can't be: ") as refused:
            read({**given, **tls}, use)
        assert "S3CRET" not in str(refused.value)


def test_what_librdkafka_takes_passes() -> None:
    said = {"kafka.acks": "all", "kafka.compression.type": "zstd", "kafka.partitioner": "random"}
    assert write_options({**WRITES, **said}, BATCH_SINK).client["acks"] == "all"


@pytest.mark.parametrize(
    ("ours", "name", "value"),
    [
        ("compression.codec", "compression.type", "zstd"),
        ("compression.codec", "compression.codec", "zstd"),
        ("queue.buffering.max.ms", "linger.ms", "7"),
        ("queue.buffering.max.ms", "queue.buffering.max.ms", "7"),
        ("queue.buffering.max.kbytes", "queue.buffering.max.kbytes", "2097152"),
    ],
)
def test_what_the_user_says_counts_under_either_of_librdkafka_s_names(
    ours, name, value, monkeypatch
) -> None:
    """`compression.codec` was set, and then our own `compression.type`, which is the same thing."""
    said = write_options({**WRITES, f"kafka.{name}": value}, BATCH_SINK).client
    fences: list[dict[str, Any]] = []
    monkeypatch.setattr(fencing, "Producer", fences.append)
    monkeypatch.setattr(fencing, "retrying", lambda *_: None)
    fencing.fence("127.0.0.1:1", said, "night", ["job.p0.a0"])
    for told in (of_sink("tried", said), *fences):
        assert what_librdkafka_makes_of(told)[ours] == value


@pytest.mark.parametrize(
    ("said", "kbytes"),
    [({}, "65536"), ({"message.max.bytes": "100000001"}, "97657")],
)
def test_a_task_holds_no_more_than_a_row_needs_or_64_mib(said, kbytes) -> None:
    """It was 1 GiB for each core of an executor, which has no room for that beside its heap. A row that the queue has no room for
    is offered for ever."""
    client = write_options({**WRITES, **{f"kafka.{n}": said[n] for n in said}}, BATCH_SINK).client
    told = what_librdkafka_makes_of(of_sink("tried", client))
    assert told["queue.buffering.max.kbytes"] == kbytes


def what_librdkafka_makes_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Set in the order of `c_library.new_client`."""
    c, why = c_library.library(), ctypes.create_string_buffer(200)
    conf = c.rd_kafka_conf_new()
    for name in sorted(settings):
        text = str(settings[name]).encode()
        assert c.rd_kafka_conf_set(conf, name.encode(), text, why, 200) == 0, why.value
    count = ctypes.c_size_t()
    pairs = c.rd_kafka_conf_dump(conf, ctypes.byref(count))
    found = {pairs[n].decode(): pairs[n + 1].decode() for n in range(0, count.value, 2)}
    c.rd_kafka_conf_dump_free(pairs, count.value)
    c.rd_kafka_conf_destroy(conf)
    return found
