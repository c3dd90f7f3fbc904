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
        ("kafka.nonsense", "1", "kafka.nonsense=1: librdkafka has no setting nonsense; .*CONFIGURATION.md"),
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


def test_what_librdkafka_takes_passes() -> None:
    said = {"kafka.acks": "all", "kafka.compression.type": "zstd", "kafka.partitioner": "random"}
    assert write_options({**WRITES, **said}, BATCH_SINK).client["acks"] == "all"
