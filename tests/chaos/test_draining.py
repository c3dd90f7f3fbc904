"""Somebody looks whether all that was left is worked off; stand-ins that know no broker."""

import json
import time
from types import SimpleNamespace

import pytest
from fencepost.chaos.runs import draining
from fencepost.chaos.runs.draining import Draining

SYSTEM = SimpleNamespace(bootstrap="h:1", admins={1: ("127.0.0.1", 9644)})
WANTED = {"groups": {"pipeline": [["in", 1]]}, "halves": False}


def left(tmp_path, monkeypatch, code: str) -> str:
    (tmp_path / "stand_in_drain.py").write_text(f"import sys, time\n{code}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(draining, "MODULE", "stand_in_drain")
    (tmp_path / "clients").mkdir()
    with Draining(tmp_path, WANTED, SYSTEM) as looking:
        while looking.goes_on:
            time.sleep(0.01)
        return looking.left


@pytest.mark.slow
def test_when_nothing_is_left_nothing_is_said(tmp_path, monkeypatch) -> None:
    code = "assert sys.argv[-2:] == ['--admin', '127.0.0.1:9644'], sys.argv"
    assert left(tmp_path, monkeypatch, code) == ""
    assert json.loads((tmp_path / "drain.json").read_text()) == WANTED


@pytest.mark.slow
def test_what_is_left_is_what_its_last_words_say(tmp_path, monkeypatch) -> None:
    said = left(tmp_path, monkeypatch, "print('2 inputs of pipeline: in-1 at 7'); sys.exit(3)")
    assert said == "2 inputs of pipeline: in-1 at 7"


@pytest.mark.slow
def test_who_ends_without_a_word_has_not_said_that_nothing_is_left(tmp_path, monkeypatch) -> None:
    assert "ended with 9" in left(tmp_path, monkeypatch, "sys.exit(9)")


@pytest.mark.slow
def test_who_does_not_come_to_an_end_is_not_waited_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(draining, "DRAIN_S", 0.1)
    monkeypatch.setattr(draining, "SLACK_S", 0.1)
    assert "and said nothing" in left(tmp_path, monkeypatch, "time.sleep(60)")
