"""What the commands say when a node has just died, or is gone for good; and half messages inside of a container."""

import argparse
import json
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from confluent_kafka import KafkaError
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import admin_door, config, group, health
from fencepost.node.main import main

ANY = ("--bootstrap", "127.0.0.1:9001")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    return ToldCluster(monkeypatch)


# --- nodes ----------------------------------------------------------------------------------------


def test_a_dead_voter_is_not_forgotten_before_it_votes_no_more(
    cluster: ToldCluster, capsys
) -> None:
    """Off the list and still counted: the next loss would take the majority along."""
    cluster.down, cluster.replicas = {9002}, [1, 3]
    assert main(["node", "forget", "2", *ANY]) == 1
    said = capsys.readouterr().err
    assert said == "fencepost: node 2 still votes: `fencepost node voters remove 2` first\n"
    assert ApiKey.unregister_broker not in cluster.keys
    cluster.voters = [1, 3]
    assert main(["node", "forget", "2", *ANY]) == 0


def test_a_voter_that_is_down_is_seen_to_be(cluster: ToldCluster, capsys) -> None:
    cluster.down = {9002}
    cluster.voters = [1, 2, 3, 4]  # which nobody has on the list
    assert main(["node", "voters", "--json", *ANY]) == 0
    states = {row["node"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states == {1: "up", 2: "down", 3: "up", 4: "unknown"}


# --- groups and settings --------------------------------------------------------------------------


class Groups:
    def __init__(self, *errors: KafkaError, valid: bool = True) -> None:
        self.errors = list(errors)
        self.valid = valid
        self.timeout: float | None = None

    def list_consumer_groups(self, *, request_timeout: float) -> "Future[Any]":
        self.timeout = request_timeout
        word = SimpleNamespace(name="EMPTY")
        valid = [SimpleNamespace(group_id="billing", state=word, type=word)]
        told: Future[Any] = Future()
        told.set_result(SimpleNamespace(valid=valid if self.valid else [], errors=self.errors))
        return told


def test_no_groups_from_those_that_answer_are_not_no_groups(
    cluster: ToldCluster, monkeypatch, capsys
) -> None:
    """Node 1 leads, the other two coordinated what there is; each has its error, and nobody says whose it is."""
    cluster.down, cluster.leads = {9002, 9003}, None
    late = KafkaError(KafkaError._TIMED_OUT)
    monkeypatch.setattr(group, "connect", lambda _: Groups(late, late, valid=False))
    assert main(["group", "list", *ANY]) == 1
    said = capsys.readouterr()
    assert said.out == "Those that could be asked know of none.\n"
    told = said.err.splitlines()[1:]
    assert len(told) == 1
    assert "node 2 (127.0.0.1:9002) and node 3 (127.0.0.1:9003) do not tell: TIMED_OUT" in told[0]


@pytest.mark.usefixtures("cluster")
def test_groups_that_a_node_did_not_tell_are_said_to_be_missing(monkeypatch, capsys) -> None:
    groups = Groups(KafkaError(KafkaError._TIMED_OUT))
    monkeypatch.setattr(group, "connect", lambda _: groups)
    assert main(["group", "list"]) == 1
    said = capsys.readouterr()
    assert "billing" in said.out
    assert said.err.startswith(
        "fencepost: some groups may be missing here: one of node 1, node 2, node 3 does not tell"
    )
    assert groups.timeout is not None and groups.timeout <= 5
    monkeypatch.setattr(group, "connect", lambda _: Groups())
    assert main(["group", "list"]) == 0
    assert capsys.readouterr().err == ""


def test_settings_are_not_asked_of_a_broker_that_is_down(
    cluster: ToldCluster, monkeypatch, capsys
) -> None:
    """Metadata names it for a while yet, and librdkafka would wait for it."""
    monkeypatch.setattr(config, "connect", lambda _: SimpleNamespace())
    cluster.down = {9002}
    assert main(["config", "get", "--broker", "2", *ANY]) == 1
    assert capsys.readouterr().err.startswith("fencepost: broker 2 is down")
    assert main(["config", "get", "--broker", "9", *ANY]) == 1
    assert capsys.readouterr().err == "fencepost: there is no broker '9'; there are: 1, 2, 3\n"


# --- the admin door -------------------------------------------------------------------------------


def door(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    for name in ("FENCEPOST_ADMIN_URL", "FENCEPOST_ADMIN_LISTENER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    admin_door.add_admin_argument(parser)
    arguments = parser.parse_args([], argparse.Namespace(bootstrap="kafka-1:9092"))
    return admin_door.admin_url(arguments)


def test_inside_of_a_container_half_messages_are_asked_for_at_its_own_door(monkeypatch) -> None:
    assert door(monkeypatch) == "http://kafka-1:10092"
    own = {"FENCEPOST_ADMIN_LISTENER": "0.0.0.0:9644"}
    assert door(monkeypatch, **own) == "http://127.0.0.1:9644"
    assert door(monkeypatch, **own, FENCEPOST_ADMIN_URL="a:1") == "http://a:1"
    assert door(monkeypatch, FENCEPOST_ADMIN_LISTENER="[fd00::1]:9644") == "http://[fd00::1]:9644"


@pytest.mark.parametrize(
    ("status", "error", "step"),
    [
        (404, "TRANSACTIONAL_ID_NOT_FOUND", "`fencepost txn parked --all` shows those there are."),
        (401, "SASL_AUTHENTICATION_FAILED", "$FENCEPOST_ADMIN_TOKEN"),
        (500, "UNKNOWN", "List what there is: GET /v1/checks."),
    ],
)
def test_a_person_at_a_shell_is_told_a_command(status, error, step, capsys) -> None:
    said = {"error": error, "message": "no", "next_step": "List what there is: GET /v1/checks."}

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        place = f"127.0.0.1:{server.server_address[1]}"
        assert main(["txn", "release", "nope", "--admin", place]) == 1
        thread.join()
    assert step in capsys.readouterr().err


def test_where_fencepost_dev_has_its_door_is_said(capsys) -> None:
    assert main(["health", "--admin", "127.0.0.1:1"]) == 1
    assert "--admin 127.0.0.1:10092" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listener", "place"),
    [("0.0.0.0:1", "127.0.0.1:1"), ("[::1]:2", "[::1]:2"), ("", "127.0.0.1:9644")],
)
def test_the_door_of_this_machine(listener: str, place: str) -> None:
    assert health.own_door(listener) == place
