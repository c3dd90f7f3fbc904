"""The settings of single groups and of client metrics: Kafka's tables, limits and sentences."""

import re
from collections.abc import Mapping
from re import _parser  # type: ignore[attr-defined]  # what `re.compile` begins with
from typing import Final

from ..base.errors import ConfigRefused
from .broker_config import BrokerValues
from .config_def import (
    ConfigDef,
    ConfigValue,
    at_least,
    boolean,
    csv,
    integer,
    invalid_value,
    one_of,
    string,
    table,
)

_DURATION: Final = re.compile(
    r"by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?\Z",
    re.IGNORECASE | re.ASCII,
)


def _offset_reset(name: str, value: ConfigValue) -> str | None:
    if value in ("earliest", "latest") or (isinstance(value, str) and _DURATION.match(value)):
        return None
    why = (
        f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest',"
        " 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )
    return invalid_value(name, value, why)


def _of(name: str) -> tuple[tuple[str, int], ...]:
    return ((name, 1),)


def _times(kind: str) -> tuple[ConfigDef, ...]:
    def row(what: str, default: int, least: int) -> ConfigDef:
        name = f"{kind}.{what}.ms"
        return integer(name, default, at_least(least), synonyms=_of(f"group.{name}"))

    return (
        row("session.timeout", 45_000, 1),
        row("heartbeat.interval", 5000, 1),
        row("assignment.interval", 1000, 0),
    )


def _number(name: str, default: int, least: int) -> ConfigDef:
    return integer(name, default, at_least(least), synonyms=_of(f"group.{name}"))


_ROWS: Final = (
    *_times("consumer"),
    *_times("share"),
    _number("share.record.lock.duration.ms", 30_000, 1000),
    _number("share.delivery.count.limit", 5, 2),
    _number("share.partition.max.record.locks", 2000, 100),
    string("share.auto.offset.reset", "latest", _offset_reset),
    string(
        "share.isolation.level", "read_uncommitted", one_of("read_committed", "read_uncommitted")
    ),
    boolean("share.renew.acknowledge.enable", True),
    *_times("streams"),
    _number("streams.num.standby.replicas", 0, 0),
    _number("streams.initial.rebalance.delay.ms", 3000, 0),
)

GROUP_CONFIGS: Final[Mapping[str, ConfigDef]] = table(_ROWS)

# A group's setting -> the broker-level settings that it must not go beyond.
_LIMITS: Final[Mapping[str, tuple[str | None, str]]] = {
    **{
        f"{kind}.{what}.ms": (f"group.{kind}.min.{what}.ms", f"group.{kind}.max.{what}.ms")
        for kind in ("consumer", "share", "streams")
        for what in ("heartbeat.interval", "session.timeout", "assignment.interval")
    },
    **{
        f"share.{what}": (f"group.share.min.{what}", f"group.share.max.{what}")
        for what in (
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        )
    },
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}


def check_group_configs(overrides: Mapping[str, str], brokers: BrokerValues) -> None:
    """ConfigRefused, in Kafka's words, for what a group can't have."""
    for name in overrides:
        if name not in GROUP_CONFIGS:
            raise ConfigRefused(f"Unknown group config name: {name}")
    values = {row.name: brokers.for_topics(row) for row in _ROWS}
    for row in _ROWS:
        if row.name in overrides:
            values[row.name] = row.parse(overrides[row.name])
    for name, (least, most) in _LIMITS.items():
        value = values[name]
        assert isinstance(value, int)
        if least is not None and value < brokers.integer(least):
            raise ConfigRefused(f"{name} must be greater than or equal to {least}")
        if value > brokers.integer(most):
            raise ConfigRefused(f"{name} must be less than or equal to {most}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = values[session], values[heartbeat]
        assert isinstance(session_ms, int) and isinstance(heartbeat_ms, int)
        if session_ms <= heartbeat_ms:
            raise ConfigRefused(f"{session} must be greater than {heartbeat}")


# --- client metrics -------------------------------------------------------------------------------

CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigDef]] = table(
    (integer("interval.ms", 300_000), csv("match", []), csv("metrics", []))
)
_INTERVAL_MS_MIN: Final = 100
_INTERVAL_MS_MAX: Final = 3_600_000
_PATTERN_LENGTH_MAX: Final = 1000
_MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class MetricsRefused(ConfigRefused):
    """A client-metrics setting that Kafka answers with INVALID_REQUEST where others get INVALID_CONFIG."""


def check_client_metrics_configs(overrides: Mapping[str, str]) -> None:
    """ConfigRefused, in Kafka's words, for what a metrics subscription can't have."""
    for name in overrides:
        if name not in CLIENT_METRICS_CONFIGS:
            raise MetricsRefused(f"Unknown client metrics configuration: {name}")
    values = {name: CLIENT_METRICS_CONFIGS[name].parse(text) for name, text in overrides.items()}
    interval = values.get("interval.ms", _INTERVAL_MS_MIN)
    assert isinstance(interval, int)
    if not _INTERVAL_MS_MIN <= interval <= _INTERVAL_MS_MAX:
        raise MetricsRefused(
            f"Invalid value {interval} for interval.ms, interval must be between"
            f" {_INTERVAL_MS_MIN} and {_INTERVAL_MS_MAX} (1 hour)"
        )
    patterns = values.get("match", [])
    assert isinstance(patterns, list)
    for pattern in patterns:
        key, equals, expression = pattern.partition("=")
        if not equals or key.strip() not in _MATCH_KEYS or not _compiles(expression.strip()):
            raise ConfigRefused(f"Illegal client matching pattern: {pattern}")


def _compiles(expression: str) -> bool:
    """It is read and no more, as nobody matches by it here: to compile a thousand letters of `(?i)[...]` takes 0.7 s, and a
    request may have dozens of them."""
    if len(expression) > _PATTERN_LENGTH_MAX:
        return False
    try:
        _parser.parse(expression)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
