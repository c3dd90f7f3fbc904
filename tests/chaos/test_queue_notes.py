"""What client processes write down, and the history that it becomes."""

from dataclasses import replace

import pytest
from fencepost.chaos.checkers.txn_history import Sent, Txn, to_line
from fencepost.chaos.runs.notes import Notes


def op(number, kind="info", *, began_s=100.0, ended_s=0.0):
    return Txn("txn", kind, "a", number, [Sent("t0-0", number)], began_s=began_s, ended_s=ended_s)


def written(path, *ops, mode="a"):
    with path.open(mode) as file:
        file.writelines(f"{to_line(each)}\n" for each in ops)


def test_an_operation_comes_once_when_its_end_is_written_down(tmp_path) -> None:
    file = tmp_path / "notes"
    notes = Notes(file, 90.0)
    assert notes.ended() == []
    written(file, op(1))
    assert notes.ended() == []
    assert notes.oldest_s == 10.0
    sent = replace(op(1, "ok", ended_s=101.5), sent_s={"t0-0": 101.25})
    written(file, sent, op(2, began_s=101.6))
    [ended] = notes.ended()
    assert notes.oldest_s == pytest.approx(11.6)
    assert ended.sent_s == {"t0-0": 11.25}, "on the run's clock, as all times of the history"
    assert (ended.number, ended.type, ended.began_s, ended.ended_s) == (1, "ok", 10.0, 11.5)
    assert notes.ended() == []


def test_what_a_killed_client_had_begun_comes_into_the_history_as_unknown(tmp_path) -> None:
    file = tmp_path / "notes"
    notes = Notes(file, 90.0)
    written(file, op(1), op(1, "ok", ended_s=101.0), op(2, began_s=102.0))
    with file.open("a") as torn:
        torn.write(to_line(op(3))[:-9])
    found = notes.left_open(110.0)
    assert [(each.number, each.type, each.ended_s) for each in found] == [
        (1, "ok", 11.0),
        (2, "info", 20.0),
    ]
    assert notes.left_open(111.0) == []


def test_who_transacts_is_known_from_what_it_has_begun_until_its_life_is_over(tmp_path) -> None:
    """It has another transactional id in its next one."""
    file = tmp_path / "notes"
    notes = Notes(file, 90.0)
    written(file, op(1), op(1, "ok", ended_s=101.5))
    notes.ended()
    assert (notes.name, notes.transacted_s) == ("a", 11.5)
    written(file, replace(op(2, began_s=103.0), process="b"))
    notes.ended()
    assert (notes.name, notes.transacted_s) == ("b", 13.0)
    written(file, Txn("crash", "info", "a", began_s=104.0, ended_s=104.0))
    notes.ended()
    assert notes.name == "b", "of the one before it"
    written(file, Txn("crash", "info", "b", began_s=104.0, ended_s=104.0))
    notes.ended()
    assert notes.name == "" and notes.transacts
