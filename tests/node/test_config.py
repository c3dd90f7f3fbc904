"""Where a node's settings come from, and that a wrong one stops it with its name, its value and what is allowed."""

from pathlib import Path

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.node.config import NodeConfig


def load(
    *flags: str, env: dict[str, str] | None = None, file: Path | str | None = None
) -> NodeConfig:
    return NodeConfig.load(flags=flags, environment=env or {}, file=file and str(file))


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text("[min.insync]\nreplicas = 2\n[num]\npartitions = 4\n")
    return path


def test_tables_dotted_keys_and_quoted_names_are_one_setting(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    for text in ("[num]\npartitions = 4", "num.partitions = 4", '"num.partitions" = 4'):
        path.write_text(text)
        assert load(file=path).integer("num.partitions") == 4


def test_booleans_and_lists_are_what_kafka_writes(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('auto.create.topics.enable = false\nlog.cleanup.policy = ["compact", "delete"]')
    config = load(file=path)
    assert config.flag("auto.create.topics.enable") is False
    assert config.string("log.cleanup.policy") == "compact,delete"


def test_flags_beat_variables_which_beat_the_file(toml: Path) -> None:
    env = {"FENCEPOST_NUM_PARTITIONS": "5"}
    assert load(file=toml).integer("num.partitions") == 4
    assert load(file=toml, env=env).integer("num.partitions") == 5
    assert load("num.partitions=6", file=toml, env=env).integer("num.partitions") == 6
    assert load().integer("num.partitions") == 1


def test_an_alias_wins_or_loses_by_its_source_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('flush.policy = "os"')
    env = {"FENCEPOST_LOG_FLUSH_POLICY": "interval"}
    assert load(file=path).string("log.flush.policy") == "os"
    assert load(file=path, env=env).string("log.flush.policy") == "interval"
    assert load("flush.policy=ack", file=path, env=env).string("log.flush.policy") == "ack"
    assert load(env={"FENCEPOST_FLUSH_POLICY": "os"}).string("log.flush.policy") == "os"


def test_variables_of_the_commands_and_other_programs_are_no_settings() -> None:
    load(env={"FENCEPOST_BOOTSTRAP": "a:1", "FENCEPOST_TEST_AGAINST": "kafka", "HOME": "/"})


@pytest.mark.parametrize(
    ("flag", "parts"),
    [
        ("num.partition=3", ("unknown setting num.partition;", "did you mean num.partitions?")),
        ("flush.polcy=os", ("did you mean flush.policy?",)),
        ("num.partitions=many", ("many", "num.partitions", "INT")),
        ("message.max.bytes=-4", ("-4", "message.max.bytes", "at least 0")),
        ("flush.policy=never", ("never", "ack, interval, os")),
        ("num.partitions", ("'num.partitions' is not NAME=VALUE",)),
        ("listeners=9092", ("listeners", "NAME://HOST:PORT")),
        ("listeners=SSL://h:1", ("SSL://h:1", "PLAINTEXT")),
        ("listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", ("PLAINTEXT stands there twice",)),
        (
            "listeners=PLAINTEXT://0.0.0.0:9092",
            ("0.0.0.0", "advertised.listeners=PLAINTEXT://HOST"),
        ),
        ("log.dirs=/a,/b", ("/a,/b", "log.dirs", "one folder")),
    ],
)
def test_an_impossible_setting_is_refused_with_what_is_allowed(
    flag: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigRefused) as refused:
        load(flag)
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("controller.quorum.bootstrap.servers=a:9093", "set controller.quorum.voters=ID@HOST:PORT"),
        ("process.roles=controller", "say broker,controller"),
        ("unclean.leader.election.enable=true", "partition recover --accept-data-loss"),
        ("authorizer.class.name=org.apache.Any", "everybody who reaches a listener"),
        ("default.replication.factor=0", "Value must be at least 1"),
        ("metadata.log.dir=/fast", "in the folder of log.dirs"),
        ("remote.log.storage.system.enable=true", "there is no tiered storage"),
        ("security.inter.broker.protocol=SSL", "peer.secret and peer.ssl.keystore.location"),
    ],
)
def test_a_line_of_a_kafka_that_would_mean_something_else_here_stops_the_start(
    told: str, says: str
) -> None:
    name, _, value = told.partition("=")
    with pytest.raises(
        ConfigRefused, match=f"Invalid value {value} for configuration {name}: .*{says}"
    ):
        load(told)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("peer.listener=node-2..local:9192", "'node-2..local' is no host name"),
        (f"peer.listener={'x' * 64}:9192", "over 63"),
        ("peer.advertised.listener=a..b:9192", "'a..b' is no host name"),
        ("listeners=PLAINTEXT://a..b:9092", "'a..b' is no host name"),
        ("advertised.listeners=PLAINTEXT://a b:9092", "'a b' is no host name"),
        ("controller.quorum.voters=1@a..b:9192", "'a..b' is no host name"),
        ("admin.listener=a..b:9644", "'a..b' is no host name"),
    ],
)
def test_a_host_that_nobody_can_ask_for_stops_the_start_by_its_name(told: str, says: str) -> None:
    """Whoever was told of it could not connect, and the node itself was well."""
    name = told.partition("=")[0]
    more = ["peer.listener=127.0.0.1:9192"] if name == "peer.advertised.listener" else []
    with pytest.raises(ConfigRefused, match=f"for configuration {name}: .*{says}"):
        load(told, *more)


def test_lines_of_a_kafka_that_mean_the_same_here_are_taken() -> None:
    load(
        "controller.quorum.bootstrap.servers=a:9093",
        "controller.quorum.voters=1@127.0.0.1:9192",
        "process.roles=broker,controller",
        "unclean.leader.election.enable=false",
        "authorizer.class.name=",
        "log.dirs=/data",
        "metadata.log.dir=/data",
        "security.inter.broker.protocol=PLAINTEXT",
    )


def test_log_dir_is_where_data_is_unless_the_same_source_says_log_dirs(tmp_path: Path) -> None:
    """Kafka's older name: a node that did not know it kept its data in the folder that it was started in."""
    path = tmp_path / "node.toml"
    path.write_text('log.dir = "/old"')
    assert load(file=path).log_dir == "/old"
    assert load("log.dirs=/new", file=path).log_dir == "/new"
    path.write_text('log.dir = "/old"\nlog.dirs = "/new"')
    assert load(file=path).log_dir == "/new"
    assert load("log.dir=/newest", file=path).log_dir == "/newest"
    assert load("log.dirs=", "log.dir=/old").log_dir == "/old"
    assert load().log_dir == "data"


@pytest.mark.parametrize(
    "text",
    ["num.partitions=3\nlisteners=PLAINTEXT://h:1", "request.log=true\nrequest.log.slow.ms=5"],
)
def test_a_file_that_is_no_toml_is_told_how_its_lines_are_written(
    tmp_path: Path, text: str
) -> None:
    """A `server.properties`, or a name on which another one goes on."""
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigRefused, match=r'not TOML: .* quotes there .*"request\.log" beside'):
        load(file=path)


def test_a_node_may_listen_everywhere_when_clients_are_told_a_host() -> None:
    config = load(
        "listeners=PLAINTEXT://0.0.0.0:9092", "advertised.listeners=PLAINTEXT://kafka.local:9092"
    )
    assert config.listeners[0].host == "0.0.0.0"
    assert config.advertised[0].host == "kafka.local"


def test_an_unknown_variable_is_refused_with_the_right_one() -> None:
    with pytest.raises(ConfigRefused, match=r"FENCEPOST_NODE_IDD;.*mean FENCEPOST_NODE_ID\?"):
        load(env={"FENCEPOST_NODE_IDD": "3"})


def test_all_names_that_nobody_knows_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    """One at a time a file of another program takes as many starts as it has names."""
    path = tmp_path / "node.toml"
    path.write_text('nodeid = 1\nlistners = "hunter2"\n[num]\npartitons = 3\n')
    with pytest.raises(ConfigRefused) as told:
        load("log.drs=d", "x.y=z", env={"FENCEPOST_NODE_IDD": "hunter2"}, file=path)
    assert str(told.value) == (
        "6 unknown settings (they have Kafka's broker names): FENCEPOST_NODE_IDD (from the environment), did you mean"
        f" FENCEPOST_NODE_ID?; nodeid (from {path}), did you mean node.id?; listners (from {path}), did you mean"
        f" listeners?; num.partitons (from {path}), did you mean num.partitions?; log.drs (from the command line), did you"
        " mean log.dirs?; x.y (from the command line)"
    )


def test_of_very_many_names_that_nobody_knows_the_first_are_told() -> None:
    with pytest.raises(ConfigRefused, match=r"^1000 unknown settings .*; x\.9 .*; and 990 more$"):
        load(*(f"x.{number}=1" for number in range(1000)))


def test_one_name_that_nobody_knows_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("nodeid = 1")
    with pytest.raises(ConfigRefused) as told:
        load(file=path)
    assert str(told.value) == f"unknown setting nodeid; did you mean node.id? (from {path})"


@pytest.mark.parametrize("name", ["node.id", "num.partitions"])
def test_a_value_that_can_not_be_is_told_in_kafkas_words_with_its_place(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(f'"{name}" = "one"')
    variable = {f"FENCEPOST_{name.upper().replace('.', '_')}": "one"}
    words = f"Invalid value one for configuration {name}: Not a number of type INT"
    for flags, env, place in (
        ((), {}, str(path)),
        ((), variable, "the environment"),
        ((f"{name}=one",), variable, "the command line"),
    ):
        with pytest.raises(ConfigRefused) as told:
            load(*flags, env=env, file=path)
        assert str(told.value) == f"{words} (from {place})"


@pytest.mark.parametrize(
    "told", ["log.dirs=a,b", "listeners=9092", "process.roles=controller", "log.cleanup.policy=x"]
)
def test_what_no_type_can_tell_is_told_with_its_place_too(told: str) -> None:
    with pytest.raises(ConfigRefused, match=r" \(from the command line\)$"):
        load(told)


def test_a_name_that_is_refused_is_shown_without_its_value_which_may_be_a_secret(
    tmp_path: Path,
) -> None:
    """A typing error in `peer.secret` would be its end: the refusal goes to the log, and to whoever keeps logs."""
    path = tmp_path / "node.toml"
    path.write_text('"peer.secert" = "hunter2"')
    for refused in (
        lambda: load(env={"FENCEPOST_PEER_SECERT": "hunter2"}),
        lambda: load("peer.secert=hunter2"),
        lambda: load(file=path),
    ):
        with pytest.raises(ConfigRefused, match=r"(?i)did you mean \w*peer.secret\?") as told:
            refused()
        assert "hunter2" not in str(told.value)


def test_variables_of_the_source_of_binary_logs_are_none_of_a_nodes_business() -> None:
    told = {"FENCEPOST_BINLOG_PASSWORD": "hunter2", "FENCEPOST_BINLOG_TABLES": "shop.*"}
    assert load(env={**told, "FENCEPOST_NODE_ID": "3"}).node_id == 3


@pytest.mark.parametrize("content", [b"a = = 3", b"\xd4\x00\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigRefused, match=r"node\.toml is not TOML"):
        load(file=path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"none\.toml: No such file"):
        load(file=tmp_path / "none.toml")
