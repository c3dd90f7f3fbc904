"""What the commands say while nobody leads the metadata quorum: then nodes tell what they last knew."""

import json
from uuid import UUID

import pytest
from cluster_on_the_wire import NOBODY, ToldCluster
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.main import main
from fencepost.node.majority import why_nobody_leads

SURVIVOR = ("--bootstrap", "127.0.0.1:9002")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    return ToldCluster(monkeypatch)


@pytest.fixture
def survivor(cluster: ToldCluster) -> ToldCluster:
    """Node 2, the others of which were killed at once: nobody is there to take them off the list."""
    cluster.leads = None
    cluster.down = {9001, 9003}
    return cluster


@pytest.mark.usefixtures("survivor")
@pytest.mark.parametrize(
    ("words", "shown", "never"),
    [
        (("node", "list"), "was up", " up "),
        (("partition", "list", "--offline"), "when somebody led", "Every partition has a leader"),
        (("partition", "list"), "orders", "Every"),
    ],
)
def test_what_a_node_last_knew_is_not_told_as_what_is(capsys, words, shown, never) -> None:
    assert main([*words, *SURVIVOR]) == 1
    said = capsys.readouterr()
    assert said.err == f"fencepost: {NOBODY} What follows is what that node last knew.\n"
    assert shown in said.out
    assert never not in said.out.replace("was up", "")


@pytest.mark.usefixtures("survivor")
def test_programs_get_the_rows_and_the_exit_code(capsys) -> None:
    assert main(["node", "list", "--json", *SURVIVOR]) == 1
    assert {row["state"] for row in json.loads(capsys.readouterr().out)} == {"was up"}


@pytest.mark.parametrize(
    "words",
    [
        ("partition", "recover", "orders", "0", "--accept-data-loss"),
        ("node", "drain", "1", "--yes"),
        ("node", "forget", "1"),
        ("node", "cancel-moves"),
        ("node", "voters", "remove", "1"),
        ("node", "voters", "add", "1"),
    ],
)
def test_an_order_that_nobody_can_carry_out_is_not_given(
    survivor: ToldCluster, capsys, words: tuple[str, ...]
) -> None:
    assert main([*words, *SURVIVOR]) == 1
    assert capsys.readouterr().err == f"fencepost: {NOBODY} Nothing can be changed before.\n"
    assert set(survivor.keys) == {ApiKey.describe_quorum}


@pytest.mark.usefixtures("survivor")
def test_who_votes_is_said_by_the_node_itself_when_nobody_leads(capsys) -> None:
    assert main(["node", "voters", *SURVIVOR]) == 1
    assert capsys.readouterr().err == f"fencepost: {NOBODY}\n"


def test_a_node_that_is_cut_off_alone_is_not_believed(
    cluster: ToldCluster, monkeypatch, capsys
) -> None:
    """The next of --bootstrap sees a leader, and tells what is so now."""
    monkeypatch.setattr("fencepost.node.cli.leading.ELECTED_S", 3.0)
    cluster.blind = {9002}
    assert main(["node", "list", "--bootstrap", "127.0.0.1:9002,127.0.0.1:9003"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "was" not in said.out


def test_while_somebody_leads_nothing_is_said(cluster: ToldCluster, capsys) -> None:
    assert main(["partition", "list", "--offline", *SURVIVOR]) == 0
    assert capsys.readouterr() == ("Every partition has a leader.\n", "")
    assert cluster.keys.count(ApiKey.describe_quorum) == 1


@pytest.mark.parametrize(
    ("more", "is_shown"),
    [
        ((), False),
        (("--internal",), True),
        (("__consumer_offsets", "orders"), True),
        (("--offline",), True),
        (("--lagging",), True),
    ],
)
def test_partitions_of_internal_topics_are_shown_to_whoever_asks_or_looks_for_trouble(
    cluster: ToldCluster, capsys, more: tuple[str, ...], is_shown: bool
) -> None:
    """As topics in `topic list`; a hundred rows hid the three of the only other one."""
    offsets = cluster._orders()
    offsets.name, offsets.topic_id = "__consumer_offsets", UUID(int=2)
    offsets.partitions[0].leader_id, offsets.partitions[0].isr_nodes = NO_LEADER, [2]
    cluster.internal = [offsets]
    assert main(["partition", "list", "--json", *more, *SURVIVOR]) == 0
    shown = {row["topic"] for row in json.loads(capsys.readouterr().out)}
    assert ("__consumer_offsets" in shown) == is_shown
    assert ("orders" in shown) == (more not in (("--offline",), ("--lagging",)))


@pytest.mark.parametrize(
    ("node", "voters", "connected", "sentence"),
    [
        (
            2,
            (1, 2, 3),
            (),
            (
                "node 2 of voters 1, 2, 3 reaches 0 of the others (1 and 3 can't be reached); a majority is 2:"
                " start one of them"
            ),
        ),
        (
            1,
            (1, 2, 3, 4, 5),
            (5,),
            (
                "node 1 of voters 1, 2, 3, 4, 5 reaches 1 of the others (2, 3 and 4 can't be reached); a majority"
                " is 3: start one of them"
            ),
        ),
        (
            4,
            (1, 2, 3),
            (5,),
            (
                "node 4 reaches 0 of the voters 1, 2, 3 (1, 2 and 3 can't be reached); a majority is 2: start two"
                " of them"
            ),
        ),
        (
            1,
            (1, 2, 3),
            (2,),
            (
                "node 1 of voters 1, 2, 3 reaches 1 of the others (3 can't be reached); a majority is 2: one is"
                " elected in a moment"
            ),
        ),
    ],
)
def test_a_lost_majority_names_whom_to_start(node, voters, connected, sentence) -> None:
    assert why_nobody_leads(node, voters, connected) == sentence


def test_where_a_voter_is_new_a_majority_is_not_said_to_be_enough() -> None:
    assert why_nobody_leads(1, (1, 2, 3), (2,), waits_for=(3,)) == (
        "node 1 of voters 1, 2, 3 reaches 1 of the others (3 can't be reached); a first election, or one after a disk"
        " was replaced, needs every voter: start 3"
    )


OTHER_SECRET = "the other end refuses: node 1 is not let in: its proof does not fit: peer.secret is not the same"
SAME_SECRET = "give all nodes the same peer.secret, and restart those that had another"


@pytest.mark.parametrize(
    ("node", "connected", "more", "end"),
    [
        (
            1,
            (2,),
            {"refusals": {3: OTHER_SECRET}, "waits_for": (3,)},
            (
                "1 of the others (3 runs, and its peer.secret is not this node's); a first election, or one after a disk"
                f" was replaced, needs every voter: {SAME_SECRET}"
            ),
        ),
        (
            3,
            (),
            {"refusals": {1: OTHER_SECRET, 2: OTHER_SECRET}},
            (
                "0 of the others (1 and 2 run, and their peer.secret is not this node's); a majority is 2:"
                f" {SAME_SECRET}"
            ),
        ),
        (
            3,
            (),
            {"refusals": {1: OTHER_SECRET}, "has_secret": False},
            (
                "0 of the others (2 can't be reached; 1 runs, and has a peer.secret, which is not set here); a majority"
                f" is 2: start 2, or {SAME_SECRET}"
            ),
        ),
        (
            1,
            (),
            {"refusals": {2: "it belongs to the cluster b"}, "waits_for": (2, 3)},
            (
                "0 of the others (3 can't be reached; 2: it belongs to the cluster b); a first election, or one after a disk"
                " was replaced, needs every voter: start 3, and mend why this node and those that answer are apart"
            ),
        ),
        (
            1,
            (2,),
            {"refusals": {2: "of before", 3: OTHER_SECRET}},
            (
                "1 of the others (3 runs, and its peer.secret is not this node's); a majority is 2: one is elected in a"
                " moment"
            ),
        ),
    ],
)
def test_a_voter_that_runs_and_refuses_is_not_one_to_start(node, connected, more, end) -> None:
    said = why_nobody_leads(node, (1, 2, 3), connected, **more)
    assert said == f"node {node} of voters 1, 2, 3 reaches {end}"
