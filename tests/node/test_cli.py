"""The commands for people, against one real node: what they print, and the sentence when something is wrong."""

import base64
import json
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from cli_said import Run, refused
from confluent_kafka import Consumer, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient
from fencepost.chaos.harness.processes import Node, free_port
from fencepost.node.cli import COMMANDS
from fencepost.node.cli.topic import _id

FENCEPOST = Path(sys.executable).with_name("fencepost")
_number = count(1)


@pytest.fixture
def topic(run: Run) -> str:
    name = f"topic-{next(_number)}"
    assert run("topic", "create", name, "--partitions", "2").out == f"{name} created\n"
    return name


def lines(folder: Path, *text: str) -> str:
    path = folder / "lines"
    path.write_text("".join(f"{line}\n" for line in text))
    return str(path)


# What is written is read


def test_a_topics_id_is_written_as_kafka_writes_it() -> None:
    """Base64 for addresses, without padding: librdkafka's has `+` and `/`."""
    for high, low in ((-1, -2), (2**62, 62)):
        digits = (((high % 2**64) << 64) | (low % 2**64)).to_bytes(16)
        as_kafka_has_it = base64.urlsafe_b64encode(digits).decode().rstrip("=")
        assert _id(Uuid(high, low)) == as_kafka_has_it


@pytest.mark.slow
def test_lines_that_are_produced_are_consumed_with_keys_and_headers(
    run: Run, topic: str, tmp_path: Path
) -> None:
    file = lines(tmp_path, "k:one", ":plain", "k:two")
    words = ("--file", file, "--key-separator", ":", "--header", "from=test")
    said = run("produce", topic, *words, "--partition", "1", "--compression", "zstd")
    assert (said.code, said.err) == (0, "3 records acknowledged\n")
    assert run("consume", topic).out == "one\nplain\ntwo\n"
    assert run("consume", topic, "--keys").out == "k\tone\n\tplain\nk\ttwo\n"
    assert run("consume", topic, "--partition", "1", "--from", "2").out == "two\n"
    assert run("consume", topic, "--count", "1").err == "1 record\n"
    assert run("consume", topic, "--from", "end").out == ""
    first = json.loads(run("consume", topic, "--json").out.splitlines()[0])
    assert first.pop("timestamp") > 0
    assert first == {
        "partition": 1,
        "offset": 0,
        "key": "k",
        "value": "one",
        "headers": [["from", "test"]],
    }


@pytest.mark.slow
def test_an_offset_that_is_deleted_or_not_written_yet_is_read_from_the_nearest(
    run: Run, node: Node, topic: str, tmp_path: Path
) -> None:
    """librdkafka goes to the end from wherever it can't begin: "0 records", and all was well."""
    file = lines(tmp_path, *"abcdefg")
    assert run("produce", topic, "--file", file, "--partition", "0").code == 0
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result(30)
    said = run("consume", topic, "--from", "2")
    assert (said.code, said.out) == (0, "f\ng\n")
    assert said.err.startswith(f"fencepost: {topic}-0 begins at 5: what was before that is deleted")
    assert f"{topic}-1 ends at 0: --from 2 is beyond that" in said.err
    assert run("consume", topic, "--partition", "0", "--from", "6").err == "1 record\n"
    said = run("consume", topic, "--partition", "0", "--from", "9")
    assert said.out == "" and f"{topic}-0 ends at 7: --from 9 is beyond that" in said.err


@pytest.mark.slow
def test_a_group_goes_on_where_it_was_and_can_be_moved(
    run: Run, topic: str, tmp_path: Path
) -> None:
    group = f"readers-of-{topic}"
    run("produce", topic, "--file", lines(tmp_path, "a", "b", "c"), "--partition", "0")
    assert run("consume", topic, "--group", group).out == "a\nb\nc\n"
    assert run("consume", topic, "--group", group).out == ""
    assert [group, "empty", "classic"] in [
        line.split() for line in run("group", "list").out.splitlines()
    ]
    moved = run("group", "seek", group, "--topic", topic, "--to", "2", "--json").json
    assert moved == [
        {"topic": topic, "partition": 0, "from": 3, "position": 2},
        {
            "topic": topic,
            "partition": 1,
            "from": None,
            "position": 0,
        },  # it is empty: never beyond its end
    ]
    assert run("consume", topic, "--group", group).out == "c\n"
    run("group", "seek", group, "--topic", topic, "--to", "2001-01-01T00:00:00")
    assert f"{group}  empty, 0 members, coordinated by node 1, 3 records behind" in (
        run("group", "describe", group).out
    )
    described = run("group", "describe", group, "--json").json
    assert isinstance(described, dict)
    assert described["positions"][0] == {
        "topic": topic,
        "partition": 0,
        "position": 0,
        "end": 3,
        "lag": 3,
        "member": None,
    }
    assert run("group", "delete", group).out == f"{group} deleted\n"
    refused(run("group", "describe", group), f"there is no group {group}", "`fencepost group list`")


@pytest.mark.slow
def test_topics_are_described_grown_and_deleted(run: Run, topic: str) -> None:
    assert run("topic", "add-partitions", topic, "3").out == f"{topic} has 3 partitions\n"
    described = run("topic", "describe", topic, "--json").json
    assert isinstance(described, list)
    assert described[0]["partitions"][2] == {
        "partition": 2,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "first": 0,
        "end": 0,
    }
    assert f"{topic}  id {described[0]['id']}\n" in run("topic", "describe", topic).out
    assert [topic, "3", "1"] in [line.split() for line in run("topic", "list").out.splitlines()]
    there = run("topic", "create", topic, "--if-not-exists")
    assert (there.code, there.out) == (0, f"{topic} is there already\n")
    assert run("topic", "delete", topic, "--yes").out == f"{topic} deleted\n"
    assert topic not in run("topic", "list").out


def test_a_dry_run_creates_nothing(run: Run) -> None:
    assert run("topic", "create", "never", "--dry-run").out == "never could be created\n"
    assert "never" not in run("topic", "list").out


@pytest.mark.slow
def test_settings_are_set_shown_and_unset(run: Run, topic: str) -> None:
    whose = ("--topic", topic)
    # The node that forms a cluster sets this one for all brokers.
    of_all = {"setting": "min.insync.replicas", "value": "1", "set by": "all brokers"}
    assert run("config", "get", *whose, "--json").json == [of_all]
    assert run("config", "set", *whose, "retention.ms=9000").out == "retention.ms=9000\n"
    of_topic = {"setting": "retention.ms", "value": "9000", "set by": "topic"}
    assert run("config", "get", *whose, "--json").json == [of_all, of_topic]
    run("config", "unset", *whose, "retention.ms")
    assert "604800000  default" in run("config", "get", *whose, "retention.ms").out
    assert "node file" in run("config", "get", "--broker", "1", "node.id").out
    group = ("--group", "some-group")
    run("config", "set", *group, "consumer.session.timeout.ms=50000")
    assert "50000  group" in run("config", "get", *group).out


# What is wrong is said


@pytest.mark.slow
def test_a_group_that_reads_is_not_said_to_be_moved(
    node: Node, run: Run, topic: str, tmp_path: Path
) -> None:
    """The answer has an error for each partition, and none for the whole."""
    group = f"busy-{topic}"
    run("produce", topic, "--file", lines(tmp_path, "a", "b"), "--partition", "0")
    reader = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    with closing(reader):
        reader.subscribe([topic])
        assert reader.consume(2, timeout=30)
        said = run("group", "seek", group, "--topic", topic, "--to", "end")
    refused(said, f"can't move {group}", f"{topic}-0, {topic}-1", "stop its members")
    assert said.out == ""


@pytest.mark.slow
def test_a_group_is_described_though_one_of_its_topics_is_gone(
    run: Run, topic: str, tmp_path: Path
) -> None:
    group, gone = f"readers-of-{topic}", f"{topic}-gone"
    run("topic", "create", gone)
    for name in (topic, gone):
        run("produce", name, "--file", lines(tmp_path, "a"), "--partition", "0")
        run("consume", name, "--group", group)
    run("topic", "delete", gone, "--yes")
    assert f"{group}  empty" in run("group", "describe", group).out


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_said_and_not_made(run: Run, topic: str) -> None:
    near = f"{topic}x"
    refused(run("consume", near), f"there is no topic {near}", f"Did you mean {topic}?")
    refused(run("group", "seek", "g", "--topic", near, "--to", "end"), "there is no topic")
    refused(run("config", "get", "--topic", near), "there is no topic")
    refused(run("topic", "describe", near), near, "`fencepost topic list`")
    assert near not in run("topic", "list").out


def test_one_failure_does_not_hide_the_others(run: Run, topic: str) -> None:
    said = run("topic", "delete", "not-there", topic, "--yes")
    refused(said, "can't delete not-there", "UNKNOWN_TOPIC_OR_PARTITION")
    assert said.out == f"{topic} deleted\n"
    as_json = run("topic", "create", topic, "bad name", "--json")
    assert as_json.code == 1
    assert isinstance(as_json.json, list)
    assert [row["error"] is None for row in as_json.json] == [True, False]


@pytest.mark.slow
def test_a_setting_written_wrongly_is_named_with_the_right_one(run: Run, topic: str) -> None:
    whose = ("--topic", topic)
    for words in (("set", *whose, "retention.mss=1"), ("unset", *whose, "retention.mss")):
        refused(run("config", *words), "retention.mss", "did you mean retention.ms?")
    said = run("topic", "create", "t", "--config", "retention.mss=1")
    refused(said, "did you mean retention.ms?")
    refused(run("config", "set", *whose, "retention.ms=soon"), "soon", "retention.ms", "LONG")
    refused(run("config", "set", *whose, "retention.ms"), "is not NAME=VALUE", code=2)
    said = run("config", "set", *whose, "flush.policy=never")
    refused(said, "never", "flush.policy", "ack, interval, os")
    refused(run("config", "get", "--broker", "7"), "there is no broker '7'; there are: 1")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--count", "0"), ("--count 0", "1 or more")),
        (("--from", "middle"), ("--from middle", "start, end or an offset")),
        (("--partition", "5"), ("no partition 5", "0 to 1")),
        (("--group", "g", "--partition", "1"), ("--partition", "--group")),
        (("--group", "g", "--from", "4"), ("fencepost group seek g", "--to 4")),
    ],
)
def test_what_can_not_be_consumed_is_said(
    run: Run, topic: str, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused(run("consume", topic, *words), *parts, code=1 if words[1] == "5" else 2)


@pytest.mark.slow
def test_what_can_not_be_produced_is_said(run: Run, topic: str, tmp_path: Path) -> None:
    file = lines(tmp_path, "one")
    refused(run("produce", topic, "--file", str(tmp_path / "none")), "No such file", code=2)
    refused(run("produce", topic, "--file", file, "--header", "x"), "not NAME=VALUE", code=2)
    said = run("produce", topic, "--file", file, "--partition", "9")
    refused(said, "UNKNOWN_PARTITION", "0 records acknowledged, 1 failed")
    run("config", "set", "--topic", topic, "max.message.bytes=100")
    said = run("produce", topic, "--file", lines(tmp_path, "x" * 500))
    refused(said, "MESSAGE_TOO_LARGE", "max.message.bytes", "1 failed")
    refused(run("produce", "__consumer_offsets", "--file", file), "of the cluster's own", code=1)


@pytest.mark.slow
def test_a_record_may_be_as_large_as_its_topic_allows(run: Run, topic: str, tmp_path: Path) -> None:
    run("config", "set", "--topic", topic, "max.message.bytes=4000000")
    assert run("produce", topic, "--file", lines(tmp_path, "x" * 3_000_000)).code == 0


@pytest.mark.slow
def test_no_broker_is_said_with_the_address_and_what_to_do(run: Run) -> None:
    where = f"127.0.0.1:{free_port()}"
    said = run("topic", "list", "--bootstrap", where)
    refused(said, where, "Connection refused", "`fencepost dev`", "--bootstrap")
    refused(run("topic", "list", "--bootstrap", "host:port"), "say HOST:PORT", code=2)


def test_wrong_words_are_exit_code_2(run: Run) -> None:
    refused(run(), "COMMAND", code=2)
    refused(run("topik"), "topik", "topic", code=2)
    refused(run("topic"), "ACTION", code=2)
    refused(run("config", "get"), "--topic --broker --all-brokers --group", code=2)
    refused(run("dev", "--port", "99999"), "'99999' is no port: say 0 to 65535", code=2)
    refused(run("topic", "create", "x", "--partitions", "²"), "'²' is no whole number", code=2)
    refused(run("node", "drain", "1", "--throttle", "x"), "'x' is no number", code=2)
    said = run("topic", "create", "--topic", "x")
    refused(said, "usage: fencepost topic create", "unrecognized arguments: --topic", code=2)


# The command itself


def test_help_names_every_command(run: Run) -> None:
    said = run("--help")
    assert said.code == 0
    for name in COMMANDS:
        assert f"    {name}" in said.out
    assert run("--version").out.startswith("fencepost ")


def test_help_imports_neither_the_node_nor_the_client() -> None:
    """Completion and help are asked for while somebody waits: kio alone takes 0.3 s."""
    code = (
        "import sys; from fencepost.node.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'kio', 'confluent_kafka', 'uvloop', 'importlib.metadata'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["campaigns", "planted --list"])
def test_a_reader_of_the_simulators_words_may_go_away(command: str) -> None:
    pipe = f"'{FENCEPOST}' sim {command} | head -1"
    said = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert (said.stdout.count("\n"), said.stderr) == (1, "")


@pytest.mark.slow
def test_minus_one_is_the_clusters_own_number_as_in_kafka(run: Run) -> None:
    words = ("--partitions", "-1", "--replication-factor", "-1")
    assert run("topic", "create", "of-the-cluster", *words).out == "of-the-cluster created\n"


@pytest.mark.slow
def test_bash_completes_commands_options_and_their_values(tmp_path: Path, run: Run) -> None:
    script = tmp_path / "completion"
    script.write_text(run("completion", "bash").out)

    def complete(*words: str) -> list[str]:
        ask = (
            f'. "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fencepost; '
            'echo "${COMPREPLY[*]}"'
        )
        said = subprocess.run(
            ["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=True
        )
        return said.stdout.split()

    assert complete("fencepost", "con") == ["config", "consume"]
    assert complete("fencepost", "topic", "de") == ["delete", "describe"]
    assert complete("fencepost", "topic", "create", "x", "--part") == ["--partitions"]
    assert complete("fencepost", "produce", "x", "--compression", "z") == ["zstd"]
    assert "complete -c fencepost" in run("completion", "fish").out
    assert "bashcompinit" in run("completion", "zsh").out
