"""`txn list --running-for`: a coordinator counts from when a transaction began, also of one that has ended since."""

from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.node.cli import txn
from fencepost.node.cli.txn_sentences import Transaction
from fencepost.node.main import main


def known(name: str, state: str) -> Transaction:
    return Transaction(
        transactional_id=name,
        state=state,
        producer_id=1,
        producer_epoch=0,
        timeout_ms=60_000,
        started_ms=1,
        partitions=(),
        coordinator=1,
    )


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    rows = [known("paid", "CompleteCommit"), known("pays", "Ongoing")]
    told: dict[str, Any] = {each.transactional_id: each for each in rows}
    ids = [(name, each.state) for name, each in told.items()]
    monkeypatch.setattr(txn, "list_ids", lambda *_, **__: (ids, []))
    monkeypatch.setattr(txn, "describe_all", lambda *_: (told, []))
    return ToldCluster(monkeypatch)


def test_what_has_ended_has_not_been_running_for_ten_minutes(capsys) -> None:
    assert main(["txn", "list", "--running-for", "10m"]) == 0
    said = capsys.readouterr().out
    assert "pays" in said and "paid" not in said


def test_without_it_what_has_ended_is_shown_too(capsys) -> None:
    assert main(["txn", "list"]) == 0
    said = capsys.readouterr().out
    assert "pays" in said and "paid" in said
