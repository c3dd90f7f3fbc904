"""Names that strangers chose reach the terminal as they are, and a shell as one word."""

import json
import subprocess
from argparse import Namespace
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.shown import printable
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.node.cli import cluster as shared
from fencepost.node.cli import topic_delete, trace, txn, txn_hanging, txn_parked
from fencepost.node.cli.checked import Failed
from fencepost.node.cli.output import show, show_json
from fencepost.node.cli.txn_sentences import PREPARED, Transaction
from fencepost.node.main import main

# It wipes its line and writes another row; the title of the window; C1's CSI; what turns the direction of text.
EVIL = "bil\x1b[2K\rling\nfake  stable\x07\x9b31m\u202e"
SHOWN = r"bil\x1b[2K\rling\nfake  stable\x07\x9b31m\u202e"


def is_clean(text: str) -> bool:
    return all(each.isprintable() for each in text.split("\n"))


def transaction(name: str, state: str) -> Transaction:
    return Transaction(
        transactional_id=name,
        state=state,
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1000,
        started_ms=0,
        partitions=(TopicPartition("orders", 0),),
        coordinator=1,
    )


def assert_pasted(folder: Path, sentence: str, *words: str) -> None:
    """The last command that the sentence has begins with these words, in a shell."""
    command = printable(sentence).rsplit("`fencepost", 1)[1].rsplit("`", 1)[0]
    ran = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, cwd=folder
    )
    assert ran.stdout.decode().split("\0")[: len(words)] == list(words)
    assert list(folder.iterdir()) == []


def test_a_name_can_not_forge_a_row_or_steer_the_terminal(capsys) -> None:
    show(("group", "members"), [(EVIL, [EVIL, "é"]), ("orders", "読")], as_json=False)
    said = capsys.readouterr().out
    assert said.count("\n") == 3
    assert is_clean(said)
    assert said.splitlines()[1] == f"{SHOWN}  {SHOWN},é"
    assert "読" in said  # what can be read is left alone


def test_a_sentence_that_names_it_stays_one_line(capsys) -> None:
    def fails(_: Namespace) -> int:
        raise Failed(f"there is no group {EVIL}")

    assert shared.run_safely(fails, Namespace(json=False)) == 1
    assert capsys.readouterr().err == f"fencepost: there is no group {SHOWN}\n"


def test_what_was_done_is_told_without_its_escapes(capsys) -> None:
    done: Future[Any] = Future()
    done.set_result(None)
    late: Future[Any] = Future()
    late.set_exception(shared.KafkaException(shared.KafkaError(69)))
    shared.settle(
        "group", {EVIL: done, f"{EVIL}2": late}, failed="can't", done="deleted", as_json=False
    )
    said = capsys.readouterr()
    assert said.out == f"{SHOWN} deleted\n"
    assert said.err.startswith(f"fencepost: can't {SHOWN}2: ") and is_clean(said.err)


@pytest.mark.parametrize("name", ["x; touch PWNED", EVIL])
@pytest.mark.parametrize("state", ["Ongoing", PREPARED])
def test_what_ends_a_transaction_names_it_as_one_word(
    name: str, state: str, monkeypatch, tmp_path
) -> None:
    refusal = SimpleNamespace(error_code=ErrorCode.invalid_txn_state)
    node = SimpleNamespace(broker_id=1, endpoints=[None])
    wire: Any = SimpleNamespace(ask_node=lambda *_, **__: refusal)
    monkeypatch.setattr(txn_hanging, "coordinator_of", lambda *_: node)
    with pytest.raises(Failed) as refused:
        txn_hanging._fence(wire, ClusterImage(), transaction(name, state))
    verb = "release" if state == PREPARED else "describe"
    assert_pasted(tmp_path, str(refused.value), "txn", verb, name)

    def lost(*_: object, **__: object) -> None:
        raise Trouble("the connection was lost", Outcome.UNKNOWN)

    wire.ask_node = lost
    with pytest.raises(Failed) as unanswered:
        txn_hanging._fence(wire, ClusterImage(), transaction(name, state))
    assert_pasted(tmp_path, str(unanswered.value), "txn", "describe", name)


@pytest.mark.parametrize("name", ["x; touch PWNED", EVIL])
def test_what_does_not_hang_is_ended_by_a_name_that_is_one_word(
    name: str, monkeypatch, tmp_path
) -> None:
    place = TopicPartition("orders", 0)
    chosen: Any = SimpleNamespace(first_offset=3, producer_id=1, place=place)
    monkeypatch.setattr(txn_hanging, "_leaderless", lambda *_: False)
    monkeypatch.setattr(txn_hanging, "read_open", lambda *_: {place: [chosen]})
    monkeypatch.setattr(txn_hanging, "still_open", lambda *_: ([chosen], set()))
    known = {1: transaction(name, "Ongoing")}
    monkeypatch.setattr(txn_hanging, "known_by_producer", lambda *_: (known, []))
    wire: Any = None
    with pytest.raises(Failed) as refused:
        txn_hanging._hanging_at(wire, ClusterImage(), place, 3)
    assert_pasted(tmp_path, str(refused.value), "txn", "abort", name)


def test_what_was_ended_released_or_asked_about_is_told_without_its_escapes(
    monkeypatch, capsys
) -> None:
    txn_hanging._done(Namespace(json=False), {}, f"aborted the transaction of {EVIL}")
    monkeypatch.setattr(txn_parked, "ask_door", lambda *_: {})
    words = {"transactional_id": EVIL, "half_id": EVIL, "outcome": None, "json": False}
    assert txn_parked.release(Namespace(**words)) == 0
    admin: Any = SimpleNamespace(
        list_topics=lambda **_: SimpleNamespace(topics={"t": SimpleNamespace(partitions={})})
    )
    monkeypatch.setattr(topic_delete, "_told", lambda *_: [f"t (1 partition; {EVIL} reads it)"])
    monkeypatch.setattr(topic_delete.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert topic_delete._agreed(Namespace(json=False), admin, ["t"]) is False
    said = capsys.readouterr().out
    assert said.count("\n") == 3 and is_clean(said)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_line_of_a_log_steers_no_terminal(as_json: bool) -> None:
    line = {"time": "1", "level": "info", "event": "request", "client": EVIL}
    assert is_clean(trace._shown(line, as_json=as_json))


def test_a_folder_with_a_blank_is_one_word_of_the_command(tmp_path, capsys) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    assert main(["dev", "--data", str(folder), "--start", "1"]) == 1
    assert f"`fencepost dev --nodes N --data '{folder}'`" in capsys.readouterr().err


def test_json_says_all_of_it_and_shows_none_of_it(capsys) -> None:
    show_json([{"group": EVIL + "\x7f\U000e0001"}])
    said = capsys.readouterr().out
    assert is_clean(said)
    assert json.loads(said) == [{"group": EVIL + "\x7f\U000e0001"}]


def test_a_transaction_is_described_by_its_own_name_only(capsys) -> None:
    why = f"It stands at 3: the transaction of {EVIL}, which began at 3, is open."
    txn._print_description(
        transaction(EVIL, "Ongoing"), [{"topic": "orders", "partition": 0, "why": why}], 10
    )
    said = capsys.readouterr().out
    assert said.count("\n") == 3 and is_clean(said)


@pytest.mark.parametrize(
    "name",
    ["x; touch PWNED; ", "$(touch PWNED)", "a'b", "`id`", EVIL, "it's\\ \x1b[2K", "\x1f é"],
)
def test_a_command_to_paste_is_the_one_that_it_seems(name: str, capsys, tmp_path) -> None:
    words = ("consume", "t", "--group", name, "--from", "4")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared, "AdminClient", None)
        assert main(words) == 2
    said = capsys.readouterr().err
    assert is_clean(said)
    command = said.split("`fencepost", 1)[1].rsplit("`", 1)[0]
    ran = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, cwd=tmp_path
    )
    assert ran.stdout.decode().split("\0") == [
        *("group", "seek", name, "--topic", "t", "--to", "4", "")
    ]
    assert list(tmp_path.iterdir()) == []
