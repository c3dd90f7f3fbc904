"""What DescribeConfigs answers: every setting of a resource, its value in force and where that comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..base.errors import ErrorCode
from ..base.ids import BrokerId
from .broker_config import BROKER_CONFIGS, BrokerValues, broker_synonyms
from .config_def import ConfigDef, ConfigSource, ConfigValue, Update, ValueType, show_value
from .config_docs import BROKER_DOCS, CLIENT_METRICS_DOCS, GROUP_DOCS, TOPIC_DOCS, UNUSED
from .group_config import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from .image import BROKER_DEFAULT, ClusterImage, ConfigType
from .topic_config import TOPIC_CONFIGS, why_topic_name_invalid

_SHOWN: Final = frozenset(name for name, row in BROKER_CONFIGS.items() if not row.internal)


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


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """Why a resource has no settings to show."""

    error_code: ErrorCode
    message: str | None


_MALFORMED: Final = NotDescribed(
    ErrorCode.invalid_request,
    "This most likely occurs because of a request being malformed by the client library or the"
    " message was sent to an incompatible broker. See the broker logs for more details.",
)


def describe(
    image: ClusterImage,
    node_config: Mapping[str, str],
    broker_id: BrokerId,
    resource_type: int,
    name: str,
) -> list[DescribedConfig] | NotDescribed:
    """All settings of a resource as this node sees them, or Kafka's reason why not."""
    brokers = BrokerValues(image, node_config, broker_id)
    match resource_type:
        case ConfigType.TOPIC:
            why = why_topic_name_invalid(name)
            if why is not None:
                return NotDescribed(ErrorCode.invalid_topic_exception, why)
            if name not in image.topics:
                return NotDescribed(ErrorCode.unknown_topic_or_partition, None)
            return describe_topic(brokers, image.config(ConfigType.TOPIC, name))
        case ConfigType.BROKER:
            return _describe_broker(image, brokers, broker_id, name)
        case ConfigType.GROUP if name:
            return _describe_group(brokers, image.config(ConfigType.GROUP, name))
        case ConfigType.GROUP:
            return NotDescribed(ErrorCode.invalid_request, "Group name must not be empty")
        case ConfigType.CLIENT_METRICS if name:
            return _describe_client_metrics(image.config(ConfigType.CLIENT_METRICS, name))
        case ConfigType.CLIENT_METRICS:
            why = "Client metrics subscription name must not be empty"
            return NotDescribed(ErrorCode.invalid_request, why)
        case ConfigType.BROKER_LOGGER:
            return _describe_loggers(broker_id, name)
        case _:
            return _MALFORMED


def describe_topic(brokers: BrokerValues, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """A topic's settings; also of one that is only about to be created."""
    described = []
    for row in TOPIC_CONFIGS.values():
        own = overrides.get(row.name)
        if row.internal and own is None:
            continue
        value = brokers.for_topics(row) if own is None else row.parse(own)
        synonyms = []
        if own is not None:
            synonyms.append(Synonym(row.name, show_value(value), ConfigSource.TOPIC_CONFIG))
        if row.synonyms:
            synonyms += _broker_synonyms(brokers, row.synonyms[0][0], row.sensitive)
        described.append(_described(row, value, synonyms, TOPIC_DOCS[row.name]))
    return described


def _broker_synonyms(brokers: BrokerValues, name: str, sensitive: bool) -> list[Synonym]:
    """Who gives `name` a value: of each place all names, then the next place; at last the defaults.

    Kafka drops what stands before the first that has the name asked for, and with it everything when
    nobody set that name: `retention.ms` shows no synonyms while only `log.retention.hours` is set.
    """
    names = broker_synonyms(name)
    found: list[Synonym] = []
    for source in (
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.STATIC_BROKER_CONFIG,
    ):
        for each in names:
            for set_by, text in brokers.set_by(each):
                if set_by is source:
                    found.append(Synonym(each, None if sensitive else text, source))
    for each in names:
        row = BROKER_CONFIGS.get(each)
        if row is not None and row.default is not None:
            found.append(Synonym(each, show_value(row.default), ConfigSource.DEFAULT_CONFIG))
    while found and found[0].name != name:
        del found[0]
    return found


def _described(
    row: ConfigDef,
    value: ConfigValue,
    synonyms: Iterable[Synonym],
    documentation: str,
    *,
    read_only: bool = False,
) -> DescribedConfig:
    held = tuple(synonyms)
    return DescribedConfig(
        name=row.name,
        value=None if row.sensitive else show_value(value),
        source=held[0].source if held else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=row.sensitive,
        type=row.type,
        synonyms=held,
        documentation=documentation,
    )


def _describe_broker(
    image: ClusterImage, brokers: BrokerValues, broker_id: BrokerId, name: str
) -> list[DescribedConfig] | NotDescribed:
    if name == BROKER_DEFAULT:
        set_for_all = image.config(ConfigType.BROKER, BROKER_DEFAULT)
        return [_one_of_broker(brokers, each, for_all=True) for each in sorted(set_for_all)]
    refusal = _not_this_broker(broker_id, name, "expected {} or empty string,")
    if refusal is not None:
        return refusal
    return [
        _one_of_broker(brokers, each, for_all=False) for each in sorted({*_SHOWN, *brokers.names()})
    ]


def _one_of_broker(brokers: BrokerValues, name: str, *, for_all: bool) -> DescribedConfig:
    row = BROKER_CONFIGS.get(name)
    synonyms = _broker_synonyms(brokers, name, sensitive=row is None or row.sensitive)
    if for_all:
        of_all = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        synonyms = [synonym for synonym in synonyms if synonym.source is of_all]
    if row is None:
        # Nobody knows what it is, so it may be a password.
        return DescribedConfig(
            name=name,
            value=None,
            source=synonyms[0].source,
            read_only=True,
            sensitive=True,
            type=ValueType.UNKNOWN,
            synonyms=tuple(synonyms),
            documentation="",
        )
    value = brokers.of(name)
    if for_all:
        value = row.parse(synonyms[0].value) if synonyms and synonyms[0].value else None
    read_only = row.update is Update.READ_ONLY
    docs = BROKER_DOCS.get(name, UNUSED)
    return _described(row, value, synonyms, docs, read_only=read_only)


def _describe_group(brokers: BrokerValues, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    described = []
    for row in GROUP_CONFIGS.values():
        own = overrides.get(row.name)
        value = brokers.for_topics(row) if own is None else row.parse(own)
        if row.synonyms:
            synonyms = _broker_synonyms(brokers, row.synonyms[0][0], sensitive=False)
        else:
            synonyms = [Synonym(row.name, show_value(row.default), ConfigSource.DEFAULT_CONFIG)]
        if own is not None:
            synonyms.insert(0, Synonym(row.name, show_value(value), ConfigSource.GROUP_CONFIG))
        described.append(_described(row, value, synonyms, GROUP_DOCS.get(row.name, UNUSED)))
    return described


def _describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    described = []
    for row in CLIENT_METRICS_CONFIGS.values():
        own = overrides.get(row.name)
        value = row.default if own is None else row.parse(own)
        source = ConfigSource.CLIENT_METRICS_CONFIG
        synonyms = [] if own is None else [Synonym(row.name, show_value(value), source)]
        described.append(_described(row, value, synonyms, CLIENT_METRICS_DOCS[row.name]))
    return described


def _describe_loggers(broker_id: BrokerId, name: str) -> list[DescribedConfig] | NotDescribed:
    """There is one log here and it has no levels: nothing to show, nothing to set."""
    if not name:
        return NotDescribed(ErrorCode.invalid_request, "Broker id must not be empty")
    return _not_this_broker(broker_id, name, "expected {}") or []


def _not_this_broker(broker_id: BrokerId, name: str, expected: str) -> NotDescribed | None:
    try:
        asked = int(name)
    except ValueError:
        why = f"Broker id must be an integer, but it is: {name}"
        return NotDescribed(ErrorCode.invalid_request, why)
    if asked == broker_id:
        return None
    why = f"Unexpected broker id, {expected.format(broker_id)} but received {asked}"
    return NotDescribed(ErrorCode.invalid_request, why)
