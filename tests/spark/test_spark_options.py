"""What users say to the data source, and what they are told when it can't be."""

import re
from pathlib import Path

import pytest
from fencepost.clients.spark import option_table, range_reader
from fencepost.clients.spark.offsets import EARLIEST, LATEST, Range
from fencepost.clients.spark.option_table import BATCH, BATCH_SINK, OPTIONS, STREAM, STREAM_SINK
from fencepost.clients.spark.options import WrongOption, read_options, write_options

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
READS = {**HERE, "subscribe": "orders"}
WRITES = {**HERE, "adminurl": "http://127.0.0.1:10092"}


def test_names_are_those_of_sparks_kafka_connector() -> None:
    options = read_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "subscribe": "orders, payments",
            "startingoffsets": '{"orders":{"0":5,"1":-2},"payments":{"0":-1}}',
            "maxoffsetspertrigger": "100",
            "minpartitions": "7",
            "failondataloss": "false",
            "includeheaders": "TRUE",
            "kafka.fetch.min.bytes": "1",
        },
        STREAM,
    )
    assert options.topics == ("orders", "payments")
    assert options.starting.offsets == {
        ("orders", 0): 5,
        ("orders", 1): EARLIEST,
        ("payments", 0): LATEST,
    }
    assert (options.offsets_max, options.min_partitions) == (100, 7)
    assert (options.fail_on_data_loss, options.include_headers) == (False, True)
    assert options.client == {
        "bootstrap.servers": "a:1,b:2",
        "fetch.min.bytes": "1",
        "isolation.level": "read_committed",
    }


def test_the_address_may_be_said_without_kafka() -> None:
    assert read_options({"bootstrap.servers": "a:1", "subscribe": "x"}, BATCH).client[
        "bootstrap.servers"
    ] == ("a:1")


def test_a_batch_starts_at_the_beginning_and_a_stream_at_the_end() -> None:
    assert read_options(READS, BATCH).starting.everywhere == EARLIEST
    assert read_options(READS, STREAM).starting.everywhere == LATEST


def test_a_least_above_the_most_is_refused() -> None:
    """As Spark's Kafka connector does (4.2.0): else each tail of a backlog waits as long as maxTriggerDelay says."""
    bounds = {"minoffsetspertrigger": "1000", "maxoffsetspertrigger": "10"}
    said = "minOffsetsPerTrigger=1000 is more than maxOffsetsPerTrigger=10, .* say 10 at most"
    with pytest.raises(WrongOption, match=said):
        read_options({**READS, **bounds}, STREAM)
    same = read_options({**READS, **bounds, "minoffsetspertrigger": "10"}, STREAM)
    assert (same.offsets_min, same.offsets_max) == (10, 10)


def test_sparks_own_options_are_nobodys_fault() -> None:
    write_options({**WRITES, "checkpointlocation": "/c", "queryname": "q"}, STREAM_SINK)


@pytest.mark.parametrize("use", [BATCH, STREAM, BATCH_SINK, STREAM_SINK])
def test_a_path_is_refused_as_there_is_none(use: str) -> None:
    """`load("payments")` read what `subscribe` said, and `start("/lake/orders")` wrote nothing there, without a word."""
    is_read = use in (BATCH, STREAM)
    said = f"path=payments can't be set: .* no path.* say {'subscribe' if is_read else 'topic'}="
    with pytest.raises(WrongOption, match=said):
        if is_read:
            read_options({**READS, "path": "payments"}, use)
        else:
            write_options({**WRITES, "path": "payments"}, use)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30000", 30.0),
        ("250ms", 0.25),
        ("90s", 90.0),
        ("15m", 900.0),
        ("15min", 900.0),
        ("2H", 7200.0),
        ("1d", 86400.0),
        ("5000000us", 5.0),
        ("15 m", 900.0),
    ],
)
def test_a_time_is_what_it_is_for_sparks_kafka_connector(text: str, seconds: float) -> None:
    """`maxTriggerDelay=30000` was eight hours: Spark's JavaUtils.timeStringAsMs takes a number alone for milliseconds."""
    said = {**READS, "minoffsetspertrigger": "5", "maxtriggerdelay": text}
    assert read_options(said, STREAM).delay_max_s == pytest.approx(seconds)


def test_an_unknown_option_is_refused_with_the_nearest_choice() -> None:
    with pytest.raises(
        WrongOption, match=r"no option maxoffsetpertrigger \(is it maxOffsets"
    ) as no:
        read_options({**READS, "maxoffsetpertrigger": "5"}, STREAM)
    assert "minOffsetsPerTrigger" in str(no.value)


USES = {each: READS if each in (BATCH, STREAM) else WRITES for each in option_table.ALL}


@pytest.mark.parametrize(
    ("name", "use"),
    [(each.name, use) for each in OPTIONS[1:] for use in each.used_in if each.name != "adminToken"],
)
def test_an_option_that_is_said_and_empty_is_refused(name: str, use: str) -> None:
    """As by a variable that is not set. Without `topic` rows with a column topic went where they had come from, and without
    `transactionGroup` into a group that knows nothing of the numbers of the one that was meant."""
    said = f"^{name} was said and is empty: .* Leave it out, or say it "
    take = read_options if use in (BATCH, STREAM) else write_options
    for empty in ("", "  "):
        with pytest.raises(WrongOption, match=said):
            take({**USES[use], name.lower(): empty}, use)


def test_a_token_is_empty_where_no_door_asks_for_one() -> None:
    assert write_options({**WRITES, "admintoken": ""}, STREAM_SINK).admin_token is None


def test_an_option_of_another_use_is_refused() -> None:
    with pytest.raises(
        WrongOption, match="maxOffsetsPerTrigger is for a streaming read, not for a"
    ):
        read_options({**READS, "maxoffsetspertrigger": "5"}, BATCH)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"subscribe": "a"}, "say kafka.bootstrap.servers="),
        (HERE, "exactly one of subscribe, subscribePattern and assign; none of them"),
        ({**READS, "assign": '{"a":[0]}'}, "subscribe and assign was said"),
        ({**HERE, "subscribepattern": "("}, "no regular expression"),
        ({**HERE, "assign": "orders"}, "assign must be JSON such as .* not JSON"),
        ({**HERE, "assign": '{"a":[-1]}'}, r"it has a: \[-1\]"),
        ({**HERE, "assign": '{"a":[true]}'}, r"it has a: \[True\]"),
        ({**HERE, "subscribe": " , "}, "subscribe=, names no topic"),
        (
            {**HERE, "subscribepattern": "a{9999999999}"},
            "subscribePattern=.* no regular expression",
        ),
        (
            {**READS, "startingoffsets": "newest"},
            "startingOffsets must be earliest or latest, or JSON",
        ),
        ({**READS, "endingoffsets": "newest"}, "endingOffsets must be latest, or JSON"),
        ({**READS, "startingtimestamp": "now"}, "startingTimestamp=now .* milliseconds since 1970"),
        ({**HERE, "subscribe": "a b"}, "subscribe: 'a b' can't be a topic's name"),
        ({**HERE, "assign": '{"..":[0]}'}, r"assign: '\.\.' can't be a topic's name"),
        ({**READS, "startingoffsets": '{"a":{"0":-3}}'}, "it has a-0: -3"),
        ({**READS, "endingoffsets": f'{{"a":{{"0":{2**63}}}}}'}, f"it has a-0: {2**63}"),
        ({**READS, "startingoffsets": "latest"}, "nothing would be read"),
        ({**READS, "endingoffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({**READS, "minpartitions": "0"}, "minPartitions=0 is not a whole number from 1 to"),
        ({**READS, "failondataloss": "yes"}, "failOnDataLoss=yes is neither true nor false"),
        ({**READS, "kafka.isolation.level": "serializable"}, "neither read_committed nor"),
        ({**READS, "kafka.auto.offset.reset": "latest"}, "say startingOffsets"),
        (
            {**READS, "kafka.group.id": "billing"},
            "kafka.group.id can't be set: .* no consumer group",
        ),
        ({**READS, "kafka.metadata.broker.list": "b:1"}, "say kafka.bootstrap.servers"),
    ],
)
def test_what_can_not_be_read_is_told(said: dict[str, str], sentence: str) -> None:
    with pytest.raises(WrongOption, match=sentence):
        read_options(said, BATCH)


def test_a_time_that_is_none_is_told() -> None:
    for text in ("soon", "9" * 400):
        with pytest.raises(WrongOption, match=f"maxTriggerDelay={text} is no time: say 30s"):
            read_options({**READS, "maxtriggerdelay": text}, STREAM)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (HERE, "say adminUrl=http://HOST:PORT"),
        ({**WRITES, "adminurl": "https://a:1"}, "adminUrl=https://a:1: .* say http://HOST:PORT"),
        ({**WRITES, "topic": "a b"}, "topic: 'a b' can't be a topic's name"),
        (
            {**WRITES, "decisiontopic": "bad topic!"},
            "decisionTopic: 'bad topic!' can't be a topic's",
        ),
        (
            {**WRITES, "transactiongroup": "a", "transactionnumber": str(2**63)},
            f"transactionNumber={2**63} is not a whole number from 0 to {2**63 - 1}",
        ),
        ({**WRITES, "transactions": "none"}, "neither group nor task"),
        ({**WRITES, "transactiongroup": "a::b"}, "must not have '::'"),
        ({**WRITES, "transactiongroup": "a:"}, "transactionGroup='a:' is no name for a group"),
        ({**WRITES, "transactiongroup": "a"}, "transactionGroup and transactionNumber together"),
        ({**WRITES, "transactionnumber": "1"}, "transactionGroup and transactionNumber together"),
        ({**WRITES, "kafka.transactional.id": "x"}, "say transactionGroup"),
        (
            {**WRITES, "kafka.isolation.level": "read_committed"},
            "kafka.isolation.level .* is for reads",
        ),
        ({**WRITES, "kafka.group.id": "x"}, "kafka.group.id can't be set: .* no consumer group"),
        ({**WRITES, "subscribe": "x"}, "subscribe is for a batch read and a streaming read"),
    ],
)
def test_what_can_not_be_written_is_told(said: dict[str, str], sentence: str) -> None:
    with pytest.raises(WrongOption, match=sentence):
        write_options(said, BATCH_SINK)


@pytest.mark.needs("python:pyspark")
def test_headers_are_wanted_by_the_schema_and_by_the_options_alike() -> None:
    from fencepost.clients.spark.source import FencepostDataSource

    for said in ("true", " True "):
        schema = FencepostDataSource({**READS, "includeheaders": said}).schema()
        assert ("headers" in schema, said) == (True, said)
        assert read_options({**READS, "includeheaders": said}, BATCH).include_headers


@pytest.mark.needs("python:pyspark")
def test_a_column_of_another_type_is_refused_on_the_driver() -> None:
    """Spark's own words for it come from a task, four times, and have two lists to compare."""
    from fencepost.clients.spark import schemas
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType

    for headers in (False, True):
        asked = from_arrow_schema(schemas.arrow_schema(headers=headers))
        schemas.check_read(asked, headers=headers)
        asked["value"].dataType = StringType()
        said = r"the column value is binary, and schema\(\) asked for string: cast it with select"
        with pytest.raises(schemas.WrongSchema, match=said):
            schemas.check_read(asked, headers=headers)


@pytest.mark.needs("python:pyspark")
def test_a_column_that_must_not_be_null_is_refused_on_the_driver() -> None:
    """A task ended with Arrow's words for it, four times."""
    from fencepost.clients.spark import schemas
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

    asked = from_arrow_schema(schemas.arrow_schema(headers=False))
    asked["offset"].nullable = False
    said = r"schema\(\) asked for offset as NOT NULL, .*: leave NOT NULL out"
    with pytest.raises(schemas.WrongSchema, match=said):
        schemas.check_read(asked, headers=False)
    for key, value, element in ((False, True, True), (True, False, True), (True, True, False)):
        asked = from_arrow_schema(schemas.arrow_schema(headers=True))
        fields = [StructField("key", StringType(), key), StructField("value", BinaryType(), value)]
        asked["headers"].dataType = ArrayType(StructType(fields), element)
        with pytest.raises(schemas.WrongSchema, match=r"for (a part of )?headers as NOT NULL"):
            schemas.check_read(asked, headers=True)


def test_times_go_before_offsets() -> None:
    said = {**READS, "startingoffsets": "earliest", "startingtimestamp": "1000"}
    assert read_options(said, BATCH).starting.timestamp_ms == 1000
    said = {**READS, "startingoffsetsbytimestamp": '{"orders":{"0":7}}'}
    assert read_options(said, BATCH).starting.timestamps_ms == {("orders", 0): 7}


def test_the_readme_has_the_options_that_there_are() -> None:
    readme = Path(option_table.__file__).with_name("README.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]*) \| ([^|]*) \|", readme, re.MULTILINE)
    assert [
        (name, default.strip()) for name, default, _ in rows if name in {o.name for o in OPTIONS}
    ] == [(each.name, each.default) for each in OPTIONS]


@pytest.mark.parametrize(("asked", "used"), [({}, 5), ({"fetch.queue.backoff.ms": "50"}, "50")])
def test_a_reader_that_has_emptied_what_was_fetched_ahead_waits_no_second_for_more(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], used: object
) -> None:
    """As librdkafka does by itself."""
    given: list[dict[str, object]] = []

    class Idle:
        def __init__(self, settings: dict[str, object], *_: object) -> None:
            given.append(settings)

        def start(self, _offset: int) -> None:
            return

    monkeypatch.setattr(range_reader, "PartitionConsumer", Idle)
    range_reader._RangeReader(Range("t", 0, 0, 9), asked, headers=False, fails=True)
    assert [each["fetch.queue.backoff.ms"] for each in given] == [used]
