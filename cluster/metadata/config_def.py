"""What a setting is: its type, its default, what it may be, and Kafka's sentence when it may not.

A table of `ConfigDef` is to us what `ConfigDef.define(...)` is to Kafka: parsing, validation, the answer to
DescribeConfigs and the documentation are all read from it.
"""

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from ..base.errors import ConfigRefused

ConfigValue = bool | int | float | str | list[str] | None


class ValueType(enum.IntEnum):
    """The numbers are those of DescribeConfigs' `config_type`."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(enum.IntEnum):
    """Where the value in force comes from, as DescribeConfigs counts them."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1  # set on the topic
    DYNAMIC_BROKER_CONFIG = 2  # set on this broker
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3  # set on all brokers
    STATIC_BROKER_CONFIG = 4  # in the node's own file
    DEFAULT_CONFIG = 5  # Kafka's, or ours
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Update(enum.Enum):
    """Whether a broker's setting can change while it runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"  # on one broker or on all


# Says why a parsed value is impossible, or None when it is fine.
Validator = Callable[[str, ConfigValue], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    """One setting."""

    name: str
    type: ValueType
    default: ConfigValue
    validator: Validator | None = None
    update: Update = Update.READ_ONLY
    # Broker-level names that stand in when a topic's setting is not set, with the factor that turns
    # their unit into this one's: `retention.ms` <- `log.retention.hours` x 3,600,000.
    synonyms: tuple[tuple[str, int], ...] = ()
    internal: bool = False  # understood, and shown only where it was set

    @property
    def sensitive(self) -> bool:
        return self.type is ValueType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The typed value of what a person or a client wrote. ConfigRefused with Kafka's sentence."""
        value = parse_value(self.name, self.type, text)
        why = None if self.validator is None else self.validator(self.name, value)
        if why is not None:
            raise ConfigRefused(why)
        return value


INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?\Z", re.ASCII)
_BITS: Final = {ValueType.SHORT: 15, ValueType.INT: 31, ValueType.LONG: 63}
_DIGITS_MAX: Final = (
    400  # more than any number has: neither int() nor a regular expression is linear
)


def parse_value(name: str, type_: ValueType, text: str) -> ConfigValue:
    """Text to value, as Kafka's `ConfigDef.parseType` does it."""
    trimmed = text.strip()
    match type_:
        case ValueType.BOOLEAN:
            if trimmed.lower() in ("true", "false"):
                return trimmed.lower() == "true"
            raise _unparsable(name, text, "Expected value to be either true or false")
        case ValueType.INT | ValueType.LONG | ValueType.SHORT:
            if len(trimmed) < _DIGITS_MAX and _INTEGER.match(trimmed):
                number = int(trimmed)
                if -(1 << _BITS[type_]) <= number < (1 << _BITS[type_]):
                    return number
            raise _unparsable(name, text, f"Not a number of type {type_.name}")
        case ValueType.DOUBLE:
            if len(trimmed) < _DIGITS_MAX and _DOUBLE.match(trimmed):
                return float(trimmed.rstrip("fFdD"))
            if trimmed.lstrip("+-") in ("NaN", "Infinity"):
                return float(trimmed.replace("Infinity", "inf"))
            raise _unparsable(name, text, f"Not a number of type {type_.name}")
        case ValueType.LIST:
            return [item.strip() for item in trimmed.split(",")] if trimmed else []
        case _:
            return trimmed


def show_value(value: ConfigValue) -> str | None:
    """The text that `parse_value` would read back, as DescribeConfigs shows it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(value)
        case float():
            return _show_double(value)
        case _:
            return str(value)


def _show_double(value: float) -> str:
    """As Java prints a double: `1.0E10` from ten million on, and below a thousandth."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"


def _unparsable(name: str, text: str, why: str) -> ConfigRefused:
    return ConfigRefused(f"Invalid value {text} for configuration {name}: {why}")


def invalid_value(name: str, value: ConfigValue, why: str) -> str:
    """Kafka's sentence for a value that its validator refuses."""
    shown = f"[{', '.join(value)}]" if isinstance(value, list) else show_value(value)
    return f"Invalid value {'null' if shown is None else shown} for configuration {name}: {why}"


# --- validators -----------------------------------------------------------------------------------


def between(least: float, most: float | None = None) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        if value < least:
            return invalid_value(name, value, f"Value must be at least {least}")
        if most is not None and value > most:
            return invalid_value(name, value, f"Value must be no more than {most}")
        return None

    return check


def at_least(least: float) -> Validator:
    return between(least)


def one_of(*allowed: str) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        if value in allowed:
            return None
        return invalid_value(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def one_of_any_case(*allowed: str) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        if isinstance(value, str) and value.upper() in allowed:
            return None
        hint = f"String must be one of (case insensitive): {', '.join(allowed)}"
        return invalid_value(name, value, hint)

    return check


def list_of(*allowed: str) -> Validator:
    """Each item one of `allowed`; of anything when none are named, but never empty."""

    def check(name: str, value: ConfigValue) -> str | None:
        assert isinstance(value, list)
        for item in value:
            if not item:
                return f"Configuration '{name}' values must not be empty."
            if allowed and item not in allowed:
                return invalid_value(name, item, f"String must be one of: {', '.join(allowed)}")
        return None

    return check


def not_empty(name: str, value: ConfigValue) -> str | None:
    return None if value else invalid_value(name, value, "String must be non-empty")


def gzip_level(name: str, value: ConfigValue) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")


_REPLICA: Final = re.compile(r"\s*[0-9]+:[0-9]+\s*\Z", re.ASCII)


def throttled_replicas(name: str, value: ConfigValue) -> str | None:
    assert isinstance(value, list)
    items = [item.strip() for item in value]
    if not any(items) or items == ["*"] or all(_REPLICA.match(item) for item in items):
        return None
    hint = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    why = f"{name} must be the literal '*' or a list of replicas in the following format: {hint}"
    return invalid_value(name, value, why)


# --- rows of a table ------------------------------------------------------------------------------


def _row(type_: ValueType, usual: Validator | None = None) -> Callable[..., ConfigDef]:
    def row(
        name: str,
        default: ConfigValue = None,
        validator: Validator | None = usual,
        update: Update = Update.READ_ONLY,
        *,
        synonyms: tuple[tuple[str, int], ...] = (),
        internal: bool = False,
    ) -> ConfigDef:
        return ConfigDef(
            name=name,
            type=type_,
            default=default,
            validator=validator,
            update=update,
            synonyms=synonyms,
            internal=internal,
        )

    return row


def _no_such_class(name: str, value: ConfigValue) -> str | None:
    """Kafka loads a class by such a name. There are none here to load."""
    return invalid_value(name, value, f"Class {value} could not be found.")


boolean = _row(ValueType.BOOLEAN)
integer = _row(ValueType.INT)
short = _row(ValueType.SHORT)
long = _row(ValueType.LONG)
double = _row(ValueType.DOUBLE)
string = _row(ValueType.STRING)
csv = _row(ValueType.LIST, list_of())
java_class = _row(ValueType.CLASS, _no_such_class)
password = _row(ValueType.PASSWORD)


def table(rows: Iterable[ConfigDef]) -> Mapping[str, ConfigDef]:
    """Rows by name, in their order: it decides which of two refusals is told."""
    by_name: dict[str, ConfigDef] = {}
    for row in rows:
        assert row.name not in by_name, f"{row.name} is defined twice"
        by_name[row.name] = row
    return by_name
