"""What DescribeConfigs answers: every setting of a resource, its value in force and where that comes from."""

from dataclasses import dataclass

from .config_def import ConfigSource, ValueType


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place that gives a value to a setting; the first of a list is in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One setting as DescribeConfigs and CreateTopics show it. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ValueType
    synonyms: tuple[Synonym, ...]
    documentation: str
