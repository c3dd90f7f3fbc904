"""What is said to librdkafka with `kafka.…`: tried on the driver, and refused by the option's name."""

import pytest
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


def test_what_librdkafka_takes_passes() -> None:
    said = {"kafka.acks": "all", "kafka.compression.type": "zstd", "kafka.partitioner": "random"}
    assert write_options({**WRITES, **said}, BATCH_SINK).client["acks"] == "all"
