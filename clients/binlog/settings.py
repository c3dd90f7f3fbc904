"""What can be said on the command line or in the environment, in one table: the README's is compared with it."""

import argparse
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

PREFIX: Final = "FENCEPOST_BINLOG_"
INITIAL, NEVER = "initial", "never"
NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}", re.ASCII)
TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)  # Kafka's
A_TOPIC: Final = "a topic's name has letters, digits, dots, hyphens and underscores, 249 at most"
FIELDS: Final = ("{source}", "{schema}", "{table}")
# What would break a promise, and why.
NOT_THESE: Final[Mapping[str, str]] = {
    "transactional.id": "it is made of the source's name, so that a second copy fences the first",
    "enable.idempotence": "transactions need it on",
    "isolation.level": "positions are read as committed",
    "transaction.timeout.ms": "say --transaction-timeout-s",
    "bootstrap.servers": "say --bootstrap",
}
RANDOM: Final = "random"  # a partitioner
# The least and the most that a number may be: a port, MySQL's server_id, librdkafka's milliseconds.
BOUNDS: Final[Mapping[str, tuple[int, int | None]]] = {
    "port": (1, 65_535),
    "server_id": (0, 2**32 - 1),
    "records_max": (1, None),
    "linger_ms": (0, None),
    "give_up_s": (0, None),
    "transaction_timeout_s": (1, (2**31 - 1) // 1_000),
}


class WrongSetting(ValueError):
    """The setting, its value, and what is allowed."""


class Option(NamedTuple):
    name: str
    default: str
    meaning: str


OPTIONS: Final = (
    Option("source", "required", "this source's name: of its position, its topics, and what fences a second copy"),
    Option("host", "127.0.0.1", "the database's address"),
    Option("port", "3306", "its port"),
    Option("socket", "", "its socket, instead of host and port"),
    Option(
        "user",
        "root",
        "who asks; needs SELECT, REPLICATION SLAVE, and REPLICATION CLIENT or BINLOG MONITOR; "
        "on MySQL RELOAD (or FLUSH_TABLES) too, for the snapshot",
    ),
    Option("password-file", "", f"a file with the password; or {PREFIX}PASSWORD"),
    Option("tls-ca", "", "a file with certificates: the database's must be of them and of its host, and nothing is sent without TLS"),
    Option("server-id", "from the name", "as which replica to ask: no other one may have it"),
    Option("bootstrap", "127.0.0.1:9092", "Kafka's brokers: HOST:PORT,…"),
    Option("tables", "*.*", "which tables: SCHEMA.TABLE,… with * for anything"),
    Option("topic", "{source}.{schema}.{table}", "a table's topic"),
    Option("map", "", "SCHEMA.TABLE=TOPIC,…: topics of their own"),
    Option("schema-topic", "{source}.schema", "columns and schema changes; compacted"),
    Option("position-topic", "fencepost-binlog-positions", "how far sources are; compacted, many can share it"),
    Option("partitions", "-1", "of topics that are created; -1 is the brokers' default"),
    Option("replication", "-1", "copies of topics that are created; -1 is the brokers' default"),
    Option("snapshot", INITIAL, f"{INITIAL}: what is there, then what changes; {NEVER}: only what changes from now on"),
    Option("resnapshot", "false", "forget the position, once: begin anew"),
    Option("tombstones", "true", "a null behind each delete, so that compaction drops the key"),
    Option("records-max", "1000", "in a transaction of Kafka; a transaction of the database is never split"),
    Option("linger-ms", "100", "how long records wait for others to be committed with"),
    Option("transaction-timeout-s", "900", "of a transaction of Kafka, the snapshot's too"),
    Option("give-up-s", "300", "how long to try again when database or brokers are away, of which one try takes up to a minute; 0: for ever"),
    Option("accept-unsynced-binlog", "false", "go on, not exactly once when its machine loses power, with a database that does not sync at each commit"),
    Option("accept-cascades", "false", "go on, not exactly once, with tables whose rows a foreign key changes: CASCADE, SET NULL"),
    Option("stop-when-caught-up", "false", "end when all that was there at the start is written"),
    Option("kafka", "", "NAME=VALUE of librdkafka's settings; can be said several times"),
)  # fmt: skip
SWITCHES: Final = (
    *("resnapshot", "tombstones", "accept-unsynced-binlog", "accept-cascades"),
    "stop-when-caught-up",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    source: str
    bootstrap: str = "127.0.0.1:9092"
    host: str = "127.0.0.1"
    port: int = 3306
    socket: str = ""
    user: str = "root"
    password: str = field(default="", repr=False)
    tls_ca: str = ""
    server_id: int = 0
    tables: tuple[str, ...] = ("*.*",)
    topic: str = "{source}.{schema}.{table}"
    topics: Mapping[str, str] = field(default_factory=dict)
    schema_topic: str = "{source}.schema"
    position_topic: str = "fencepost-binlog-positions"
    partitions: int = -1
    replication: int = -1
    snapshot: str = INITIAL
    resnapshot: bool = False
    tombstones: bool = True
    records_max: int = 1_000
    linger_ms: int = 100
    transaction_timeout_s: int = 900
    give_up_s: float = 300.0
    accept_unsynced_binlog: bool = False
    accept_cascades: bool = False
    stop_when_caught_up: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.source):
            raise WrongSetting(
                f"--source {self.source!r}: a name has letters, digits, dots, hyphens and underscores, 200 at most"
            )
        for pattern in self.tables or ("",):
            if pattern.count(".") != 1 or not all(pattern.split(".")):
                raise WrongSetting(f"--tables {pattern!r}: say SCHEMA.TABLE, with * for anything")
        for table in self.topics:
            if table.count(".") != 1 or not self.topics[table]:
                raise WrongSetting(f"--map {table}={self.topics[table]}: say SCHEMA.TABLE=TOPIC")
            if not TOPIC.fullmatch(self.topics[table]):
                raise WrongSetting(f"--map {table}={self.topics[table]}: {A_TOPIC}")
        _check_template("--topic", self.topic, FIELDS)
        _check_template("--schema-topic", self.schema_topic, FIELDS[:1])
        for option, topic in (
            ("--schema-topic", self.schema_topic_name),
            ("--position-topic", self.position_topic),
        ):
            if not TOPIC.fullmatch(topic):
                raise WrongSetting(f"{option} {topic!r}: {A_TOPIC}")
        if self.snapshot not in (INITIAL, NEVER):
            raise WrongSetting(f"--snapshot {self.snapshot!r}: say {INITIAL} or {NEVER}")
        if self.tls_ca and not Path(self.tls_ca).is_file():
            raise WrongSetting(f"--tls-ca {self.tls_ca}: there is no such file")
        for name in sorted(self.kafka):
            if name in NOT_THESE:
                raise WrongSetting(f"--kafka {name}: {NOT_THESE[name]}")
        if self.kafka.get("partitioner") == RANDOM:
            raise WrongSetting(
                "--kafka partitioner=random: a row would not be read in the order of its changes; say another, or none"
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in BOUNDS:
            (least, most), found = BOUNDS[name], getattr(self, name)
            if found < least or (most is not None and found > most):
                allowed = f"{least} or more" if most is None else f"{least} to {most}"
                raise WrongSetting(f"--{name.replace('_', '-')} {found}: {allowed}")
        for name in ("partitions", "replication"):
            if (found := getattr(self, name)) < 1 and found != -1:
                raise WrongSetting(f"--{name} {found}: 1 or more, or -1 for the brokers' default")

    @property
    def transactional_id(self) -> str:
        return f"fencepost-binlog-{self.source}"

    @property
    def replica_id(self) -> int:
        """The same after each restart: the database then ends the connection that the last process left behind."""
        return self.server_id or 0x40000000 | zlib.crc32(self.source.encode()) >> 2

    @property
    def schema_topic_name(self) -> str:
        return self.schema_topic.replace("{source}", self.source)

    def in_small_letters(self) -> Self:
        """For a server to which all spellings of a name are one: tables are called there as rows say them."""
        topics = {table.lower(): self.topics[table] for table in self.topics}
        return replace(self, tables=tuple(each.lower() for each in self.tables), topics=topics)

    @property
    def database(self) -> str:
        """For sentences."""
        return self.socket or f"{self.host}:{self.port}"


def _check_template(option: str, text: str, allowed: Sequence[str]) -> None:
    rest = text
    for each in allowed:
        rest = rest.replace(each, "")
    if not text or "{" in rest or "}" in rest:
        raise WrongSetting(
            f"{option} {text!r}: the names that are filled in are {', '.join(allowed)}"
        )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m fencepost.clients.binlog",
        allow_abbrev=False,
        description="A database's row changes, exactly once, to Kafka's topics: MariaDB's and MySQL's.",
        epilog=f"Each option can be said in the environment: {PREFIX}TABLES for --tables. The password is said there "
        "or in a file alone.",
    )
    for each in OPTIONS:
        said = f"{each.meaning} ({each.default})" if each.default else each.meaning
        if each.name in SWITCHES:
            action: Any = argparse.BooleanOptionalAction
            made.add_argument(f"--{each.name}", action=action, default=None, help=said)
        elif each.name == "kafka":
            made.add_argument("--kafka", action="append", metavar="NAME=VALUE", help=said)
        else:
            made.add_argument(f"--{each.name}", help=said.replace("%", "%%"))
    return made


def read_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Settings:
    """What is said on the command line beats the environment."""
    chosen = vars(parser().parse_args(arguments))
    found: dict[str, Any] = {}
    for option in OPTIONS:
        name = option.name.replace("-", "_")
        told = chosen[name]
        if told is None:
            told = environment.get(PREFIX + name.upper())
        if told is not None:
            found[name] = told
    _check_environment(environment)
    if "source" not in found:
        raise WrongSetting(f"--source is not said: give this source a name (or {PREFIX}SOURCE)")
    return Settings(**_typed(found), password=_password(found, environment))


def _check_environment(environment: Mapping[str, str]) -> None:
    known = {PREFIX + each.name.replace("-", "_").upper() for each in OPTIONS} | {
        f"{PREFIX}PASSWORD"
    }
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            raise WrongSetting(f"{name} is no setting: there are {', '.join(sorted(known))}")


def _password(found: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    path = found.get("password_file")
    if not path:
        return environment.get(f"{PREFIX}PASSWORD", "")
    try:
        return Path(path).read_text().rstrip("\n")
    except OSError as trouble:
        raise WrongSetting(f"--password-file {path}: {trouble.strerror}") from trouble


def _typed(found: Mapping[str, Any]) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    for name in found:
        told = found[name]
        option = f"--{name.replace('_', '-')}"
        if name == "password_file":
            continue
        if name == "map":
            typed["topics"] = dict(_pair(option, each) for each in _split(told))
        elif name == "kafka":
            pairs = told if isinstance(told, list) else _ANOTHER.split(told)
            typed[name] = dict(_secret_pair(option, each) for each in pairs if each.strip())
        elif name == "tables":
            typed[name] = tuple(_split(told))
        elif option[2:] in SWITCHES:
            typed[name] = _truth(option, told)
        elif name in _NUMBERS:
            typed[name] = _number(option, told)
        else:
            typed[name] = told
    return typed


_NUMBERS: Final = frozenset(
    (
        *("port", "server_id", "partitions", "replication", "records_max"),
        *("linger_ms", "transaction_timeout_s", "give_up_s"),
    )
)


_ANOTHER: Final = re.compile(r",(?=\s*[\w.]+=)")  # a value may have commas, as passwords do


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise WrongSetting(f"{option} {text!r}: say NAME=VALUE")
    return name.strip(), value.strip()


def _secret_pair(option: str, text: str) -> tuple[str, str]:
    """A part of what may be a password is not shown."""
    if not text.partition("=")[0].strip() or "=" not in text:
        raise WrongSetting(
            f"{option}: say NAME=VALUE (what was said may be secret, and is not shown)"
        )
    return _pair(option, text)


def _truth(option: str, told: Any) -> bool:
    if isinstance(told, bool):
        return told
    if str(told).lower() not in ("true", "false"):
        raise WrongSetting(f"{option} {told!r}: say true or false")
    return str(told).lower() == "true"


def _number(option: str, told: Any) -> int:
    try:
        return int(told)
    except ValueError as trouble:
        raise WrongSetting(f"{option} {told!r} is no whole number") from trouble
