"""What one node is told: a TOML file, `FENCEPOST_…` variables and flags, in rising order.

Names are Kafka's. An unknown or impossible setting stops the start with its name, the value and what is allowed:
a typing error must not run for a year as a default.
"""

import difflib
import pathlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS
from fencepost.cluster.metadata.config_def import ConfigValue

from .listener_settings import listener_settings
from .peer_settings import Address, PeerSettings, parse_address, peer_settings
from .peer_tls import peer_tls

ENVIRONMENT_PREFIX: Final = "FENCEPOST_"
# Variables of the commands, the tests and the source of binary logs, which a node in the same shell inherits.
NOT_SETTINGS: Final = (
    "FENCEPOST_ADMIN_URL",
    "FENCEPOST_BINLOG_",
    "FENCEPOST_BOOTSTRAP",
    "FENCEPOST_TEST_",
)
# Where Kafka has no default, or one for a cluster: a node that is told nothing is the first of its kind.
OUR_DEFAULTS: Final[Mapping[str, str]] = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "data",
    # One node can hold one replica; three voters or more have Kafka's defaults.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
CLUSTER_DEFAULTS: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
CLUSTER_VOTERS_MIN: Final = 3
# A topic's name for a setting whose broker-level name people would have to guess.
ALIASES: Final[Mapping[str, str]] = {"flush.policy": "log.flush.policy"}


class NodeConfig:
    """The settings as text (what DescribeConfigs shows as static) and as typed values."""

    def __init__(self, text: Mapping[str, str]) -> None:
        told = _known_names(text)
        voters = told.get("controller.quorum.voters", "").split(",")
        of_a_cluster = CLUSTER_DEFAULTS if len(voters) >= CLUSTER_VOTERS_MIN else {}
        self.text: dict[str, str] = {**OUR_DEFAULTS, **of_a_cluster, **told}
        self._values: dict[str, ConfigValue] = {}
        for name, value in self.text.items():
            definition = BROKER_CONFIGS.get(name)
            if definition is None:
                raise ConfigRefused(f"unknown setting {name}{_suggest(name)}")  # a secret, perhaps
            self._values[name] = definition.parse(value)
        doors = listener_settings(
            self.string("listeners"),
            self.string("advertised.listeners"),
            self.string("listener.security.protocol.map"),
        )
        self.listeners, self.advertised = doors.bound, doors.advertised
        self.peers: PeerSettings = peer_settings(
            self.node_id,
            self.strings("controller.quorum.voters"),
            self.string("peer.listener"),
            self.string("peer.advertised.listener"),
            self.string("peer.secret"),
            peer_tls(
                self.string("peer.ssl.keystore.location"),
                self.string("peer.ssl.truststore.location"),
                self.string("peer.ssl.key.password"),
                self.string("peer.ssl.endpoint.identification.algorithm"),
            ),
        )
        admin = self.string("admin.listener")
        self.admin_listener: Address | None = (
            parse_address("admin.listener", admin, "127.0.0.1:9644") if admin else None
        )
        self._check()

    def _check(self) -> None:
        """What no single setting can tell."""
        if "," in self.log_dir:
            raise ConfigRefused(
                f"Invalid value {self.log_dir} for configuration log.dirs: a node keeps everything in "
                "one folder; name one, and put several disks beneath it as one volume"
            )
        for name, (is_meant_otherwise, why) in _NOT_AS_IN_KAFKA.items():
            if name in self._values and is_meant_otherwise(self):
                raise ConfigRefused(
                    f"Invalid value {self.text[name]} for configuration {name}: {why}"
                )

    @classmethod
    def load(
        cls, *, flags: Sequence[str], environment: Mapping[str, str], file: str | None
    ) -> Self:
        text: dict[str, str] = {}
        if file is not None:
            text |= _known_names(_from_file(file))
        text |= _known_names(_from_environment(environment))
        text |= _known_names(_from_flags(flags))
        return cls(text)

    def value(self, name: str) -> ConfigValue:
        """The typed value in force: what was set, or the default."""
        if name in self._values:
            return self._values[name]
        return BROKER_CONFIGS[name].default

    def string(self, name: str) -> str:
        value = self.value(name)
        if isinstance(value, list):
            return ",".join(value)
        assert value is None or isinstance(value, str), name
        return value or ""

    def strings(self, name: str) -> list[str]:
        value = self.value(name)
        assert isinstance(value, list), name
        return value

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int) and not isinstance(value, bool), name
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    @property
    def node_id(self) -> BrokerId:
        return BrokerId(self.integer("node.id"))

    @property
    def log_dir(self) -> str:
        return self.string("log.dirs")

    @property
    def auto_create_topics_enable(self) -> bool:
        return self.flag("auto.create.topics.enable")

    @property
    def fetch_max_bytes(self) -> int:
        return self.integer("fetch.max.bytes")

    @property
    def max_request_partitions(self) -> int:
        return self.integer("max.request.partition.size.limit")


# Settings of a Kafka's file that would make something else of a node, and nobody would see it at the start.
_NOT_AS_IN_KAFKA: Final[Mapping[str, tuple[Callable[[NodeConfig], bool], str]]] = {
    "authorizer.class.name": (
        lambda config: bool(config.string("authorizer.class.name")),
        "there are no ACLs here yet: everybody who reaches a listener may do everything. Take the line out, and mind who does",
    ),
    "controller.quorum.bootstrap.servers": (
        lambda config: (
            bool(config.strings("controller.quorum.bootstrap.servers"))
            and not config.strings("controller.quorum.voters")
        ),
        "with this alone each node would be a cluster of its own; set controller.quorum.voters=ID@HOST:PORT,… on all of them",
    ),
    "metadata.log.dir": (
        lambda config: config.string("metadata.log.dir") not in ("", config.log_dir),
        "the metadata log is in the folder of log.dirs, beside the partitions; take the line out",
    ),
    "remote.log.storage.system.enable": (
        lambda config: config.flag("remote.log.storage.system.enable"),
        "there is no tiered storage here: all that is kept is on the nodes' disks; take the line out, and mind retention",
    ),
    "security.inter.broker.protocol": (
        lambda config: config.string("security.inter.broker.protocol") != "PLAINTEXT",
        "nodes talk to each other at peer.listener, where peer.secret and peer.ssl.keystore.location say how; take the line out",
    ),
    "process.roles": (
        lambda config: "broker" not in config.strings("process.roles"),
        "there are no nodes that only vote: each keeps partitions, too; take the line out, or say broker,controller",
    ),
    "unclean.leader.election.enable": (
        lambda config: config.flag("unclean.leader.election.enable"),
        "who lacks committed records is elected by a person alone: `fencepost partition recover --accept-data-loss`",
    ),
}


def _known_names(text: Mapping[str, str]) -> dict[str, str]:
    """Without aliases; done for each source by itself, so that the name chosen doesn't change which one wins."""
    known = {ALIASES.get(name, name): value for name, value in text.items()}
    if known.get("log.dir") and not known.get("log.dirs"):  # Kafka looks at them in this order, too
        known["log.dirs"] = known["log.dir"]
    return known


def _suggest(name: str) -> str:
    close = difflib.get_close_matches(name, [*BROKER_CONFIGS, *ALIASES], n=1)
    return f"; did you mean {close[0]}?" if close else "; settings have Kafka's broker names"


def _from_file(path: str) -> dict[str, str]:
    try:
        parsed = tomllib.loads(pathlib.Path(path).read_text())
    except OSError as missing:
        raise ConfigRefused(f"can't read the configuration {path}: {missing.strerror}") from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as damaged:
        raise ConfigRefused(
            f'{path} is not TOML: {damaged}. Text stands in quotes there (listeners = "PLAINTEXT://HOST:9092"), and so does a '
            'name on which another goes on ("request.log" beside "request.log.slow.ms")'
        ) from damaged
    return dict(_flatten("", parsed))


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """`[min.insync] replicas = 2`, `min.insync.replicas = 2` and the quoted name are one setting."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(f"{name}.", value)
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, list):
            yield name, ",".join(str(item) for item in value)
        else:
            yield name, str(value)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {_variable(name): name for name in [*BROKER_CONFIGS, *ALIASES]}
    found = {}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(NOT_SETTINGS):
            name = known.get(variable)
            if name is None:
                close = difflib.get_close_matches(variable, known, n=1)
                raise ConfigRefused(
                    f"unknown variable {variable}; "  # without its value, which may be a secret
                    + (f"did you mean {close[0]}?" if close else "unset it, or name a setting")
                )
            found[name] = environment[variable]
    return found


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def _from_flags(flags: Sequence[str]) -> dict[str, str]:
    found = {}
    for flag in flags:
        name, separator, value = flag.partition("=")
        if not separator:
            raise ConfigRefused(f"{flag!r} is not NAME=VALUE: say for example node.id=1")
        found[name.strip()] = value.strip()
    return found
