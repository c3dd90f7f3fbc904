"""Brokers and admin doors where nobody answers: who was asked is named, and by which option."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from fencepost.clients.spark import cluster, sink_writer
from fencepost.clients.spark.cluster import Cluster, NotReached, WrongTopic
from fencepost.clients.spark.option_table import BATCH
from fencepost.clients.spark.options import read_options
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter
from fencepost.clients.transactional import asking_others
from fencepost.clients.transactional.admin_api import AdminApi, AdminUnreachable
from spark_topics import served


@contextmanager
def held(address: str) -> Iterator[str]:
    """An address that is ours, and refuses. Where a node was, another test's may be soon."""
    host, port = address.split(":")
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the node's connections linger
        ours.bind((host, int(port)))
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # or the next may share it
        yield f"{host}:{ours.getsockname()[1]}"


@pytest.fixture
def nobody() -> Iterator[str]:
    with held("127.0.0.1:0") as address:
        yield address


def test_a_plan_that_reaches_no_broker_names_them(nobody, monkeypatch) -> None:
    monkeypatch.setattr(cluster, "TRIES_S", 0.5)
    monkeypatch.setattr(cluster, "ASK_S", 0.5)
    options = read_options({"bootstrap.servers": nobody, "subscribe": "t"}, BATCH)
    said = rf"no broker answered in time; {nobody} \(kafka.bootstrap.servers\)"
    with pytest.raises(NotReached, match=said):
        Cluster(options).places()


def test_a_task_that_reaches_no_broker_names_them(nobody, monkeypatch) -> None:
    monkeypatch.setattr(sink_writer, "START_S", 0.5)
    monkeypatch.setattr(sink_writer, "CALL_S", 0.5)
    writer = MemberWriter(nobody, "q.p0.a0", {})
    with pytest.raises(CouldNotWrite, match=rf"q.p0.a0 could not begin: .*{nobody} \(kafka\.boot"):
        writer.begin()
    writer.close()


def test_a_driver_that_reaches_no_admin_door_names_them(nobody) -> None:
    said = rf"the admin doors http://{nobody}; .*admin\.listener; Spark's option adminUrl"
    with pytest.raises(AdminUnreachable, match=said):
        AdminApi(f"http://{nobody}", timeout_s=0.2).call("GET", "/x")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_topic_that_goes_between_two_questions_is_named(node, topic, monkeypatch) -> None:
    monkeypatch.setattr(asking_others, "GONE_S", 0.2)
    asked = Cluster(read_options({**node.reading, "subscribe": topic}, BATCH))
    places = asked.places()
    node.delete(topic)
    with pytest.raises(WrongTopic, match=f"{topic}-[01] is not there any more: was it deleted"):
        asked.ends(places)


@pytest.mark.parametrize("comes_back", [True, False])
def test_an_end_that_librdkafka_made_up_is_not_taken_for_one(monkeypatch, comes_back: bool) -> None:
    """It says -1001, and no error, of a partition whose leader went away before it answered. A batch ended there."""
    monkeypatch.setattr(cluster, "TRIES_S", 5.0 if comes_back else 0.0)
    asked = Cluster(read_options({"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, BATCH))
    said = {("t", 0): iter((-1001, -1001, 7)), ("t", 1): iter((8,))}

    def list_offsets(places, **_: object):
        answers = {}
        for place in places:
            answers[place] = Future()
            offset = next(said[place.topic, place.partition])
            answers[place].set_result(SimpleNamespace(offset=offset))
        return answers

    monkeypatch.setattr(asked, "_admin", SimpleNamespace(list_offsets=list_offsets))
    if comes_back:
        assert asked.ends([("t", 0), ("t", 1)]) == {("t", 0): 7, ("t", 1): 8}
    else:
        with pytest.raises(NotReached, match="t-0: its leader does not say where"):
            asked.ends([("t", 0), ("t", 1)])


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_leader_that_goes_between_two_questions_is_waited_for_and_named(monkeypatch) -> None:
    """The partition's, and whom it is known from. A node that starts takes longer than one question."""
    monkeypatch.setattr(cluster, "TRIES_S", 3.0)
    monkeypatch.setattr(cluster, "ASK_S", 0.5)
    with served() as alone:
        alone.create("t")
        asked = Cluster(read_options({**alone.reading, "subscribe": "t"}, BATCH))
        places = asked.places()
    said = rf"t-0: its leader does not say where .* {alone.bootstrap}, kafka\.bootstrap\.servers"
    begun = time.monotonic()
    with held(alone.bootstrap), pytest.raises(NotReached, match=said):
        asked.ends(places)
    assert time.monotonic() - begun > cluster.TRIES_S
