"""A partition's records as Arrow columns, without a Python object for any of them.

INVARIANT  a column has what librdkafka's own functions would have said of each message.
PREVENTS   a timestamp that is read from the wrong place of a message, after librdkafka changed its inside.
PROVED BY  tests/spark/test_spark_c_consumer.py::test_columns_are_what_librdkafka_says_of_each_message
           tests/spark/test_spark_silence.py::test_what_librdkafka_says_of_no_message_is_heard

Messages lie somewhere in memory, each a struct of known shape. Arrow looks at the whole stretch between the first and
the last of them as one array of words, and takes the same word of each; what keys and values point to is taken the same
way. The timestamp has a function only and no word of its own: its place is known, and checked for each batch.
"""

import ctypes
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException

from . import c_library
from .c_library import (
    CONSUMER,
    KEY_LENGTH_WORD,
    KEY_WORD,
    LENGTH_WORD,
    OFFSET_WORD,
    PAYLOAD_WORD,
    WORDS,
    Message,
)

WORD: Final = 8
# Behind the public part of a message, in librdkafka 1.0 to 2.16 (rd_kafka_msg_t in rdkafka_msg.h).
TIMESTAMP_TYPE_WORD: Final = WORDS + 2  # in its upper half
TIMESTAMP_WORD: Final = WORDS + 3
SPAN: Final = TIMESTAMP_WORD + 1
MOST: Final = 16_384  # messages at once
NO_ERROR: Final = 0
NO_OFFSET: Final = -1
CONTINUE: Final = 0  # librdkafka frees the statistics' text


class Fetched:
    """Some messages, as long as the block that got them lasts."""

    def __init__(self, pointers: Any, count: int) -> None:
        self.count = count
        self._pointers = pointers
        self._records = _int64(ctypes.addressof(pointers), count, pointers)
        self.errors: list[tuple[int, int]] = []  # code and offset
        if count:
            self._words = _Words(self._records)
            self._find_errors()

    def _find_errors(self) -> None:
        codes = pc.bit_wise_and(self._words.take(0), 0xFFFFFFFF)
        if pc.max(codes).as_py() == NO_ERROR:
            return
        is_record = pc.equal(codes, NO_ERROR)
        for index in pc.indices_nonzero(pc.invert(is_record)).to_pylist():
            message = Message.from_address(self._pointers[index])
            self.errors.append((message.err, message.offset))
        self._records = self._records.filter(is_record)
        if len(self._records):
            self._words = _Words(self._records)

    def columns(self, end: int) -> "Columns | None":
        """Of the records before `end`; None when there are none."""
        if not len(self._records):
            return None
        offsets = self._words.take(OFFSET_WORD)
        return Columns(self._records, self._words, offsets, pc.sum(pc.less(offsets, end)).as_py())

    def free(self) -> None:
        destroy = c_library.short_calls().rd_kafka_message_destroy
        deque(map(destroy, self._pointers[: self.count]), maxlen=0)


class Columns:
    def __init__(self, pointers: pa.Array, words: "_Words", offsets: pa.Array, count: int) -> None:
        self.is_past_the_end = count < len(pointers)
        self.count = count
        self._pointers = pointers.slice(0, count)
        self._words = words.slice(count)
        self.offsets = offsets.slice(0, count)

    def values(self) -> pa.Array:
        return _bytes_at(self._words.take(PAYLOAD_WORD), self._words.take(LENGTH_WORD))

    def keys(self) -> pa.Array:
        return _bytes_at(self._words.take(KEY_WORD), self._words.take(KEY_LENGTH_WORD))

    def timestamps(self) -> tuple[pa.Array, pa.Array]:
        """In ms, and of which type: 0 is none."""
        stamps = self._words.take(TIMESTAMP_WORD)
        types = pc.shift_right(self._words.take(TIMESTAMP_TYPE_WORD), 32)
        for index in (0, self.count // 2, self.count - 1):
            told = _timestamp(self._pointers[index].as_py())
            if told != (stamps[index].as_py(), types[index].as_py()):
                return self._timestamps_one_by_one()
        return stamps, types

    def _timestamps_one_by_one(self) -> tuple[pa.Array, pa.Array]:
        told = [_timestamp(each) for each in self._pointers.to_pylist()]
        stamps, types = zip(*told, strict=True)
        return pa.array(stamps, pa.int64()), pa.array(types, pa.int64())

    def headers(self) -> list[list[dict[str, Any]] | None]:
        return [_headers(each) for each in self._pointers.to_pylist()]


class _Words:
    """The same word of each struct."""

    def __init__(self, pointers: pa.Array) -> None:
        edges = pc.min_max(pointers).as_py()
        self._first = edges["min"]
        self._places = pc.shift_right(pc.subtract(pointers, self._first), 3)
        self._memory = _int64(self._first, (edges["max"] - self._first) // WORD + SPAN, None)

    def slice(self, count: int) -> "_Words":
        self._places = self._places.slice(0, count)
        return self

    def take(self, word: int) -> pa.Array:
        return pc.take(self._memory, pc.add(self._places, word), boundscheck=False)


def _int64(address: int, count: int, owner: Any) -> pa.Array:
    memory = pa.foreign_buffer(address, count * WORD, owner)
    return pa.Array.from_buffers(pa.int64(), count, [None, memory], null_count=0)


def _bytes_at(starts: pa.Array, lengths: pa.Array) -> pa.Array:
    """Copies what they point to, together; null where a pointer is."""
    count = len(starts)
    is_there = pc.not_equal(starts, 0)
    found = pc.min_max(starts.filter(is_there)).as_py()
    first = found["min"]
    if first is None:
        return pa.nulls(count, pa.binary())
    has_nulls = not pc.all(is_there).as_py()
    begins = pc.subtract(starts, first)
    if has_nulls:
        begins = pc.if_else(is_there, begins, 0)
    ends = pc.add(begins, lengths)
    # One binary array over all of it: even places are what is wanted, odd ones what lies between.
    edges = bytearray((2 * count + 1) * WORD)
    words = memoryview(edges).cast("q")
    words[0 : 2 * count : 2] = _view(begins)
    words[1 : 2 * count : 2] = _view(ends)
    # Arrow guesses from its two ends how much will be taken.
    words[2 * count] = words[0] + 2 * pc.sum(lengths).as_py()
    size = max(pc.max(ends).as_py(), words[2 * count])  # only what is taken is looked at
    memory = pa.foreign_buffer(first, size, None)
    stretch = pa.Array.from_buffers(
        pa.large_binary(), 2 * count, [None, pa.py_buffer(edges), memory], null_count=0
    )
    wanted = _even_numbers().slice(0, count)
    if has_nulls:
        wanted = pc.if_else(is_there, wanted, None)
    return pc.take(stretch, wanted, boundscheck=False).cast(pa.binary())


@cache
def _even_numbers() -> pa.Array:
    return pa.array(range(0, 2 * MOST, 2), pa.int64())


def _view(numbers: pa.Array) -> memoryview:
    buffer = numbers.buffers()[1]
    return memoryview(buffer).cast("q")[numbers.offset : numbers.offset + len(numbers)]


def _timestamp(message: int) -> tuple[int, int]:
    kind = ctypes.c_int()
    stamp = c_library.library().rd_kafka_message_timestamp(message, ctypes.byref(kind))
    return stamp, kind.value


def _headers(message: int) -> list[dict[str, Any]] | None:
    c = c_library.library()
    found = ctypes.c_void_p()
    if c.rd_kafka_message_headers(message, ctypes.byref(found)) != NO_ERROR:
        return None
    headers: list[dict[str, Any]] = []
    name, value, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
    places = [ctypes.byref(each) for each in (name, value, size)]
    while c.rd_kafka_header_get_all(found, len(headers), *places) == NO_ERROR:
        text = (name.value or b"").decode(errors="replace")
        given = ctypes.string_at(value.value, size.value) if value.value else None
        headers.append({"key": text, "value": given})
    return headers or None


class PartitionConsumer:
    """Without a consumer group: nobody is asked for one, and nothing is committed."""

    def __init__(self, settings: Mapping[str, Any], topic: str, partition: int) -> None:
        self._c = c_library.library()
        self._told: list[
            tuple[int, int]
        ] = []  # of no message: a topic that is gone, a wrong password
        # By librdkafka: behind all that came, for readers to see or not.
        self.asked_up_to = NO_OFFSET
        self._on_error = c_library.ErrorTold(self._hear)
        self._on_statistics = c_library.Statistics(self._note)
        self._handle = c_library.new_client(
            CONSUMER, settings, error=self._on_error, statistics=self._on_statistics
        )
        self._name, self._partition = topic, partition
        self._topic = self._c.rd_kafka_topic_new(self._handle, topic.encode(), None)
        self._queue = self._c.rd_kafka_queue_new(self._handle)
        self._pointers = (ctypes.c_void_p * MOST)()
        self._is_started = False

    def start(self, offset: int) -> None:
        """From there on; what had been asked for before is left out."""
        self._stop()
        c = self._c
        if c.rd_kafka_consume_start_queue(self._topic, self._partition, offset, self._queue) != 0:
            raise KafkaException(c_library.error_of(c.rd_kafka_last_error()))
        self._is_started = True

    @contextmanager
    def fetch(self, most: int, wait_s: float) -> Iterator[Fetched]:
        """As many as there are, up to `most`, for which it waits no longer than `wait_s`."""
        pointers = self._pointers
        self._c.rd_kafka_poll(self._handle, 0)  # what is of no message is in another queue
        count = self._c.rd_kafka_consume_batch_queue(
            self._queue, c_library.milliseconds(wait_s), pointers, min(most, MOST)
        )
        if count < 0:
            raise KafkaException(c_library.error_of(self._c.rd_kafka_last_error()))
        fetched: Fetched | None = None
        try:
            fetched = Fetched(pointers, count)
            fetched.errors += self._told
            self._told.clear()
            yield fetched
        finally:
            if fetched is not None:
                fetched.free()

    def _hear(self, _client: Any, code: int, _why: Any, _opaque: Any) -> None:
        """Called in the middle of a fetch."""
        self._told.append((code, NO_OFFSET))

    def _note(self, _client: Any, text: Any, size: int, _opaque: Any) -> int:
        topic = json.loads(ctypes.string_at(text, size)).get("topics", {}).get(self._name, {})
        told = topic.get("partitions", {}).get(str(self._partition), {})
        self.asked_up_to = max(told.get("next_offset", NO_OFFSET), NO_OFFSET)
        return CONTINUE

    def watermarks(self, timeout_s: float) -> tuple[int, int]:
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = self._c.rd_kafka_query_watermark_offsets(
            self._handle,
            self._name.encode(),
            self._partition,
            ctypes.byref(low),
            ctypes.byref(high),
            c_library.milliseconds(timeout_s),
        )
        if code != NO_ERROR:
            raise KafkaException(c_library.error_of(code))
        return low.value, high.value

    def _stop(self) -> None:
        if self._is_started:
            self._c.rd_kafka_consume_stop(self._topic, self._partition)
            self._is_started = False

    def close(self) -> None:
        self._stop()
        self._c.rd_kafka_queue_destroy(self._queue)
        self._c.rd_kafka_topic_destroy(self._topic)
        self._c.rd_kafka_destroy(self._handle)
