"""librdkafka's C interface, for what would cost Python an object a record: messages that came, and rows to be written.

It is the library that confluent-kafka's wheel carries, so both work the same way and know the same settings; a record
that goes through confluent-kafka's own `Message` costs about three times as much as all the rest of reading it.
"""

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaError, KafkaException

PRODUCER, CONSUMER = 0, 1
CONFIG_OK: Final = 0
SAID_BYTES: Final = 512  # of an error's text
POINTER, INT, TEXT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
INT32, INT64 = ctypes.c_int32, ctypes.c_int64


class Message(ctypes.Structure):
    """rd_kafka_message_t, from rdkafka.h: nine words of eight bytes."""

    _fields_: ClassVar = [
        ("err", INT),
        ("topic", POINTER),
        ("partition", INT32),
        ("payload", POINTER),
        ("len", SIZE),
        ("key", POINTER),
        ("key_len", SIZE),
        ("offset", INT64),
        ("opaque", POINTER),
    ]


class TopicMetadata(ctypes.Structure):
    """rd_kafka_metadata_topic_t."""

    _fields_: ClassVar = [
        ("topic", TEXT),
        ("partition_count", INT),
        ("partitions", POINTER),
        ("err", INT),
    ]


class Metadata(ctypes.Structure):
    """rd_kafka_metadata_t, as far as it is needed."""

    _fields_: ClassVar = [
        ("broker_count", INT),
        ("brokers", POINTER),
        ("topic_count", INT),
        ("topics", ctypes.POINTER(TopicMetadata)),
    ]


WORDS: Final = ctypes.sizeof(Message) // 8
# Which of them.
PARTITION_WORD, PAYLOAD_WORD, LENGTH_WORD, KEY_WORD, KEY_LENGTH_WORD, OFFSET_WORD = range(2, 8)

Delivered = ctypes.CFUNCTYPE(None, POINTER, ctypes.POINTER(Message), POINTER)
Statistics = ctypes.CFUNCTYPE(INT, POINTER, POINTER, SIZE, POINTER)
ErrorTold = ctypes.CFUNCTYPE(None, POINTER, INT, POINTER, POINTER)

SIGNATURES: Final[Mapping[str, tuple[Any, list[Any]]]] = {
    "rd_kafka_err2str": (TEXT, [INT]),
    "rd_kafka_conf_new": (POINTER, []),
    "rd_kafka_conf_destroy": (None, [POINTER]),
    "rd_kafka_conf_dump": (ctypes.POINTER(TEXT), [POINTER, POINTER]),
    "rd_kafka_conf_dump_free": (None, [POINTER, SIZE]),
    "rd_kafka_conf_set": (INT, [POINTER, TEXT, TEXT, TEXT, SIZE]),
    "rd_kafka_conf_set_dr_msg_cb": (None, [POINTER, Delivered]),
    "rd_kafka_conf_set_error_cb": (None, [POINTER, ErrorTold]),
    "rd_kafka_conf_set_stats_cb": (None, [POINTER, Statistics]),
    "rd_kafka_new": (POINTER, [INT, POINTER, TEXT, SIZE]),
    "rd_kafka_destroy": (None, [POINTER]),
    "rd_kafka_poll": (INT, [POINTER, INT]),
    "rd_kafka_flush": (INT, [POINTER, INT]),
    "rd_kafka_fatal_error": (INT, [POINTER, TEXT, SIZE]),
    "rd_kafka_topic_new": (POINTER, [POINTER, TEXT, POINTER]),
    "rd_kafka_topic_name": (TEXT, [POINTER]),
    "rd_kafka_metadata": (INT, [POINTER, INT, POINTER, POINTER, INT]),
    "rd_kafka_metadata_destroy": (None, [POINTER]),
    "rd_kafka_topic_destroy": (None, [POINTER]),
    "rd_kafka_produce_batch": (INT, [POINTER, INT32, INT, POINTER, INT]),
    "rd_kafka_produceva": (POINTER, [POINTER, POINTER, SIZE]),
    "rd_kafka_init_transactions": (POINTER, [POINTER, INT]),
    "rd_kafka_begin_transaction": (POINTER, [POINTER]),
    "rd_kafka_commit_transaction": (POINTER, [POINTER, INT]),
    "rd_kafka_abort_transaction": (POINTER, [POINTER, INT]),
    "rd_kafka_error_code": (INT, [POINTER]),
    "rd_kafka_error_string": (TEXT, [POINTER]),
    "rd_kafka_error_is_fatal": (INT, [POINTER]),
    "rd_kafka_error_is_retriable": (INT, [POINTER]),
    "rd_kafka_error_txn_requires_abort": (INT, [POINTER]),
    "rd_kafka_error_destroy": (None, [POINTER]),
    "rd_kafka_queue_new": (POINTER, [POINTER]),
    "rd_kafka_queue_destroy": (None, [POINTER]),
    "rd_kafka_consume_start_queue": (INT, [POINTER, INT32, INT64, POINTER]),
    "rd_kafka_consume_stop": (INT, [POINTER, INT32]),
    "rd_kafka_last_error": (INT, []),
    "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, [POINTER, INT, POINTER, SIZE]),
    "rd_kafka_query_watermark_offsets": (INT, [POINTER, TEXT, INT32, POINTER, POINTER, INT]),
    "rd_kafka_message_timestamp": (INT64, [POINTER, POINTER]),
    "rd_kafka_message_headers": (INT, [POINTER, POINTER]),
    "rd_kafka_header_get_all": (INT, [POINTER, SIZE, POINTER, POINTER, POINTER]),
}
# Short calls for each record, which the interpreter's lock is not given up for.
SHORT: Final[Mapping[str, tuple[Any, list[Any]]]] = {"rd_kafka_message_destroy": (None, [POINTER])}


class NoLibrary(ImportError):
    """What is missing, and where it comes from."""


def library_file() -> str:
    """The shared library that confluent-kafka's wheel carries, or the system's own."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent
        for place in (folder.parent / "confluent_kafka.libs", folder / ".dylibs"):
            for file in sorted(place.glob("librdkafka*")):
                return str(file)
    of_system = ctypes.util.find_library("rdkafka")
    if of_system is None:
        raise NoLibrary(
            "there is no librdkafka: install confluent-kafka as a wheel, or the system's librdkafka"
        )
    return of_system


@cache
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(library_file())
    _declare(loaded, SIGNATURES)
    return loaded


@cache
def short_calls() -> ctypes.PyDLL:
    loaded = ctypes.PyDLL(library_file())
    _declare(loaded, SHORT)
    return loaded


def _declare(loaded: ctypes.CDLL, signatures: Mapping[str, tuple[Any, list[Any]]]) -> None:
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments


def new_client(
    kind: int,
    settings: Mapping[str, Any],
    *,
    delivered: Any = None,
    statistics: Any = None,
    error: Any = None,
) -> int:
    """A client's handle; whoever gives callbacks keeps them for as long as it. KafkaException for a wrong setting."""
    c = library()
    said = ctypes.create_string_buffer(SAID_BYTES)
    conf = c.rd_kafka_conf_new()
    for name in sorted(settings):
        text = _text(settings[name])
        if c.rd_kafka_conf_set(conf, name.encode(), text, said, SAID_BYTES) != CONFIG_OK:
            c.rd_kafka_conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, said.value.decode()))
    if delivered is not None:
        c.rd_kafka_conf_set_dr_msg_cb(conf, delivered)
    if statistics is not None:
        c.rd_kafka_conf_set_stats_cb(conf, statistics)
    if error is not None:
        c.rd_kafka_conf_set_error_cb(conf, error)
    handle = c.rd_kafka_new(kind, conf, said, SAID_BYTES)
    if not handle:
        c.rd_kafka_conf_destroy(conf)
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, said.value.decode()))
    return int(handle)


def _text(value: Any) -> bytes:
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


def raise_error(error: int | None) -> None:
    """For an rd_kafka_error_t, which it frees."""
    if error:
        c = library()
        found = KafkaError(
            c.rd_kafka_error_code(error),
            c.rd_kafka_error_string(error).decode(errors="replace"),
            bool(c.rd_kafka_error_is_fatal(error)),
            bool(c.rd_kafka_error_is_retriable(error)),
            bool(c.rd_kafka_error_txn_requires_abort(error)),
        )
        c.rd_kafka_error_destroy(error)
        raise KafkaException(found)


def error_of(code: int) -> KafkaError:
    return KafkaError(code, library().rd_kafka_err2str(code).decode())


def milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 0)
