"""What a setting is: its type, its default, what it may be, and Kafka's sentence when it may not.

A table of `ConfigDef` is to us what `ConfigDef.define(...)` is to Kafka: parsing, validation, the answer to
DescribeConfigs and the documentation are all read from it.
"""

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    doc: str = ""
    validator: Validator | None = None
    sensitive: bool = False
    update: Update = Update.READ_ONLY
    # Broker-level names that stand in when this one is not set, with the factor that turns their
    # unit into this one's: `retention.ms` <- `log.retention.hours` x 3,600,000.
    synonyms: tuple[tuple[str, int], ...] = ()
    internal: bool = False  # understood, and never shown
    # The unit-converted cousins of a broker-level setting: never synonyms of a topic's default.
    hidden_default: bool = False

    def parse(self, text: str | None) -> ConfigValue:
        """The typed value of what a person or a client wrote. ConfigRefused with Kafka's sentence."""
        value = None if text is None else parse_value(self.name, self.type, text)
        if self.validator is not None:
            why = self.validator(self.name, value)
            if why is not None:
                raise ConfigRefused(why)
        return value

    def show(self, value: ConfigValue) -> str | None:
        """A value as DescribeConfigs shows it."""
        return show_value(value)


INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?\Z", re.ASCII)
_BITS: Final = {ValueType.SHORT: 15, ValueType.INT: 31, ValueType.LONG: 63}
_COMMA: Final = re.compile(r"\s*,\s*")
_NOT_A_NUMBER: Final = "Not a number of type {}"


def parse_value(name: str, type_: ValueType, text: str) -> ConfigValue:
    """Text to value, as Kafka's `ConfigDef.parseType` does it."""
    trimmed = text.strip()
    match type_:
        case ValueType.BOOLEAN:
            if trimmed.lower() in ("true", "false"):
                return trimmed.lower() == "true"
            raise _invalid(name, text, "Expected value to be either true or false")
        case ValueType.INT | ValueType.LONG | ValueType.SHORT:
            if _INTEGER.match(trimmed):
                number = int(trimmed)
                if -(1 << _BITS[type_]) <= number < (1 << _BITS[type_]):
                    return number
            raise _invalid(name, trimmed, _NOT_A_NUMBER.format(type_.name))
        case ValueType.DOUBLE:
            if _DOUBLE.match(trimmed):
                return float(trimmed.rstrip("fFdD"))
            if trimmed.lstrip("+-") in ("NaN", "Infinity"):
                return float(trimmed.replace("Infinity", "inf"))
            raise _invalid(name, trimmed, _NOT_A_NUMBER.format(type_.name))
        case ValueType.LIST:
            return list(_COMMA.split(trimmed)) if trimmed else []
        case _:
            return trimmed


def show_value(value: ConfigValue) -> str | None:
    """The text that `parse_value` would read back."""
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
    if math.isnan(value) or math.isinf(value):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value:e}".partition("e")
    digits = repr(value / 10 ** int(exponent)) if "." in repr(value) else mantissa
    return f"{digits}E{int(exponent)}"


def _invalid(name: str, value: object, why: str) -> ConfigRefused:
    return ConfigRefused(f"Invalid value {value} for configuration {name}: {why}")


def invalid_value(name: str, value: ConfigValue, why: str) -> str:
    """Kafka's sentence for a value that its validator refuses."""
    return f"Invalid value {_show_java(value)} for configuration {name}: {why}"


def _show_java(value: ConfigValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    return str(show_value(value))


def at_least(least: float) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        if value is None:
            return invalid_value(name, value, "Value must be non-null")
        if isinstance(value, int | float) and value < least:
            return invalid_value(name, value, f"Value must be at least {least}")
        return None

    return check


def between(least: float, most: float) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        if value is None:
            return invalid_value(name, value, "Value must be non-null")
        if isinstance(value, int | float) and value < least:
            return invalid_value(name, value, f"Value must be at least {least}")
        if isinstance(value, int | float) and value > most:
            return invalid_value(name, value, f"Value must be no more than {most}")
        return None

    return check


def one_of(*allowed: str) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        if value in allowed:
            return None
        return invalid_value(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def defs_by_name(*defs: ConfigDef) -> Mapping[str, ConfigDef]:
    table = {each.name: each for each in defs}
    assert len(table) == len(defs), "a setting is defined twice"
    return table
