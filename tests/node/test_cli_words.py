"""Words of the command line that can't be: refused by a sentence before anything is asked, let alone done."""

import json
import subprocess
import sys

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import COMMANDS
from fencepost.node.cli import cluster as shared
from fencepost.node.cli.checked import Failed, address
from fencepost.node.cli.wire import Wire
from fencepost.node.main import main

PORTS = "a port is a number from 1 to 65535"
HOST_PORT = "say HOST:PORT"
PARTITION = "say a whole number from 0 to 2147483647"
NODE = "say a whole number from 0 to 2147483647"
OFFSET = "say a whole number from 0 to 9223372036854775807"
EMPTY = "can't be empty"
CASES = [
    ("node list --bootstrap 127.0.0.1:99999", PORTS),
    ("topic list --bootstrap 127.0.0.1:99999", PORTS),
    ("topic list --bootstrap 127.0.0.1:0", PORTS),
    ("node list --bootstrap x..y:9092", "x..y is no name of a host"),
    ("topic list --bootstrap x..y:9092", "x..y is no name of a host"),
    ("topic list --bootstrap ::1", "[::1]:9092"),
    ("node list --bootstrap ,", HOST_PORT),
    (
        "topic create w --partitions 1000000",
        "--partitions 1000000: say a whole number from 1 to 100000",
    ),
    ("topic create w --partitions 0", "--partitions 0: say a whole number from 1"),
    ("topic create w --partitions 0", "from 1 to 100000, or -1 for the cluster's own"),
    ("topic create w --partitions -2", "or -1 for the cluster's own"),
    ("topic create w --replication-factor 99999", "say a whole number from 1 to 10000"),
    ("topic create w --replication-factor -5", "--replication-factor -5"),
    ("topic add-partitions orders 100001", "100001 is no number of partitions"),
    ("topic add-partitions orders 99999999999", "1 to 100000"),
    ("topic describe ''", EMPTY),
    ("topic create ''", EMPTY),
    ("topic delete ''", EMPTY),
    ("partition list ''", EMPTY),
    ("group seek '' --topic t --to end", EMPTY),
    ("group seek g --topic t --to 99999999999999999999", OFFSET),
    ("group seek g --topic t --to end --partition -1", PARTITION),
    ("group describe ''", EMPTY),
    ("group delete ''", EMPTY),
    ("config get --group ''", EMPTY),
    ("config set --topic '' a=b", EMPTY),
    ("consume ''", EMPTY),
    ("consume t --from 99999999999999999999", OFFSET),
    ("consume t --from ²", "say start, end or an offset"),
    ("consume t --partition -1", PARTITION),
    ("consume t --group ''", EMPTY),
    ("produce t --partition -7", f"--partition -7: {PARTITION}"),
    ("produce ''", EMPTY),
    ("produce t --header x", "'x' is not NAME=VALUE"),
    ("produce t --file /nowhere/lines", "can't read /nowhere/lines: No such file"),
    ("group seek g --topic t --to noon", "--to noon: say start, end, an offset, or a time"),
    ("txn abort", "name the transaction"),
    ("txn describe ''", EMPTY),
    ("node voters remove 99999999999", NODE),
    ("node rebalance --parallel 0 --dry-run", "--parallel 0: say a whole number from 1 to"),
    ("node drain 1 --throttle 0 --dry-run", "--throttle 0: say more than 0"),
    ("node add 1 --throttle nan --dry-run", "--throttle nan"),
    ("txn parked --admin 127.0.0.1:abc", HOST_PORT),
    ("txn parked --admin http://x..y:1", "x..y is no name of a host"),
    ("txn parked --admin ftp://a:1", HOST_PORT),
    ("health --admin 'a b:1'", HOST_PORT),
    ("health --admin x..y:1", "x..y is no name of a host"),
    ("health --admin 127.0.0.1:99999", PORTS),
]


def run(line: str) -> int:
    return main([word.strip("'") for word in line.replace("a b", "a\u00a0b").split(" ")])


@pytest.mark.parametrize(("line", "sentence"), CASES, ids=[line for line, _ in CASES])
def test_a_word_that_can_not_be_is_refused_with_what_is_allowed(
    line: str, sentence: str, monkeypatch, capsys
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("the cluster was asked")

    monkeypatch.setattr(Wire, "_ask_at", asked)
    monkeypatch.setattr(shared, "AdminClient", asked)
    assert run(line) == 2  # as argparse ends
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert sentence in said.err, said.err


def test_a_node_that_is_not_there_can_not_vote(monkeypatch, capsys) -> None:
    cluster = ToldCluster(monkeypatch)
    assert main(["node", "voters", "add", "9"]) == 1
    assert capsys.readouterr().err == (
        "fencepost: there is no node 9; there are 1, 2, 3. One that is new is known as soon as it has started\n"
    )
    assert main(["node", "voters", "add", "99999999999"]) == 2
    assert NODE in capsys.readouterr().err
    assert ApiKey.add_raft_voter not in cluster.keys


@pytest.mark.parametrize("change", ["add", "remove"])
def test_what_is_said_before_the_change_of_voters_stands(change: str, monkeypatch, capsys) -> None:
    """`remove` went to the default cluster, whichever was named before it."""
    cluster = ToldCluster(monkeypatch)
    before = ["node", "voters", "--bootstrap", "far:1", "--json"]
    assert main([*before, change, "3"]) == 0
    assert json.loads(capsys.readouterr().out) == {"node": 3, "error": None}
    assert main([*before, change, "--bootstrap", "near:2", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == {"node": 3, "error": None}
    assert main(["node", "voters", change, "3"]) == 0
    assert capsys.readouterr().out.startswith("node 3 votes ")
    bootstraps = [("far", 1), ("near", 2), ("127.0.0.1", 9092)]
    assert [each for each in dict.fromkeys(cluster.dialled) if each in bootstraps] == bootstraps


@pytest.mark.parametrize(
    "words",
    [
        "partition recover orders 0 --a",
        "partition recover orders 0 --accept-data",
        "topic delete orders --ye",
        "txn abort pay --y",
        "node voters remove 3 --y",
    ],
)
def test_no_option_that_agrees_is_said_by_half(words: str, monkeypatch, capsys) -> None:
    cluster = ToldCluster(monkeypatch)
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[::1]:9093", ("::1", 9093)),
        ("[fe80::1%eth0]", ("fe80::1%eth0", 9092)),
        (" kafka.example.com:1 ", ("kafka.example.com", 1)),
        ("kafka_1", ("kafka_1", 9092)),
        ("10.0.0.1.", ("10.0.0.1.", 9092)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    """Brackets are of the text, not of the address."""
    assert address(text, "--bootstrap", 9092) == place


def test_an_address_without_a_port_is_one_only_where_there_is_a_usual_port() -> None:
    with pytest.raises(Failed, match="say HOST:PORT, for example"):
        address("localhost", "--admin", None)


# --- what no check knows --------------------------------------------------------------------------


def packed(_: object) -> int:
    raise OverflowError("int too big to convert")


def test_a_value_that_nobody_can_pack_is_said_in_a_sentence_that_names_the_place(capsys) -> None:
    assert shared.run_safely(packed, shared.argparse.Namespace()) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "fencepost: a value of this command line can't be sent: int too big to convert"
    )
    assert "packed in test_cli_words.py" in said and "PYTHONDEVMODE=1" in said


def test_whoever_looks_for_a_bug_gets_all_of_it(monkeypatch) -> None:
    monkeypatch.setattr(sys, "flags", shared.argparse.Namespace(dev_mode=True))
    with pytest.raises(OverflowError):
        shared.run_safely(packed, shared.argparse.Namespace())


def test_a_broken_promise_of_ours_is_no_sentence() -> None:
    def broken(_: object) -> int:
        raise AssertionError("two leaders")

    with pytest.raises(AssertionError):
        shared.run_safely(broken, shared.argparse.Namespace())


# --- for programs ---------------------------------------------------------------------------------


def test_a_failure_is_json_for_whoever_asked_for_json(capsys) -> None:
    assert main(["topic", "list", "--json", "--bootstrap", "127.0.0.1:0"]) == 2
    said = capsys.readouterr()
    why = f"--bootstrap '127.0.0.1:0': {PORTS}"
    assert json.loads(said.out) == {"error": why}
    assert said.err == f"fencepost: {why}\n"


def test_a_program_gets_one_document_and_no_second_one(capsys) -> None:
    def half(_: object) -> int:
        shared.show_json([1])
        raise Failed("the rest could not be read")

    assert shared.run_safely(half, shared.argparse.Namespace(json=True)) == 1
    assert json.loads(capsys.readouterr().out) == [1]


NEED_THE_CLIENT = ("topic", "produce", "consume", "group", "txn", "node", "partition", "config")
WITHOUT = "import sys; sys.modules['confluent_kafka'] = None\nfrom fencepost.node.main import main"


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_kafka_client_a_command_says_what_it_needs_or_does_without(
    command: str,
) -> None:
    """Which of a command's modules is imported first is nobody's to know: of eight commands three said it."""
    script = f"{WITHOUT}\nsys.exit(main(['{command}', '--help']))"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    if command in NEED_THE_CLIENT:
        assert (said.returncode, said.stderr.count("\n")) == (1, 1), said.stderr
        assert said.stderr.startswith("fencepost: this command needs the Kafka client: `make")
    else:
        assert (said.returncode, said.stderr) == (0, "")
