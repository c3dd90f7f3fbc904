"""What the user said, understood and checked before anything is done: a wrong option ends in a sentence, not in Spark's stack.

INVARIANT  an option that is not known, or not for this use, is refused by name, with the choices.
PREVENTS   `maxOffsetPerTrigger` being ignored, and the first micro-batch reading a topic's whole past.
INVARIANT  an option that was said, and is empty, does not pass for one that was not said.
PREVENTS   rows that go to the topics they came from, because the variable that had the option `topic` was not set.
PROVED BY  tests/spark/test_spark_options.py::test_an_unknown_option_is_refused_with_the_nearest_choice
           tests/spark/test_spark_options.py::test_an_option_that_is_said_and_empty_is_refused
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from ..transactional.admin_api import AdminApi
from ..transactional.names import group_name
from . import client_settings
from .offsets import EARLIEST, LATEST, Offsets, Place
from .option_table import (
    ACKS,
    ALL_ACKS,
    BATCH,
    BATCH_SINK,
    BY_LOWER,
    KAFKA,
    MAY_BE_EMPTY,
    NOT_THESE,
    NOT_THESE_IN_WRITES,
    OPTIONS,
    PATH,
    SPARKS,
    STREAM,
    WRITE,
)

BOOTSTRAP: Final = client_settings.BOOTSTRAP
LONG_MAX: Final = 2**63 - 1  # of Spark's numbers, Kafka's offsets, and a group's numbers
GROUP, TASK = "group", "task"
FAIL, IGNORE = "fail", "ignore"
# As Spark's JavaUtils.timeStringAsMs has them, by which its Kafka connector reads them (4.2.0).
DURATION: Final = re.compile(r"(\d{1,18})\s*(us|ms|s|min|m|h|d)?", re.ASCII)
MS: Final = {None: 1, "us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4, "min": 6e4, "h": 3.6e6, "d": 8.64e7}
TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
PASSWORDS: Final = re.compile(r"//[^/\s]*@")  # in an address, before its host
KEYWORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class WrongOption(ValueError):
    """What was said, what is allowed, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of what is to be read: a keyword, offsets, or times."""

    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: Offsets = field(default_factory=dict)  # may hold EARLIEST and LATEST, too
    timestamp_ms: int | None = None
    timestamps_ms: Offsets = field(default_factory=dict)
    or_latest: bool = False  # where nothing is as young as a time that was asked for

    def said_as(self, side: str) -> str:
        """The option's name; `side` is starting or ending."""
        if self.timestamp_ms is not None:
            return f"{side}Timestamp"
        return f"{side}OffsetsByTimestamp" if self.timestamps_ms else f"{side}Offsets"

    @property
    def named(self) -> frozenset[Place] | None:
        """The partitions that it is about; None for any."""
        named = self.timestamps_ms or self.offsets
        return frozenset(named) if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    client: Mapping[str, str]  # for librdkafka
    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: tuple[Place, ...] = ()
    starting: Bound
    ending: Bound
    min_partitions: int | None = None
    records_max: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_max_s: float = 900.0
    check_cluster_id: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    client: Mapping[str, str]
    topic: str | None = None
    transactions: str = GROUP
    admin_url: str = ""
    admin_token: str | None = None
    group: str | None = None
    number: int | None = None
    decision_topic: str = "fencepost-spark-decisions"
    rows_may_differ: bool = False  # when a batch that was committed comes again


def read_options(said: Mapping[str, Any], use: str) -> ReadOptions:
    given = _Given(said, use)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name)]
    if len(chosen) != 1:
        which = " and ".join(chosen) or "none of them"
        raise WrongOption(
            f"say exactly one of subscribe, subscribePattern and assign; {which} was said"
        )
    topics = tuple(each.strip() for each in given.text("subscribe").split(",") if each.strip())
    if "subscribe" in chosen and not topics:
        raise WrongOption(f"subscribe={given.text('subscribe')} names no topic")
    places = _assigned(given.text("assign"))
    for topic in (*topics, *(each for each, _ in places)):
        _check_topic(chosen[0], topic)
    starting = given.bound("starting", "latest" if use == STREAM else "earliest")
    ending = given.bound("ending", "latest") if use == BATCH else Bound(everywhere=LATEST)
    if use == BATCH and LATEST in (starting.everywhere, *starting.offsets.values()):
        raise WrongOption("startingOffsets of a batch can't be latest (-1): nothing would be read")
    if EARLIEST in (ending.everywhere, *ending.offsets.values()):
        raise WrongOption("endingOffsets can't be earliest (-2): say latest (-1) or an offset")
    isolation = given.client.setdefault("isolation.level", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise WrongOption(
            f"kafka.isolation.level={isolation} is neither read_committed nor read_uncommitted"
        )
    given.check_client()
    most, least = given.per_trigger()
    return ReadOptions(
        client=given.client,
        topics=tuple(sorted(set(topics))),
        pattern=_pattern(given.text("subscribePattern")),
        places=places,
        starting=starting,
        ending=ending,
        min_partitions=given.count("minPartitions"),
        records_max=given.count("maxRecordsPerPartition"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        offsets_max=most,
        offsets_min=least,
        delay_max_s=given.seconds("maxTriggerDelay", 900.0),
        check_cluster_id=given.flag("checkClusterId", default=True),
    )


def write_options(said: Mapping[str, Any], use: str) -> WriteOptions:
    given = _Given(said, use)
    transactions = given.choice("transactions", GROUP, TASK)
    url = given.text("adminUrl")
    if transactions == GROUP and not url:
        raise WrongOption(
            "say adminUrl=http://HOST:PORT of one or more nodes' admin doors (the setting "
            "admin.listener; `fencepost dev` opens it 1000 above the client port), because the driver commits "
            "its tasks' transactions there; for brokers that have no transaction groups say "
            "transactions=task, which promises less"
        )
    if url:
        try:
            AdminApi(url)
        except ValueError as wrong:
            why = f"adminUrl={url}: {wrong} (with commas between several)"
            raise WrongOption(PASSWORDS.sub("//…@", why)) from None
    for option in ("topic", "decisionTopic"):
        if given.text(option):
            _check_topic(option, given.text(option))
    name = given.group()
    number = given.count("transactionNumber", least=0)
    if use == BATCH_SINK and (name is None) != (number is None):
        raise WrongOption(
            "a batch write is known again by transactionGroup and transactionNumber together: say both, and the "
            "same ones when it is run again (in foreachBatch: the batch id), or none of them"
        )
    given.check_client()
    return WriteOptions(
        client=given.client,
        topic=given.text("topic") or None,
        transactions=transactions,
        admin_url=url,
        admin_token=given.text("adminToken") or None,
        group=name,
        number=number,
        decision_topic=given.text("decisionTopic") or "fencepost-spark-decisions",
        rows_may_differ=given.choice("rowsDiffer", FAIL, IGNORE) == IGNORE,
    )


class _Given:
    """The options of one use, known and allowed there."""

    def __init__(self, said: Mapping[str, Any], use: str) -> None:
        self.use = use
        self.client: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._never = {**NOT_THESE, **(NOT_THESE_IN_WRITES if use in WRITE else {})}
        for key in sorted(said):
            self._take(key, key.lower(), str(said[key]).strip())
        if not self.client.get(BOOTSTRAP):
            raise WrongOption("say kafka.bootstrap.servers=HOST:PORT,…: whom to ask first")

    def _take(self, key: str, lower: str, value: str) -> None:
        if lower in SPARKS:
            return
        if lower == PATH:
            instead = "topic" if self.use in WRITE else "subscribe"
            raise WrongOption(
                f"{key}={value} can't be set: there is no path to a topic: leave it out of load(), save() or start(), and say {instead}=TOPIC"
            )
        if lower == BOOTSTRAP or lower.startswith(KAFKA):
            setting = lower.removeprefix(KAFKA)
            if why := self._never.get(setting):
                raise WrongOption(f"{key} can't be set: {why}")
            if setting in ACKS and value not in ALL_ACKS:
                raise WrongOption(f"{key}={value} can't be: what transactions write needs all")
            self.client[setting] = value
            return
        option = BY_LOWER.get(lower)
        if option is None:
            raise WrongOption(f"there is no option {key}{_nearest(lower)}; {self._choices()}")
        if self.use not in option.used_in:
            raise WrongOption(
                f"{option.name} is for a {' and a '.join(option.used_in)}, not for a {self.use}; "
                f"{self._choices()}"
            )
        if not value and option.name not in MAY_BE_EMPTY:
            raise WrongOption(
                f"{option.name} was said and is empty: was a variable not set? Leave it out, or say it ({option.meaning})"
            )
        self._texts[lower] = value

    def check_client(self) -> None:
        is_sink = self.use in WRITE
        wrong = client_settings.why_not(self.client)
        wrong = wrong or client_settings.why_no_client(self.client, is_sink=is_sink)
        if wrong is not None:
            raise WrongOption(wrong)

    def _choices(self) -> str:
        names = ", ".join(each.name for each in OPTIONS if self.use in each.used_in)
        return f"for a {self.use} there are {names}, and kafka.… for what librdkafka can be told"

    def text(self, name: str) -> str:
        return self._texts.get(name.lower(), "")

    def group(self) -> str | None:
        text = self.text("transactionGroup")
        try:
            return group_name(text, "transactionGroup") if text else None
        except ValueError as wrong:
            raise WrongOption(str(wrong)) from None

    def count(self, name: str, least: int = 1, of: str = "") -> int | None:
        text = self.text(name)
        if not text:
            return None
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(LONG_MAX))
        if not is_number or not least <= int(text) <= LONG_MAX:
            raise WrongOption(f"{name}={text} is not a whole number{of} from {least} to {LONG_MAX}")
        return int(text)

    def per_trigger(self) -> tuple[int | None, int | None]:
        most, least = self.count("maxOffsetsPerTrigger"), self.count("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise WrongOption(
                f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}, of which no micro-batch has more: say "
                f"{most} at most, or a larger maxOffsetsPerTrigger"
            )
        return most, least

    def choice(self, name: str, usual: str, other: str) -> str:
        chosen = self.text(name).lower() or usual
        if chosen not in (usual, other):
            raise WrongOption(f"{name}={chosen} is neither {usual} nor {other}")
        return chosen

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise WrongOption(f"{name}={text} is neither true nor false")
        return default if not text else text == "true"

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        if not text:
            return default
        found = DURATION.fullmatch(text.lower())
        if found is None:
            raise WrongOption(
                f"{name}={text} is no time: say 30s, 15m or 1h (a number alone is milliseconds)"
            )
        return int(found[1]) * MS[found[2]] / 1000

    def bound(self, side: str, default: str) -> Bound:
        """The most exact thing that was said, in the order of Spark's Kafka connector."""
        since_1970 = " of milliseconds since 1970"
        everywhere_ms = self.count(f"{side}Timestamp", least=0, of=since_1970)
        by_time = f"{side}OffsetsByTimestamp"
        strategy = self.text(f"{by_time}Strategy").lower() or "error"
        if strategy not in ("error", "latest"):
            raise WrongOption(f"{by_time}Strategy={strategy} is neither error nor latest")
        # A range may end after the youngest record.
        or_latest = side == "ending" or strategy == "latest"
        if everywhere_ms is not None:
            return Bound(timestamp_ms=everywhere_ms, or_latest=or_latest)
        if self.text(by_time):
            times = _by_place(by_time, self.text(by_time), least=0)
            return Bound(timestamps_ms=times, or_latest=or_latest)
        name = f"{side}Offsets"
        text = self.text(name) or default
        if text.lower() in KEYWORDS:
            return Bound(everywhere=KEYWORDS[text.lower()])
        return Bound(offsets=_by_place(name, text, least=EARLIEST))


def _check_topic(option: str, name: str) -> None:
    if not TOPIC.fullmatch(name) or name in (".", ".."):
        raise WrongOption(
            f"{option}: {name!r} can't be a topic's name, which has letters, digits, dots, hyphens and underscores, 249 at most"
        )


def _nearest(lower: str) -> str:
    found = get_close_matches(lower, BY_LOWER, n=1)
    return f" (is it {BY_LOWER[found[0]].name}?)" if found else ""


def _by_place(name: str, text: str, *, least: int) -> Offsets:
    """`{"topic": {"0": 23}}`."""
    found: Offsets = {}
    shape = f'{name} must be JSON such as {{"topic": {{"0": 23, "1": 45}}}}'
    if name.endswith("Offsets"):
        words = "latest" if name.startswith("ending") else "earliest or latest"
        shape = shape.replace("must be JSON", f"must be {words}, or JSON")
        shape += ", with -2 for earliest and -1 for latest"
    table = _json(shape, text)
    for topic in sorted(table):
        partitions = table[topic]
        if not isinstance(partitions, dict) or not partitions:
            raise WrongOption(f"{shape}; it has {topic}: {partitions!r}")
        for partition, value in sorted(partitions.items()):
            if (
                not _is_partition(partition)
                or not _is_whole(value)
                or not least <= value <= LONG_MAX
            ):
                raise WrongOption(f"{shape}; it has {topic}-{partition}: {value!r}")
            found[topic, int(partition)] = value
    return found


def _assigned(text: str) -> tuple[Place, ...]:
    if not text:
        return ()
    shape = 'assign must be JSON such as {"topic": [0, 1]}'
    table = _json(shape, text)
    found: list[Place] = []
    for topic in sorted(table):
        partitions = table[topic]
        if not isinstance(partitions, list) or not all(
            _is_whole(each) and each >= 0 for each in partitions
        ):
            raise WrongOption(f"{shape}; it has {topic}: {partitions!r}")
        found += [(topic, each) for each in sorted(set(partitions))]
    if not found:
        raise WrongOption(f"{shape}; it names no partition")
    return tuple(found)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_partition(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit()


def _json(shape: str, text: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except ValueError as error:
        raise WrongOption(f"{shape}; {text[:80]!r} is not JSON: {error}") from None
    if not isinstance(table, dict) or not table:
        raise WrongOption(f"{shape}; it is {text[:80]!r}")
    return table


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError) as error:
        raise WrongOption(f"subscribePattern={text} is no regular expression: {error}") from None
    return text
