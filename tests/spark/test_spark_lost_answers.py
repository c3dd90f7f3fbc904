"""A commit whose answer does not come: it is asked for again, and nobody is told to write twice what is there."""

from dataclasses import replace

import pytest
from fencepost.clients.spark import sink_commit
from fencepost.clients.spark.sink_commit import (
    CommitUnknown,
    CouldNotCommit,
    IsCommitted,
    abort,
    commit,
)
from fencepost.clients.transactional import AdminRefused, AdminUnreachable
from sink_table import Table, batch, member, wrote

ONCE = replace(wrote(member(0)), is_used_once=True)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_commit, "ASK_AGAIN_S", 0.0)


@pytest.mark.parametrize("is_decided", [True, False], ids=["decided", "not decided yet"])
def test_a_commit_whose_answer_was_lost_is_asked_for_until_it_comes(caplog, is_decided) -> None:
    """An unnamed save() would be reported as failed, run again under another group, and be there twice."""
    table = Table(member(0))
    table.lost, table.is_lost_after = 3, is_decided
    assert commit(table, ONCE, table.fence)
    assert table.decided[7].outcome == "commit"
    assert "whether batch 7 is committed is not known yet, asking again" in caplog.text


def test_what_tasks_found_decided_is_asked_for_until_it_comes() -> None:
    table = Table(member(0))
    commit(table, wrote(member(0)), table.fence)
    table.asking = [AdminUnreachable("GET: no answer in 30 s")] * 2
    assert not commit(table, batch(number=7), table.fence)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            ONCE,
            r"ask first .* GET /v1/transaction-groups/orders-to-lake/decisions/7 .* abort, nothing",
        ),
        (wrote(member(0)), r"Start the query again when an admin door answers"),
    ],
    ids=["save", "stream"],
)
def test_a_commit_that_nobody_answers_is_said_to_be_unknown(monkeypatch, of, said) -> None:
    monkeypatch.setattr(sink_commit, "ANSWER_S", 0.0)
    table = Table(member(0))
    table.lost = 1
    with pytest.raises(CommitUnknown, match=rf"batch 7 .* is committed is not known: .*{said}"):
        commit(table, of, table.fence)


def test_an_abort_that_learns_of_the_commit_says_that_it_must_not_be_run_again(
    monkeypatch, caplog
) -> None:
    """Spark aborts after a commit that raised, and reports the write as failed."""
    monkeypatch.setattr(sink_commit, "ANSWER_S", 0.0)
    copy = member(0, attempt=1)
    table = Table(member(0), copy)
    table.lost = 1
    with pytest.raises(CommitUnknown):
        commit(table, ONCE, table.fence)
    with pytest.raises(IsCommitted, match=r"number 7 .* IS COMMITTED.* Do not run it again"):
        abort(table, ONCE, table.fence, last=7)
    assert "IS COMMITTED" in caplog.text
    assert table.open == {}, "what lost attempts left open is ended all the same"
    assert table.decision(7).outcome == "commit"


NOT_IN = AdminRefused(401, "SASL_AUTHENTICATION_FAILED", "no token.", "Send it.")


def test_a_door_that_lets_nobody_in_does_not_say_what_became_of_a_commit() -> None:
    """The door that had heard it died; what another one refuses was reported as "not committed, none of it"."""
    table = Table(member(0))
    table.lost, table.refusals = 1, [NOT_IN]
    assert commit(table, ONCE, table.fence), "the decision was asked for until somebody knew it"


def test_who_is_let_in_nowhere_is_told_so_at_once() -> None:
    table = Table(member(0))
    table.refusals = [NOT_IN]
    with pytest.raises(CouldNotCommit, match=r"not committed, none of it: SASL_AUTH.*no token"):
        commit(table, ONCE, table.fence)


@pytest.mark.parametrize("trouble", [NOT_IN, AdminUnreachable("POST: no answer in 30 s.")])
def test_an_abort_that_learns_nothing_of_the_commit_says_how_to_find_out(
    monkeypatch, trouble
) -> None:
    monkeypatch.setattr(sink_commit, "ANSWER_S", 0.0)
    table = Table(member(0))
    table.lost = 1
    with pytest.raises(CommitUnknown):
        commit(table, ONCE, table.fence)

    def silent(_number):
        raise trouble

    table.abort = silent
    with pytest.raises(CommitUnknown, match=r"batch 7 .* is not known: .*ask first .*decisions/7"):
        abort(table, ONCE, table.fence, last=7)


def test_what_tasks_found_decided_is_not_said_to_be_uncommitted() -> None:
    table = Table(member(0))
    commit(table, wrote(member(0)), table.fence)
    table.asking = [NOT_IN]
    with pytest.raises(CouldNotCommit, match="whether it was before could not be asked: SASL"):
        commit(table, batch(number=7), table.fence)
