"""`fencepost produce` to a topic that is not there: the cluster makes it, as Kafka's does, and that is said."""

from argparse import Namespace
from typing import Any

import pytest
from cluster_by_librdkafka import ToldAdmin, refusal
from confluent_kafka import KafkaError
from fencepost.node.cli import produce
from fencepost.node.main import main

SAID = (
    "fencepost: there was no topic ordres: it was created. Did you mean orders? `fencepost topic delete ordres` takes it"
    " away again.\n"
)


class Producer:
    """Whose records become a topic of their own, if `makes`."""

    admin: ToldAdmin
    makes = True
    error: Any = None

    written: list[dict[str, Any]]

    def __init__(self, _: object) -> None:
        self._waiting: list[Any] = []

    def produce(self, topic: str, on_delivery: Any, **record: Any) -> None:
        self._waiting.append(on_delivery)
        self.written.append(record)
        if self.makes:
            self.admin.topics.setdefault(topic, (0,))

    def poll(self, _: float) -> None:
        return

    def flush(self, _: float) -> int:
        for each in self._waiting:
            each(self.error, None)
        self._waiting.clear()
        return 0


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ToldAdmin:
    told = ToldAdmin()
    Producer.admin = told
    Producer.written = []
    monkeypatch.setattr(produce, "connect", lambda _: told)
    monkeypatch.setattr(produce, "confluent_kafka", Namespace(Producer=Producer))
    return told


def run(tmp_path: Any, topic: str, *more: str, lines: str = "a\nb\n") -> int:
    (tmp_path / "lines").write_text(lines)
    return main(["produce", topic, "--file", str(tmp_path / "lines"), *more])


@pytest.mark.usefixtures("admin")
def test_a_topic_that_was_made_is_told_once_with_the_one_that_may_have_been_meant(
    tmp_path, capsys
) -> None:
    assert run(tmp_path, "ordres") == 0
    assert capsys.readouterr().err == f"{SAID}2 records acknowledged\n"


@pytest.mark.usefixtures("admin")
def test_of_a_topic_that_was_there_nothing_is_said(tmp_path, capsys) -> None:
    assert run(tmp_path, "orders") == 0
    assert capsys.readouterr().err == "2 records acknowledged\n"


@pytest.mark.usefixtures("admin")
def test_a_topic_that_was_made_for_records_that_failed_is_told_too(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(Producer, "error", KafkaError(KafkaError._MSG_TIMED_OUT))
    assert run(tmp_path, "ordres") == 1
    assert SAID in capsys.readouterr().err


@pytest.mark.usefixtures("admin")
def test_a_topic_that_the_cluster_does_not_make_is_not_said_to_be_made(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(Producer, "makes", False)
    monkeypatch.setattr(Producer, "error", KafkaError(KafkaError._UNKNOWN_TOPIC))
    assert run(tmp_path, "ordres") == 1
    assert "was created" not in capsys.readouterr().err


def test_records_go_on_when_the_topics_can_not_be_listed(
    admin: ToldAdmin, tmp_path, monkeypatch, capsys
) -> None:
    def silent(**_: object) -> Any:
        raise refusal(KafkaError._TIMED_OUT)

    monkeypatch.setattr(admin, "list_topics", silent)
    assert run(tmp_path, "ordres") == 0
    assert capsys.readouterr().err == "2 records acknowledged\n"


@pytest.mark.usefixtures("admin")
def test_a_record_that_nobody_acknowledges_makes_no_topic_by_itself(
    tmp_path, monkeypatch, capsys
) -> None:
    """With acks=0 the client calls it delivered when it was sent."""
    monkeypatch.setattr(Producer, "makes", False)
    assert run(tmp_path, "ordres", "--acks", "0") == 0
    assert "was created" not in capsys.readouterr().err


@pytest.mark.usefixtures("admin")
def test_a_record_that_failed_is_told_by_its_line_and_its_topic(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(Producer, "error", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert run(tmp_path, "orders") == 1
    first, second, _ = capsys.readouterr().err.splitlines()
    assert first.startswith(
        f"{tmp_path}/lines, line 1: a record to orders failed: MESSAGE_TOO_LARGE: "
    )
    assert first.endswith("`fencepost config set --topic orders max.message.bytes=…`.")
    assert f"{tmp_path}/lines, line 2: " in second


@pytest.mark.usefixtures("admin")
def test_a_header_that_is_said_twice_is_there_twice(tmp_path, capsys) -> None:
    """Kafka's headers are a list. The first of two was dropped without a word."""
    more = [word for each in ("a=1", "b=2", "a=3") for word in ("--header", each)]
    assert run(tmp_path, "orders", *more, lines="x\n") == 0
    assert [each["headers"] for each in Producer.written] == [[("a", "1"), ("b", "2"), ("a", "3")]]
    capsys.readouterr()
    assert run(tmp_path, "orders", "--header", "a") == 2
    assert "'a' is not NAME=VALUE" in capsys.readouterr().err


@pytest.mark.usefixtures("admin")
def test_a_line_without_the_separator_ends_it_there(tmp_path, capsys) -> None:
    """As in Kafka's console producer: it became a record without a key, in whichever partition."""
    lines = f"k:a\n:b\n{'c' * 100}\nd:e\n"
    assert run(tmp_path, "orders", "--key-separator", ":", lines=lines) == 1
    written = [(each["key"], each["value"]) for each in Producer.written]
    assert written == [(b"k", b"a"), (b"", b"b")]
    tally, refused = capsys.readouterr().err.splitlines()
    assert tally == "2 records acknowledged"
    assert refused.startswith(
        f"fencepost: {tmp_path}/lines, line 3: '{'c' * 60}…' has no ':' (--key-separator)"
    )
    assert "mend it, and go on from there" in refused


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize("separator", [(), ("--key-separator", ":")])
def test_a_record_that_lacks_the_key_of_a_compacted_topic_is_told_so(
    separator, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(Producer, "error", KafkaError(KafkaError.INVALID_RECORD))
    assert run(tmp_path, "orders", *separator, lines="k:a\n") == 1
    said = capsys.readouterr().err
    assert "line 1: a record to orders failed: INVALID_RECORD: " in said
    hint = "It has no key, and a compacted topic (cleanup.policy) takes no record without"
    assert (hint in said and "`--key-separator TEXT`" in said) is not bool(separator)
