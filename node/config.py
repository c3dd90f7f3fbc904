"""What one node is told: a TOML file, `FENCEPOST_…` variables and flags, in rising order.

Names are Kafka's. An unknown or impossible setting stops the start with its name, the value, what is allowed and where it was
said: a typing error must not run for a year as a default. All unknown names are told at once.
"""

import difflib
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

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
ENVIRONMENT: Final = "the environment"
COMMAND_LINE: Final = "the command line"  # of which --set is a part
UNKNOWN_TOLD_MAX: Final = 10  # of a file that is another program's
# As Kafka's sentences say it.
_REFUSED_NAME: Final = re.compile(r"[cC]onfiguration '?([a-z][a-z0-9.]*)")


class NodeConfig:
    """The settings as text (what DescribeConfigs shows as static) and as typed values."""

    def __init__(
        self, text: Mapping[str, str], places: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`places` is where each was said, for a sentence."""
        told = _known_names(text)
        _refuse_unknown(_unknown_in(told, ""))
        self._places = places
        voters = told.get("controller.quorum.voters", "").split(",")
        of_a_cluster = CLUSTER_DEFAULTS if len(voters) >= CLUSTER_VOTERS_MIN else {}
        self.text: dict[str, str] = {**OUR_DEFAULTS, **of_a_cluster, **told}
        self._values: dict[str, ConfigValue] = {}
        for name, value in self.text.items():
            self._values[name] = BROKER_CONFIGS[name].parse(value)
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
        variables, unknown = _from_environment(environment)
        sources = [] if file is None else [(file, _from_file(file))]
        sources += [(ENVIRONMENT, variables), (COMMAND_LINE, _from_flags(flags))]
        text: dict[str, str] = {}
        places: dict[str, str] = {}
        for place, said in sources:
            known = _known_names(said)
            text |= known
            places |= dict.fromkeys(known, place)
            unknown += _unknown_in(known, place)
        _refuse_unknown(unknown)
        try:
            return cls(text, places)
        except ConfigRefused as refused:
            raise ConfigRefused(_with_place(str(refused), places)) from None

    def with_place(self, sentence: str) -> str:
        """The sentence of a refusal, and where what it refuses was said."""
        return _with_place(sentence, self._places)

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


class _Unknown(NamedTuple):
    """Without its value, which may be a secret."""

    name: str
    place: str
    is_variable: bool = False

    def close(self) -> str:
        """The name that was meant, perhaps; or nothing."""
        known = [*BROKER_CONFIGS, *ALIASES]
        names = list(map(_variable, known)) if self.is_variable else known
        return next(iter(difflib.get_close_matches(self.name, names, n=1)), "")


def _unknown_in(names: Iterable[str], place: str) -> list[_Unknown]:
    return [_Unknown(name, place) for name in names if name not in BROKER_CONFIGS]


def _refuse_unknown(found: Sequence[_Unknown]) -> None:
    """ConfigRefused with all of them, so that whoever sets them right starts once more, and not once for each."""
    if not found:
        return
    told = [(each, each.close()) for each in found[:UNKNOWN_TOLD_MAX]]
    if len(found) == 1:
        one, close = told[0]
        kind, advice = "setting", "settings have Kafka's broker names"
        if one.is_variable:
            kind, advice = "variable", "unset it, or name a setting"
        advice = f"did you mean {close}?" if close else advice
        raise ConfigRefused(f"unknown {kind} {one.name}; {advice}{_from(one.place)}")
    named = [
        f"{each.name}{_from(each.place)}" + (f", did you mean {close}?" if close else "")
        for each, close in told
    ]
    if len(found) > len(told):
        named.append(f"and {len(found) - len(told)} more")
    raise ConfigRefused(
        f"{len(found)} unknown settings (they have Kafka's broker names): {'; '.join(named)}"
    )


def _from(place: str) -> str:
    return f" (from {place})" if place else ""


def _with_place(sentence: str, places: Mapping[str, str]) -> str:
    named = _REFUSED_NAME.search(sentence)
    return sentence if named is None else sentence + _from(places.get(named[1].rstrip("."), ""))


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


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[_Unknown]]:
    known = {_variable(name): name for name in [*BROKER_CONFIGS, *ALIASES]}
    found, unknown = {}, []
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(NOT_SETTINGS):
            name = known.get(variable)
            if name is not None:
                found[name] = environment[variable]
                continue
            unknown.append(_Unknown(variable, ENVIRONMENT, is_variable=True))
    return found, unknown


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
