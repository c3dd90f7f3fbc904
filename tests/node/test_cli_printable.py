"""Names that strangers chose reach the terminal as they are, and a shell as one word."""

import json
import subprocess
from argparse import Namespace
from concurrent.futures import Future
from typing import Any

import pytest
from fencepost.cluster.base.ids import TopicPartition
from fencepost.node.cli import cluster as shared
from fencepost.node.cli import txn
from fencepost.node.cli.checked import Failed
from fencepost.node.cli.output import show, show_json
from fencepost.node.cli.txn_sentences import Transaction
from fencepost.node.main import main

# It wipes its line and writes another row; the title of the window; C1's CSI; what turns the direction of text.
EVIL = "bil\x1b[2K\rling\nfake  stable\x07\x9b31m\u202e"
SHOWN = r"bil\x1b[2K\rling\nfake  stable\x07\x9b31m\u202e"


def is_clean(text: str) -> bool:
    return all(each.isprintable() for each in text.split("\n"))


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
    place = TopicPartition("orders", 0)
    found = Transaction(
        transactional_id=EVIL,
        state="Ongoing",
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1000,
        started_ms=0,
        partitions=(place,),
        coordinator=1,
    )
    why = f"It stands at 3: the transaction of {EVIL}, which began at 3, is open."
    txn._print_description(found, [{"topic": "orders", "partition": 0, "why": why}], 10)
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
        assert main(words) == 1
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
