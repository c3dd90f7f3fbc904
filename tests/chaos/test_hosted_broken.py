"""A hosted client that was told what it must never be told: its process says so, however deep in it the client is."""

import json
from pathlib import Path
from typing import Any

import pytest
from fencepost.chaos.workloads import hosted
from fencepost.chaos.workloads.hosted_stream import Several
from fencepost.chaos.workloads.txn_answers import BrokenPromise


class Client:
    stopping = False
    acknowledged = 0

    def __init__(self, *told: str) -> None:
        self.told = told

    async def run(self) -> None:
        if self.told:
            raise BrokenPromise(*self.told)


@pytest.mark.parametrize(
    "actor",
    [
        Client("out of order"),
        Several([Client(), Client("out of order")]),
        Several([Several([Client("out of order")]), Client()]),
    ],
)
def test_what_a_client_was_told_is_noted_and_said(
    actor: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = tmp_path / "notes.jsonl"
    monkeypatch.setattr(hosted, "whose", lambda _chosen: (0, ("streams",)))
    monkeypatch.setitem(hosted.ROLES, "streams", lambda _home: actor)
    words = ["--workload", "streams", "--bootstrap", "127.0.0.1:1", "--slot", "3", "--life", "1"]
    assert hosted.main([*words, "--notes", str(notes)]) == hosted.BROKEN
    (died,) = [json.loads(line) for line in notes.read_text().splitlines()]
    assert (died["f"], died["process"], died["why"]) == ("die", "streams-3.1", "out of order")
    assert capsys.readouterr().err == "out of order\n"
