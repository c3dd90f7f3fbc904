"""What the commands that ask by librdkafka show while nobody leads, and of what does not answer."""

import json

import pytest
from cluster_by_librdkafka import ToldAdmin, refusal
from cluster_on_the_wire import NOBODY, ToldCluster
from confluent_kafka import ConsumerGroupState, KafkaError
from confluent_kafka.admin import ConfigSource
from fencepost.node.cli import config, group, topic, topic_delete
from fencepost.node.main import main

SURVIVOR = ("--bootstrap", "127.0.0.1:9002")
SHOWN = [
    (("topic", "list"), "orders"),
    (("topic", "describe", "orders"), "orders  id"),
    (("group", "list"), "readers"),
    (("group", "describe", "readers"), "readers  empty"),
    (("config", "get", "--topic", "orders"), "retention.ms"),
    (("config", "get", "--broker", "2"), "retention.ms"),
    (("config", "get", "--group", "readers"), "retention.ms"),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    return ToldCluster(monkeypatch)


@pytest.fixture
def admin(cluster: ToldCluster, monkeypatch: pytest.MonkeyPatch) -> ToldAdmin:
    assert cluster.leads
    told = ToldAdmin()
    told.settings = {"retention.ms": ("1", ConfigSource.DYNAMIC_TOPIC_CONFIG)}
    for module in (config, group, topic):
        monkeypatch.setattr(module, "connect", lambda _: told)
    return told


# --- nobody leads ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(("words", "shown"), SHOWN, ids=[" ".join(words) for words, _ in SHOWN])
def test_what_was_last_known_is_shown_as_that_and_ends_with_1(
    cluster: ToldCluster, words: tuple[str, ...], shown: str, capsys
) -> None:
    cluster.leads = None
    assert main([*words, *SURVIVOR]) == 1
    said = capsys.readouterr()
    assert said.err == f"fencepost: {NOBODY} What follows is what that node last knew.\n"
    assert shown in said.out


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(("words", "shown"), SHOWN, ids=[" ".join(words) for words, _ in SHOWN])
def test_while_somebody_leads_nothing_is_said(words: tuple[str, ...], shown: str, capsys) -> None:
    assert main([*words, *SURVIVOR]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert shown in said.out


@pytest.mark.parametrize("words", [("set", "retention.ms=2"), ("unset", "retention.ms")])
def test_a_setting_that_nobody_can_change_is_not_asked_for(
    cluster: ToldCluster, admin: ToldAdmin, words: tuple[str, str], capsys
) -> None:
    cluster.leads = None
    assert main(["config", words[0], "--topic", "orders", words[1], *SURVIVOR]) == 1
    assert capsys.readouterr().err == f"fencepost: {NOBODY} Nothing can be changed before.\n"
    assert admin.altered == []


@pytest.mark.usefixtures("admin")
def test_who_can_not_be_asked_who_leads_leaves_that_open(cluster: ToldCluster, capsys) -> None:
    cluster.down = {9002}
    assert main(["topic", "list", *SURVIVOR]) == 1
    said = capsys.readouterr()
    assert "127.0.0.1:9002" in said.err and "whether what follows is so now" in said.err
    assert "orders" in said.out


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "new"),
        ("topic", "create", "new", "--dry-run"),
        ("topic", "add-partitions", "orders", "9"),
        ("topic", "delete", "orders", "--yes"),
        ("topic", "delete", "orders"),
    ],
    ids=" ".join,
)
def test_what_nobody_can_decide_is_not_asked_for(
    cluster: ToldCluster, monkeypatch, words: tuple[str, ...], capsys
) -> None:
    """The admin client would wait for a quarter of a minute, and then not know whether it may happen yet."""
    cluster.leads = None
    for module in (topic, topic_delete):  # one that can ask for nothing
        monkeypatch.setattr(module, "connect", lambda _: object())
    assert main([*words, *SURVIVOR]) == 1
    assert capsys.readouterr() == ("", f"fencepost: {NOBODY} Nothing can be changed before.\n")


@pytest.mark.parametrize("words", [("node", "list"), ("topic", "list")], ids=" ".join)
def test_a_node_that_is_dead_is_not_taken_for_the_cluster(
    cluster: ToldCluster, words: tuple[str, ...], capsys
) -> None:
    cluster.down = {1}
    assert main([*words, "--bootstrap", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("fencepost: no broker answers at 127.0.0.1:1 (")
    assert "If other nodes of the cluster live, name them too: `--bootstrap A:PORT,B:PORT" in said
    assert "$FENCEPOST_BOOTSTRAP" in said and "`fencepost dev`" in said


# --- somebody does not answer ---------------------------------------------------------------------


def test_a_leader_that_does_not_answer_hides_no_other_partition(admin: ToldAdmin, capsys) -> None:
    admin.silent = {0}
    assert main(["topic", "describe", "orders", *SURVIVOR]) == 1
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()[2:]]
    assert rows == [["0", "1", "1", "1", "-", "-"], ["1", "1", "1", "1", "3", "10"]]
    assert said.err == (
        "fencepost: orders-0: its leader does not tell where it begins and ends. `fencepost node list` shows who is"
        " down.\n"
    )


def test_of_a_read_that_was_not_answered_nothing_is_said_to_happen_yet(
    admin: ToldAdmin, capsys
) -> None:
    admin.positions = refusal(KafkaError._TIMED_OUT)
    assert main(["group", "describe", "readers", *SURVIVOR]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("readers  empty, 0 members, coordinated by node 1\n")
    assert said.err == (
        "fencepost: can't read the positions of readers: no answer in time. Whoever is to tell is down, or waits for"
        " others that are: `fencepost node list` shows the nodes.\n"
    )
    assert main(["group", "describe", "readers", "--json", *SURVIVOR]) == 1
    assert json.loads(capsys.readouterr().out)["positions"] is None


# --- how far a group is behind --------------------------------------------------------------------


def test_a_lag_that_nobody_knows_is_not_none(admin: ToldAdmin, capsys) -> None:
    admin.silent = {1}
    assert main(["group", "describe", "readers", *SURVIVOR]) == 1
    said = capsys.readouterr().out
    assert "at least 2 records behind; of orders-1 nobody can say" in said
    admin.silent = {0, 1}
    assert main(["group", "describe", "readers", *SURVIVOR]) == 1
    assert "of orders-0, orders-1 nobody can say how far behind" in capsys.readouterr().out


def test_a_topic_that_is_gone_holds_nobody_up(admin: ToldAdmin, capsys) -> None:
    admin.positions = {("orders", 0): 8, ("gone", 0): 4}
    assert main(["group", "describe", "readers", *SURVIVOR]) == 0
    assert "2 records behind; gone-0 is gone\n" in capsys.readouterr().out


def test_a_group_without_a_position_is_not_said_to_be_behind_by_nothing(
    admin: ToldAdmin, capsys
) -> None:
    admin.positions = {("orders", 0): 8, ("orders", 1): -1}
    assert main(["group", "describe", "readers", *SURVIVOR]) == 0
    assert "2 records behind; of orders-1 it has no position yet\n" in capsys.readouterr().out


# --- moving a group -------------------------------------------------------------------------------


def test_a_group_that_is_not_there_is_made_only_when_told_to(admin: ToldAdmin, capsys) -> None:
    words = ["group", "seek", "raeders", "--topic", "orders", "--to", "start", *SURVIVOR]
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "fencepost: there is no group raeders. Did you mean readers? `fencepost group list` shows those there are;"
        " --create makes a new one.\n"
    )
    assert admin.moved == []
    assert main([*words, "--create"]) == 0
    assert [each.offset for each in admin.moved] == [3, 3]


def test_a_move_tells_from_where(admin: ToldAdmin, capsys) -> None:
    admin.positions = {("orders", 0): 8}
    words = ["group", "seek", "readers", "--topic", "orders", "--to", "5", *SURVIVOR]
    assert main(words) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said == [
        ["TOPIC", "PARTITION", "FROM", "TO"],
        ["orders", "0", "8", "5"],
        ["orders", "1", "-", "5"],
    ]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "topic": "orders",
        "partition": 0,
        "from": 8,
        "position": 5,
    }


def test_a_group_is_not_moved_where_nobody_knows_the_end(admin: ToldAdmin, capsys) -> None:
    """librdkafka gives -1001 for the end that nobody told: it would become the position."""
    words = ["group", "seek", "readers", "--topic", "orders", "--to", "start", *SURVIVOR]
    admin.silent = {1}
    assert main(words) == 1
    assert "orders-1: its leader does not answer" in capsys.readouterr().err
    admin.leaderless = {0}
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "fencepost: orders-0 has no leader, so where it begins and ends can't be told, and nothing was moved."
        " `fencepost partition list --offline orders` says why, and what to do.\n"
    )
    assert admin.moved == []
    assert main([*words, "--partition", "0"]) == 1


def test_a_group_that_is_gone_but_has_positions_can_be_moved(admin: ToldAdmin) -> None:
    admin.state = ConsumerGroupState.DEAD
    words = ["group", "seek", "readers", "--topic", "orders", "--to", "start", *SURVIVOR]
    assert main(words) == 0


# --- what is deleted ------------------------------------------------------------------------------


def test_a_topic_whose_leaders_did_not_answer_is_not_told_as_empty(admin: ToldAdmin) -> None:
    """librdkafka gives -1001 for both ends, the difference of which would be no records."""
    admin.silent = {0, 1}
    there = {"orders": admin.list_topics().topics["orders"].partitions}
    told = "orders (2 partitions, 2 of which can't be asked)"
    assert topic_delete._told(admin, there) == [told]
