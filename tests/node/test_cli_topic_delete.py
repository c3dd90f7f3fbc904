"""`topic delete` asks: what is in the topics is told first, and what the cluster itself needs is not deleted by the way."""

import json
from concurrent.futures import Future
from types import SimpleNamespace as Answer
from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from fencepost.node.cli import cluster as shared
from fencepost.node.main import main

LED, LOST = Answer(leader=1), Answer(leader=-1)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def done(value: Any = None) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Admin:
    """Two partitions a topic, of 600 records each; group billing reads orders."""

    def __init__(self) -> None:
        self.topics = ["orders", "clicks", OFFSETS, TRANSACTIONS]
        self.partitions = {0: LED, 1: LED}
        self.deleted: list[str] = []
        self.tells_groups = True
        self.led = True

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        return Answer(topics={name: Answer(partitions=self.partitions) for name in self.topics})

    def list_offsets(
        self, wanted: dict[TopicPartition, Any], *, request_timeout: float
    ) -> dict[Any, Any]:
        lost = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        found: dict[Any, Any] = {}
        for number, (place, spec) in enumerate(wanted.items()):
            at = 700 if spec._value == OffsetSpec.latest()._value else 100
            found[place] = done(Answer(offset=at) if self.led or number else lost)
        return found

    def list_consumer_groups(self, *, request_timeout: float) -> "Future[Any]":
        if not self.tells_groups:
            return done(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return done(Answer(valid=[Answer(group_id="billing"), Answer(group_id="idle")], errors=[]))

    def describe_consumer_groups(
        self, names: list[str], *, request_timeout: float
    ) -> dict[str, Any]:
        reads = Answer(topic_partitions=[TopicPartition("orders", 0)])
        members = {"billing": [Answer(assignment=reads)]}
        return {name: done(Answer(members=members.get(name, []))) for name in names}

    def delete_topics(self, names: list[str]) -> dict[str, Any]:
        self.deleted += [name for name in names if name in self.topics]
        error = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {name: done(None if name in self.topics else error) for name in names}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    ToldCluster(monkeypatch)
    admin = Admin()
    monkeypatch.setattr(shared, "AdminClient", lambda _: admin)
    return admin


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person types, at a terminal; nothing is Ctrl-D."""
    lines: list[str] = []

    def asked(prompt: str) -> str:
        print(prompt)
        if not lines:
            raise EOFError
        return lines.pop()

    monkeypatch.setattr("sys.stdin", Answer(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", asked)
    return lines


def test_without_a_terminal_nothing_is_deleted_that_was_not_confirmed(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "delete", "orders"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "fencepost: orders (2 partitions, up to 1,200 records; billing reads it) would be deleted with all that"
        " is in it, for good. To do that, say --yes.\n"
    )
    assert main(["topic", "delete", "orders", "clicks", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"].endswith("To do that, say --yes.")
    assert admin.deleted == []


def test_what_was_confirmed_is_deleted(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "delete", "orders", "clicks", "orders", "--yes"]) == 0
    assert capsys.readouterr().out == "orders deleted\nclicks deleted\n"
    assert admin.deleted == ["orders", "clicks"]


@pytest.mark.parametrize(("answer", "deleted"), [("y", ["orders"]), ("no", []), (None, [])])
def test_a_person_at_a_terminal_is_asked_and_told_what_is_in_it(
    answer: str | None,
    deleted: list[str],
    admin: Admin,
    typed: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed += [] if answer is None else [answer]
    assert main(["topic", "delete", "orders"]) == (0 if deleted else 1)
    said = capsys.readouterr()
    assert "orders (2 partitions, up to 1,200 records; billing reads it)" in said.out
    assert "Go on? [y/N]" in said.out
    assert ("nothing was deleted" in said.err) == (not deleted)
    assert admin.deleted == deleted


def test_what_can_not_be_told_does_not_hinder(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.tells_groups = admin.led = False
    assert main(["topic", "delete", "orders"]) == 1
    why = capsys.readouterr().err
    assert "orders (2 partitions, 1 of which can't be asked, up to 600 records) would be" in why
    admin.partitions = {0: LOST, 1: LOST}
    assert main(["topic", "delete", "orders"]) == 1
    why = capsys.readouterr().err
    assert "orders (2 partitions, 2 of which can't be asked) would be" in why


@pytest.mark.parametrize(
    ("topic", "loss"),
    [(OFFSETS, "the positions of all groups"), (TRANSACTIONS, "every transactional id")],
)
def test_what_the_cluster_itself_needs_is_deleted_only_by_a_word_of_its_own(
    topic: str, loss: str, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "delete", "orders", topic, "--yes"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert loss in said.err and "--internal" in said.err and "Nothing was deleted" in said.err
    assert admin.deleted == []
    assert main(["topic", "delete", topic, "--internal"]) == 1
    said = capsys.readouterr()
    assert loss in said.err and "say --yes" in said.err
    assert admin.deleted == []
    assert main(["topic", "delete", topic, "--internal", "--yes"]) == 0
    assert admin.deleted == [topic]


def test_a_topic_that_is_not_there_is_asked_nothing_about(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "delete", "nope"]) == 1
    assert "can't delete nope: UNKNOWN_TOPIC_OR_PARTITION" in capsys.readouterr().err
