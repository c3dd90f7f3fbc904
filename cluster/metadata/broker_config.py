"""The settings of brokers: all of Kafka's, which value is in force on a node, and what may be changed while it runs."""

import re
from collections.abc import Mapping
from typing import Final

from ..base.errors import ConfigRefused
from ..base.ids import BrokerId
from .broker_table import BROKER_TABLE
from .config_def import ConfigDef, ConfigSource, ConfigValue, Update
from .image import BROKER_DEFAULT, ClusterImage, ConfigType
from .unused_table import UNUSED_TABLE

BROKER_CONFIGS: Final[Mapping[str, ConfigDef]] = {**BROKER_TABLE, **UNUSED_TABLE}

# Several names for one setting, in falling precedence, each asked with those that follow it.
_SAME_SETTING: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_OF_A_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)\Z")


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The names under which a broker-level setting may be set, the given one first."""
    for names in _SAME_SETTING:
        if name in names:
            return names[names.index(name) :]
    of_a_listener = _OF_A_LISTENER.match(name)
    return (name, of_a_listener.group(1)) if of_a_listener else (name,)


class BrokerValues:
    """The broker-level settings in force on one node, and who set them."""

    __slots__ = ("_places",)

    def __init__(
        self, image: ClusterImage, node_config: Mapping[str, str], broker_id: BrokerId | None
    ) -> None:
        mine: Mapping[str, str] = {}
        if broker_id is not None:
            mine = image.config(ConfigType.BROKER, str(broker_id))
        self._places: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, mine),
            (
                ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                image.config(ConfigType.BROKER, BROKER_DEFAULT),
            ),
            (ConfigSource.STATIC_BROKER_CONFIG, node_config),
        )

    def names(self) -> set[str]:
        """All that somebody set, known or not."""
        return {name for _, place in self._places for name in place}

    def set_by(self, name: str) -> list[tuple[ConfigSource, str]]:
        """Who set a value under exactly this name, nearest first."""
        return [(source, place[name]) for source, place in self._places if name in place]

    def of(self, name: str) -> ConfigValue:
        """The value in force of one of `BROKER_CONFIGS`."""
        row = BROKER_CONFIGS[name]
        found = self.set_by(name)
        return row.parse(found[0][1]) if found else row.default

    def integer(self, name: str) -> int:
        value = self.of(name)
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def for_topics(self, row: ConfigDef) -> ConfigValue:
        """What a topic has that does not set `row` itself.

        The first synonym that has a value wins, whoever set it: `log.retention.ms` of all brokers beats
        `log.retention.hours` of this one.
        """
        for name, factor in row.synonyms:
            value = self.of(name)
            if isinstance(value, int) and not isinstance(value, bool):
                # Below none is none: hours times a factor must not become -3,600,000.
                return -1 if value < 0 and factor > 1 else value * factor
            if value is not None:
                return value
        return row.default


# --- changing them --------------------------------------------------------------------------------

# Of a listener, and for all brokers at once nevertheless.
_CLUSTER_LEVEL_OF_LISTENERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
# What Kafka lets change only under `listener.name.NAME.`: keys and certificates.
_ONLY_BY_LISTENER: Final = frozenset(
    name for name in BROKER_CONFIGS if name.startswith(("ssl.keystore.", "ssl.truststore."))
) | {"ssl.key.password"}

# Kafka opens and closes listeners while it runs. To take these and do nothing would be a lie.
_ONLY_AT_A_START: Final = frozenset({"listeners", "listener.security.protocol.map"})


def check_broker_configs(overrides: Mapping[str, str], *, one_broker: bool) -> None:
    """ConfigRefused, in Kafka's words, for dynamic settings that can't be; unknown names pass, as there."""
    _refuse(
        "Cannot update these configs dynamically",
        [
            name
            for name in overrides
            if name in BROKER_CONFIGS and BROKER_CONFIGS[name].update is Update.READ_ONLY
        ],
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in overrides if name in _ONLY_BY_LISTENER],
    )
    for name, text in overrides.items():
        row = BROKER_CONFIGS.get(broker_synonyms(name)[-1] if "listener.name." in name else name)
        if row is not None:
            row.parse(text)
    if not one_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [name for name in overrides if _is_per_broker(name)],
        )
    _refuse(
        "A node here opens its doors when it starts, so write it into its own settings (--config, FENCEPOST_…, --set) and start"
        " it again; these are not changed while it runs",
        [name for name in overrides if name in _ONLY_AT_A_START],
    )


def _is_per_broker(name: str) -> bool:
    of_a_listener = _OF_A_LISTENER.match(name)
    if of_a_listener:
        return of_a_listener.group(1) not in _CLUSTER_LEVEL_OF_LISTENERS
    row = BROKER_CONFIGS.get(name)
    return row is not None and row.update is Update.PER_BROKER


def _refuse(why: str, names: list[str]) -> None:
    if names:
        raise ConfigRefused(f"{why}: [{', '.join(names)}]")
