"""What the user says to librdkafka with `kafka.…`, tried before anything is asked of the brokers: librdkafka itself knows what it takes.

INVARIANT  a setting that librdkafka does not take is refused by the option's name, on the driver, before a task runs.
PREVENTS   a job whose tasks fail four times each with the words of a library that its author has never named.
INVARIANT  a value is shown only of a setting that is known, and that is no place for a secret.
PREVENTS   `kafka.sasl.passwrod=…` in the logs of a driver.
PROVED BY  tests/spark/test_spark_client_settings.py::test_a_setting_that_librdkafka_does_not_know_is_refused_with_the_nearest
           tests/spark/test_spark_client_settings.py::test_what_a_sink_s_producer_can_not_be_told_together_is_refused
           tests/spark/test_spark_client_settings.py::test_a_refused_setting_s_value_is_not_shown_where_it_may_be_a_secret
           tests/spark/test_spark_client_settings.py::test_what_the_user_says_counts_under_either_of_librdkafka_s_names

What each setting may be librdkafka says when it is set; what they may be together, when a client is made of them all.
"""

import ctypes
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from confluent_kafka import KafkaException

from . import c_library
from .c_library import CONFIG_OK, CONSUMER, PRODUCER, SAID_BYTES

BOOTSTRAP: Final = "bootstrap.servers"
# As long as brokers allow (transaction.max.timeout.ms): a task's transaction is open until the last task has written.
TRANSACTION_TIMEOUT_MS: Final = "900000"
# What a task holds outside of the JVM's heap until it is acknowledged: librdkafka's own is 1 GiB, and an executor has one for each core.
QUEUE: Final = "queue.buffering.max.kbytes"
ROW_BYTES: Final = "message.max.bytes"
SINKS: Final[Mapping[str, str]] = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "linger.ms": "20",
    "batch.size": "1000000",
    QUEUE: "65536",
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # where Java's clients put the same key
}
# librdkafka's other names for these: a client is told one of the two, or the one that is told last would count.
OTHER_NAMES: Final[Mapping[str, str]] = {
    "linger.ms": "queue.buffering.max.ms",
    "compression.type": "compression.codec",
}
# A task's last wait is for these. With 50 one that has a row took 103 ms, and not 89. They cost librdkafka 1 % of a core for 100 partitions.
SINKS_STATISTICS_MS: Final = 20
# What it has fetched ahead is gone in a tenth of a second, and with its own defaults it waits for a whole one before it asks again:
# half of the time of reading small records.
READERS: Final[Mapping[str, Any]] = {
    "queued.min.messages": 100_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
    "check.crcs": True,  # as Java's clients do; without it a bit that flipped is a row like any other
}
READERS_STATISTICS_MS: Final = 5_000  # they say how far it has come in what readers don't see

# Whose values are shown: of these, and of numbers.
SHOWN: Final = (
    *("acks", "request.required.acks", "compression.type", "compression.codec", "partitioner"),
    *("isolation.level", "security.protocol"),
)
NUMBERS: Final = (".ms", ".bytes", ".kbytes", ".messages", ".size", "retries", "max.in.flight")
NOT_SHOWN: Final = "…"
# What librdkafka does not list while nobody has set it.
UNLISTED: Final = (
    *("sasl.username", "sasl.password", "ssl.ca.location", "ssl.ca.pem", "ssl.cipher.suites"),
    *("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem"),
    *("ssl.key.password", "ssl.keystore.location", "ssl.keystore.password"),
    *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"),
    *("message.timeout.ms", "delivery.timeout.ms", "acks"),
)
UNKNOWN: Final = -2  # RD_KAFKA_CONF_UNKNOWN
# Of Java's clients, and how it is said here. Of others, as sasl.jaas.config, librdkafka itself says what to say.
JAVAS: Final[Mapping[str, str]] = {
    "buffer.memory": "say kafka.queue.buffering.max.kbytes",
    "max.request.size": "say kafka.message.max.bytes",
}


def sinks_own(client: Mapping[str, str]) -> dict[str, str]:
    """Of a sink's producers, but for what the user has said, under either name."""
    own = {
        name: SINKS[name]
        for name in SINKS
        if name not in client and OTHER_NAMES.get(name) not in client
    }
    if QUEUE in own:  # a row that is larger than it would wait for room for ever
        row_kbytes = -(-int(client.get(ROW_BYTES, "0"), 0) // 1024)
        own[QUEUE] = str(max(int(own[QUEUE]), row_kbytes))
    return own


def of_sink(transactional_id: str, client: Mapping[str, str]) -> dict[str, Any]:
    """A task's producer."""
    return {
        **sinks_own(client),
        **client,
        "transactional.id": transactional_id,
        "statistics.interval.ms": SINKS_STATISTICS_MS,
    }


def of_reader(client: Mapping[str, str]) -> dict[str, Any]:
    """A task's consumer."""
    return {
        **READERS,
        **client,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "statistics.interval.ms": READERS_STATISTICS_MS,
    }


def why_no_client(settings: Mapping[str, str], *, is_sink: bool) -> str | None:
    """What librdkafka says of all of them together; None when it makes a client of them, which reaches nobody."""
    given = of_sink("tried", settings) if is_sink else of_reader(settings)
    given = {name: given[name] for name in given if name != BOOTSTRAP}
    try:
        made = c_library.new_client(PRODUCER if is_sink else CONSUMER, {**given, "log_level": 0})
    except KafkaException as refused:
        why = str(refused.args[0].str())
    else:
        c_library.library().rd_kafka_destroy(made)
        return None
    for name in settings:
        if settings[name] and not is_shown(name):
            why = why.replace(settings[name], NOT_SHOWN)
    of_these = [named(n, settings[n]) for n in sorted(settings) if n in why] or [
        "what kafka.… says"
    ]
    return f"{' and '.join(of_these)} can't be: librdkafka makes no client with it: {why}"


def why_not(settings: Mapping[str, str]) -> str | None:
    """The first that can't be, by name; None when librdkafka takes them all."""
    c = c_library.library()
    conf = c.rd_kafka_conf_new()
    try:
        for name in sorted(settings):
            told, why = _tried(conf, name, settings[name])
            if told == UNKNOWN:
                return f"kafka.{name}: librdkafka has no setting {name}{_instead(name)}"
            if told != CONFIG_OK:
                if not is_shown(name):  # librdkafka's words may have a part of the value
                    _, why = _tried(conf, name, NOT_SHOWN)
                return f"{named(name, settings[name])} is refused by librdkafka: {why}"
    finally:
        c.rd_kafka_conf_destroy(conf)
    return None


def _tried(conf: int, name: str, value: str) -> tuple[int, str]:
    said = ctypes.create_string_buffer(SAID_BYTES)
    c = c_library.library()
    told = c.rd_kafka_conf_set(conf, name.encode(), value.encode(), said, SAID_BYTES)
    return told, said.value.decode(errors="replace")


def is_shown(name: str) -> bool:
    return name in SHOWN or name.endswith(NUMBERS)


def named(name: str, value: str) -> str:
    """A setting that librdkafka knows, as the user has said it."""
    return f"kafka.{name}={value}" if is_shown(name) else f"kafka.{name}"


def _instead(name: str) -> str:
    if name in JAVAS:
        return f", which is of Java's clients: {JAVAS[name]}"
    found = get_close_matches(name, (*_names(), *UNLISTED), n=1)
    nearest = f" (is it kafka.{found[0]}?)" if found else ""
    return f"{nearest}; its names are those of its CONFIGURATION.md, which are not all of Java's"


@cache
def _names() -> tuple[str, ...]:
    c = c_library.library()
    conf = c.rd_kafka_conf_new()
    count = ctypes.c_size_t()
    pairs = c.rd_kafka_conf_dump(conf, ctypes.byref(count))
    names = tuple(pairs[number].decode() for number in range(0, count.value, 2))
    c.rd_kafka_conf_dump_free(pairs, count.value)
    c.rd_kafka_conf_destroy(conf)
    return names
