"""The settings that make nodes a cluster, and the sentence for each that can't be."""

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.node.config import NodeConfig

THREE = "controller.quorum.voters=1@127.0.0.1:9192,2@127.0.0.1:9193,3@127.0.0.1:9194"
FAR = "controller.quorum.voters=1@a:9192,2@b:9192,3@c:9192"


def load(*flags: str) -> NodeConfig:
    return NodeConfig.load(flags=flags, environment={}, file=None)


def refused(*flags: str) -> str:
    with pytest.raises(ConfigRefused) as caught:
        load(*flags)
    return str(caught.value)


def test_a_node_that_is_told_nothing_votes_alone_and_has_no_peer_door() -> None:
    peers = load().peers
    assert (peers.is_alone, list(peers.voters), peers.listener) == (True, [1], None)
    assert load("node.id=7", "controller.quorum.voters=7@127.0.0.1:9192").peers.is_alone


def test_a_voter_listens_where_the_voters_name_it_unless_it_is_told_otherwise() -> None:
    assert load(THREE, "node.id=2").peers.listener == ("127.0.0.1", 9193)
    bound = load(FAR, "node.id=2", "peer.listener=0.0.0.0:9000", "peer.secret=x").peers
    assert (bound.listener, bound.advertised) == (("0.0.0.0", 9000), ("b", 9192))
    told = load(
        FAR,
        "node.id=2",
        "peer.listener=0.0.0.0:9000",
        "peer.advertised.listener=b.example:1",
        "peer.secret=x",
    ).peers
    assert (told.listener, told.advertised) == (("0.0.0.0", 9000), ("b.example", 1))
    assert told.secret == b"x"


def test_a_node_that_is_no_voter_follows_them_from_a_door_of_its_own() -> None:
    peers = load(THREE, "node.id=4", "peer.listener=127.0.0.1:9195").peers
    assert list(peers.voters) == [1, 2, 3]
    assert peers.advertised == ("127.0.0.1", 9195)
    assert "node 4 is none of the voters" in refused(THREE, "node.id=4")


def test_one_voter_with_a_door_can_be_followed() -> None:
    peers = load("peer.listener=127.0.0.1:9192").peers
    assert (list(peers.voters), peers.is_alone) == ([1], False)


def test_three_voters_have_internal_topics_of_three_replicas_unless_told_otherwise() -> None:
    assert load(THREE).integer("offsets.topic.replication.factor") == 3
    assert load(THREE).integer("transaction.state.log.min.isr") == 2
    assert load().integer("offsets.topic.replication.factor") == 1
    told = load(THREE, "offsets.topic.replication.factor=2")
    assert told.integer("offsets.topic.replication.factor") == 2


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param((FAR,), "set peer.secret", id="no secret over a network"),
        pytest.param(
            (THREE, "peer.listener=10.0.0.1:9192"), "set peer.secret", id="no secret for our own"
        ),
        pytest.param(
            (
                "controller.quorum.voters=1@127.0.0.1:9192,2@127.0.0.1:9193,3@localhost.example:9194",
            ),
            "localhost.example:9194 (controller.quorum.voters, node 3) is reached over a network",
            id="no secret for a name that begins like the loopback",
        ),
        pytest.param(
            ("controller.quorum.voters=1@a:1,1@b:1,2@c:1",),
            "node 1 stands there twice",
            id="id twice",
        ),
        pytest.param(
            ("controller.quorum.voters=1@a:1,2@a:1,3@c:1",),
            "a:1 stands there twice",
            id="place twice",
        ),
        pytest.param(
            ("controller.quorum.voters=1@a:1,2@b:1",), "1, 3 or 5 vote", id="an even number"
        ),
        pytest.param(("controller.quorum.voters=a:1",), "ID@HOST:PORT", id="no id"),
        pytest.param(("controller.quorum.voters=1@a",), "HOST:PORT", id="no port"),
        pytest.param(("controller.quorum.voters=1@a:0",), "nobody can connect", id="port 0"),
        pytest.param(("peer.listener=127.0.0.1",), "HOST:PORT", id="a door without port"),
        pytest.param(("peer.listener=127.0.0.1:0",), "name one", id="a door at any port"),
        pytest.param(("peer.listener=0.0.0.0:1",), "peer.advertised.listener", id="everywhere"),
        pytest.param(("peer.advertised.listener=127.0.0.1:1",), "peer.listener is not", id="told"),
    ],
)
def test_what_can_not_be_is_refused_with_what_is_allowed(
    flags: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(*flags)
