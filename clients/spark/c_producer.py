"""A transactional producer that takes whole columns of rows, without a Python object for any of them.

INVARIANT  a row that could not be delivered is known when `flush` returns.
PREVENTS   a batch that is committed without some of its rows, because nobody asked what became of them.
PROVED BY  tests/spark/test_spark_c_producer.py::test_a_row_that_the_broker_refuses_is_told

`produce` hands librdkafka an array of structs that is filled a column at a time. What it could not take yet (its queue is
full) is offered again, in the same order.
"""

import ctypes
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from . import c_library
from .c_library import (
    KEY_LENGTH_WORD,
    KEY_WORD,
    LENGTH_WORD,
    PARTITION_WORD,
    PAYLOAD_WORD,
    PRODUCER,
    WORDS,
)

WORD: Final = 8
COPY: Final = 0x2  # RD_KAFKA_MSG_F_COPY
EACH_ITS_PARTITION: Final = 0x8  # RD_KAFKA_MSG_F_PARTITION
ANY_PARTITION: Final = -1
NO_ERROR: Final = 0
ONLY_THIS_TOPIC: Final = 0
METADATA_S: Final = 30.0
QUEUE_WAIT_S: Final = 0.02
NEWS_S: Final = 0.25
CONTINUE: Final = 0  # librdkafka frees the statistics' text
NAMELESS: Final = "a header that is null, or whose key is: Kafka has none without a name. Leave it out of the column headers, or give it one"
# What librdkafka takes for a text's end: it would write to the topic, or with the header, of the name that stands before it.
NUL: Final = "\0"
CUT: Final = (
    "the key of a header has a NUL character in it, and would be cut off there. Give it another one"
)
TOPIC_BYTES_MAX: Final = 249  # Kafka's; with more than 512 librdkafka makes none, and dies of it
NO_NAME: Final = "no topic can have this name: it has 249 characters at most, and no NUL. Correct the column topic"


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Failed(NamedTuple):
    """A row that was taken and not delivered."""

    error: KafkaError
    topic: str
    key_bytes: int
    value_bytes: int


class NotTaken(Exception):
    """librdkafka refuses a row: which one of those that were given, and why."""

    def __init__(self, row: int, error: KafkaError) -> None:
        super().__init__(error)
        self.row = row
        self.error = error


class ColumnProducer:
    """For one thread. One of its own reads what librdkafka has to tell while nobody calls: statistics that come fifty times a
    second would lie in memory for as long as a task waits for its rows, 20 MB a minute.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._c = c_library.library()
        self.failed: list[Failed] = []
        self._identity: Identity | None = None
        self._delivered = c_library.Delivered(self._on_delivery)
        self._statistics = c_library.Statistics(self._on_statistics)
        self._topics: dict[str, int] = {}
        self._partitions: dict[str, int] = {}  # how many, of topics whose rows name them
        self._handle = 0
        self._handle = c_library.new_client(
            PRODUCER,
            {**settings, "delivery.report.only.error": True},
            delivered=self._delivered,
            statistics=self._statistics,
        )
        self._turn = threading.Lock()
        self._is_over = threading.Event()
        self._reads = threading.Thread(target=self._read_news, name="producer-news", daemon=True)
        self._reads.start()

    def _read_news(self) -> None:
        while not self._is_over.wait(NEWS_S):
            self.poll(0)

    # -- transactions ----------------------------------------------------------------------------

    def init_transactions(self, timeout_s: float) -> None:
        self._call(self._c.rd_kafka_init_transactions, timeout_s)

    def begin_transaction(self) -> None:
        c_library.raise_error(self._c.rd_kafka_begin_transaction(self._handle))

    def commit_transaction(self, timeout_s: float) -> None:
        self._call(self._c.rd_kafka_commit_transaction, timeout_s)

    def abort_transaction(self, timeout_s: float) -> None:
        self._call(self._c.rd_kafka_abort_transaction, timeout_s)

    def _call(self, function: Any, timeout_s: float) -> None:
        c_library.raise_error(function(self._handle, c_library.milliseconds(timeout_s)))

    def identity(self, timeout_s: float) -> Identity | None:
        """As librdkafka's statistics tell it; None when they don't in time."""
        left_s = timeout_s
        while self._identity is None and left_s > 0:
            self.poll(QUEUE_WAIT_S)
            left_s -= QUEUE_WAIT_S
        return self._identity

    # -- rows ------------------------------------------------------------------------------------

    def produce(
        self, topic: str, key: pa.Array | None, value: pa.Array, partition: pa.Array | None
    ) -> None:
        """All of these rows; NotTaken for the first one that librdkafka refuses."""
        count = len(value)
        words = bytearray(count * WORDS * WORD)
        table = memoryview(words).cast("q")
        owners = [_fill(table, value, PAYLOAD_WORD, LENGTH_WORD)]
        if key is not None:
            owners.append(_fill(table, key, KEY_WORD, KEY_LENGTH_WORD))
        flags = COPY
        if partition is not None:
            flags |= EACH_ITS_PARTITION
            chosen = pc.fill_null(partition.cast(pa.int64()), ANY_PARTITION)
            self._check_partitions(topic, chosen)
            table[PARTITION_WORD::WORDS] = _view(chosen)
        address = ctypes.addressof(ctypes.c_char.from_buffer(words))
        begun = 0
        while begun < count:
            begun += self._offer(topic, flags, address, words, begun, count - begun)

    def _offer(
        self, topic: str, flags: int, address: int, words: bytearray, begun: int, left: int
    ) -> int:
        """How many of them were taken: those before the first that found the queue full."""
        where = address + begun * WORDS * WORD
        taken = self._c.rd_kafka_produce_batch(
            self._topic(topic), ANY_PARTITION, flags, where, left
        )
        self.poll(0.0)
        if taken == left:
            return left
        codes = memoryview(words).cast("i")[begun * WORDS * 2 :: WORDS * 2]
        refused = next(row for row in range(left) if codes[row] != NO_ERROR)
        if codes[refused] != KafkaError._QUEUE_FULL:
            raise NotTaken(begun + refused, c_library.error_of(codes[refused]))
        self.poll(QUEUE_WAIT_S)
        return refused

    def produce_one(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Sequence[tuple[str | None, bytes | None]],
    ) -> None:
        """A row with headers: for these librdkafka has no array."""
        if any(name is None for name, _ in headers):
            raise NotTaken(0, KafkaError(KafkaError._INVALID_ARG, NAMELESS))
        if any(NUL in (name or "") for name, _ in headers):
            raise NotTaken(0, KafkaError(KafkaError._INVALID_ARG, CUT))
        fields = [_field(RKT, ptr=self._topic(topic)), _field(FLAGS, i=COPY)]
        fields += [_memory(VALUE, value), _memory(KEY, key)]
        if partition is not None:
            fields.append(_field(PARTITION, i32=partition))
        fields += [_header(name, each) for name, each in headers if name is not None]
        array = (_Field * len(fields))(*fields)
        while True:
            try:
                c_library.raise_error(self._c.rd_kafka_produceva(self._handle, array, len(fields)))
            except KafkaException as trouble:
                error = trouble.args[0]
                if error.code() != KafkaError._QUEUE_FULL:
                    raise NotTaken(0, error) from None
                self.poll(QUEUE_WAIT_S)
            else:
                return

    def poll(self, wait_s: float) -> None:
        with self._turn:  # what the other thread has taken is in `failed`, too
            self._c.rd_kafka_poll(self._handle, c_library.milliseconds(wait_s))

    def flush(self, timeout_s: float) -> bool:
        """Whether nothing is left: each row was delivered, or is in `failed`."""
        with self._turn:
            code = self._c.rd_kafka_flush(self._handle, c_library.milliseconds(timeout_s))
        return bool(code == NO_ERROR)

    def fatal(self) -> KafkaError | None:
        said = ctypes.create_string_buffer(c_library.SAID_BYTES)
        code = self._c.rd_kafka_fatal_error(self._handle, said, c_library.SAID_BYTES)
        return KafkaError(code, said.value.decode(errors="replace"), True) if code else None

    def failure(self) -> KafkaError | None:
        """Why the open transaction can only be aborted, if it can. Whoever would begin another one is told it; else that one is open."""
        try:
            self.begin_transaction()
        except KafkaException as trouble:
            error: KafkaError = trouble.args[0]
            return error if error.txn_requires_abort() else None
        raise AssertionError("there was no transaction")

    def close(self) -> None:
        """What is in its queue is thrown away; an open transaction stays open."""
        if self._handle:
            self._is_over.set()
            self._reads.join()
            handle, self._handle = self._handle, 0
            for topic in self._topics.values():
                self._c.rd_kafka_topic_destroy(topic)
            self._c.rd_kafka_destroy(handle)

    def _topic(self, name: str) -> int:
        found = self._topics.get(name)
        if found is None:
            encoded = name.encode()
            if len(encoded) > TOPIC_BYTES_MAX or NUL in name:
                raise NotTaken(0, KafkaError(KafkaError._INVALID_ARG, NO_NAME))
            found = self._topics[name] = self._c.rd_kafka_topic_new(self._handle, encoded, None)
            assert found, f"librdkafka makes no topic {name!r}"
        return found

    def _check_partitions(self, topic: str, chosen: pa.Array) -> None:
        """Rows for a partition that librdkafka has not heard of are never sent: `produce_batch` forgets them (2.16)."""
        known = self._partition_count(topic)
        is_wrong = pc.or_(pc.less(chosen, ANY_PARTITION), pc.greater_equal(chosen, known))
        if pc.any(is_wrong).as_py():
            row = pc.indices_nonzero(is_wrong)[0].as_py()
            error = KafkaError(
                KafkaError._UNKNOWN_PARTITION,
                f"there is no partition {chosen[row]}, {topic} has {known}",
            )
            raise NotTaken(row, error)

    def _partition_count(self, name: str) -> int:
        found = self._partitions.get(name)
        if found is not None:
            return found
        told = ctypes.POINTER(c_library.Metadata)()
        code = self._c.rd_kafka_metadata(
            self._handle,
            ONLY_THIS_TOPIC,
            self._topic(name),
            ctypes.byref(told),
            c_library.milliseconds(METADATA_S),
        )
        if code != NO_ERROR:
            raise NotTaken(0, c_library.error_of(code))
        topic = told.contents.topics[0]
        code, count = topic.err, int(topic.partition_count)
        self._c.rd_kafka_metadata_destroy(told)
        if code != NO_ERROR:
            raise NotTaken(0, c_library.error_of(code))
        self._partitions[name] = count
        return count

    def _on_delivery(self, _client: Any, message: Any, _opaque: Any) -> None:
        told = message.contents
        if told.err != NO_ERROR:
            name = self._c.rd_kafka_topic_name(told.topic).decode()
            error = c_library.error_of(told.err)
            self.failed.append(Failed(error, name, told.key_len, told.len))

    def _on_statistics(self, _client: Any, text: Any, size: int, _opaque: Any) -> int:
        """Who it is: that stays so while its one transaction is open. The rest is of each partition, and 2 MB where there are 2,000."""
        if self._identity is not None:
            return CONTINUE
        told = json.loads(ctypes.string_at(text, size)).get("eos", {})
        producer_id, epoch = told.get("producer_id", -1), told.get("producer_epoch", -1)
        if producer_id >= 0 and epoch >= 0:
            self._identity = Identity(producer_id, epoch)
        return CONTINUE


def _fill(table: memoryview, column: pa.Array, where: int, how_long: int) -> Any:
    """Addresses and lengths of a column's rows; what must be kept until they were copied."""
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        kind = pa.int64()
    elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        kind = pa.int32()
    else:
        column, kind = column.cast(pa.binary()), pa.int32()
    count = len(column)
    _, edges, data = column.buffers()
    offsets = pa.Array.from_buffers(kind, count + 1, [None, edges], offset=column.offset)
    offsets = offsets.cast(pa.int64())
    # An empty text has an address, too: only null has none.
    address = data.address if data is not None and data.size else ctypes.addressof(SOMEWHERE)
    starts = pc.add(offsets.slice(0, count), address)
    lengths = pc.subtract(offsets.slice(1), offsets.slice(0, count))
    if column.null_count:
        is_there = column.is_valid()
        starts, lengths = pc.if_else(is_there, starts, 0), pc.if_else(is_there, lengths, 0)
    table[where::WORDS] = _view(starts)
    table[how_long::WORDS] = _view(lengths)
    return column


SOMEWHERE: Final = ctypes.create_string_buffer(1)


def _view(numbers: pa.Array) -> memoryview:
    buffer = numbers.buffers()[1]
    return memoryview(buffer).cast("q")[numbers.offset : numbers.offset + len(numbers)]


# rd_kafka_vtype_t, and what is told of each (rd_kafka_vu_t).
RKT, PARTITION, VALUE, KEY, FLAGS, HEADER = 2, 3, 4, 5, 7, 9


class _Memory(ctypes.Structure):
    _fields_: ClassVar = [("ptr", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _HeaderText(ctypes.Structure):
    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("val", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
    ]


class _Value(ctypes.Union):
    _fields_: ClassVar = [
        ("ptr", ctypes.c_void_p),
        ("i", ctypes.c_int),
        ("i32", ctypes.c_int32),
        ("mem", _Memory),
        ("header", _HeaderText),
        ("pad", ctypes.c_char * 64),
    ]


class _Field(ctypes.Structure):
    _fields_: ClassVar = [("vtype", ctypes.c_int), ("u", _Value)]


def _field(kind: int, **value: Any) -> _Field:
    made = _Field(kind)
    for name, given in value.items():
        setattr(made.u, name, given)
    return made


def _memory(kind: int, given: bytes | None) -> _Field:
    made = _Field(kind)
    made.u.mem.ptr = None if given is None else _address(given)
    made.u.mem.size = len(given or b"")
    return made


def _header(name: str, given: bytes | None) -> _Field:
    made = _Field(HEADER)
    made.u.header.name = name.encode()
    made.u.header.val = None if given is None else _address(given)
    made.u.header.size = len(given or b"")
    return made


def _address(given: bytes) -> int | None:
    """Where its bytes are; its owner keeps it until librdkafka has copied them."""
    return ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p).value
