"""Half messages: what shops, checkers and whoever looks were told of them."""

from fencepost.chaos.checkers import told
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.runs.judging import judge
from test_queue_judging import run_of

HALF = Txn("txn", "info", "shop-1.1-1", 1, [Sent("added-0", 10), Sent("added-1", 11)])
HALF.told, HALF.began_s, HALF.ended_s = {"shop-1.1-1": ""}, 1.0, 2.0
ROUND = Txn("txn", "ok", "job-0.1", 2, [Sent("added-2", 12, 0)], began_s=1.0, ended_s=1.1)


def heard(process: str, state: str) -> Txn:
    return Txn("told", "ok", process, told={"shop-1.1-1": state}, began_s=3.0, ended_s=3.0)


def final(*values: int) -> Txn:
    places = {10: "added-0", 11: "added-1", 12: "added-2"}
    writers = {10: 1, 11: 1, 12: 2}
    polls = [Polled(places[value], 0, value, writers[value]) for value in values]
    return Txn("read", "ok", FINAL, polls=polls, began_s=9.0, ended_s=9.5)


SHOWN = Txn("read", "ok", "follower-0.1", polls=[Polled("added-2", 0, 12, 2)])
SHOWN.began_s, SHOWN.ended_s = 1.5, 1.6


def verdict(path, *ops):
    found = judge(run_of(path, ROUND, *ops, shown=[SHOWN], workload="added"), lambda _: None)
    return found["verdict"], found["why"]


def test_a_half_message_that_was_committed_and_is_half_there_is_torn(tmp_path) -> None:
    """Its shop was killed; who was asked for it has ended it."""
    said, why = verdict(tmp_path / "run", HALF, heard("checker-2.1", "committed"), final(10, 12))
    assert said == "invalid" and "1 torn" in why and "1 unseen" in why


def test_a_half_message_that_was_committed_and_is_not_there_is_torn(tmp_path) -> None:
    """Without the word of its checker nothing would be wrong: it may have been rolled back."""
    nothing = Txn("read", "ok", FINAL, polls=final(12).polls, began_s=9.0, ended_s=9.5)
    assert verdict(tmp_path / "1", HALF, nothing)[0] == "unknown"
    said, why = verdict(tmp_path / "2", HALF, heard("checker-2.1", "committed"), nothing)
    assert said == "invalid" and "1 torn" in why


def test_a_half_message_that_was_rolled_back_and_is_there_was_read_though_it_failed(
    tmp_path,
) -> None:
    said, why = verdict(
        tmp_path / "run", HALF, heard("checker-2.1", "rolled_back"), final(10, 11, 12)
    )
    assert said == "invalid" and "G1a" in why


def test_two_decisions_of_one_half_message_are_told_with_who_heard_them() -> None:
    ops = [HALF, heard("checker-2.1", "committed"), heard("checker-4.1", "rolled_back")]
    (found,) = told.check(ops)
    assert found.rule == "decision-changed"
    assert "checker-4.1" in found.what and "checker-2.1" in found.what


def test_a_half_message_that_was_ended_by_nobody_who_was_asked_proves_nothing(tmp_path) -> None:
    said, why = verdict(tmp_path / "run", HALF, final(12))
    assert said == "unknown"
    assert "no half message was ended" in why
    said, why = verdict(tmp_path / "2", HALF, heard("checker-2.1", "committed"), final(10, 11, 12))
    assert said == "valid", why


def test_a_history_in_which_nothing_was_told_is_the_same() -> None:
    assert told.resolved([ROUND]) == [ROUND]
    assert '"told"' not in to_line(ROUND)


def test_a_half_message_ends_as_somebody_has_answered() -> None:
    """Also one who died with his answer on its way; who does not know has said nothing."""
    answered = told.Answered()
    answered.sent("shop-1", "unknown")
    assert [each.rule for each in answered.see("shop-1", "rolled_back")] == ["unanswered-end"]
    assert answered.see("shop-1", "waiting") == []
    answered.sent("shop-1", "commit")
    answered.sent("shop-1", "rollback")
    assert answered.see("shop-1", "committed") == answered.see("shop-1", "rolled_back") == []
    assert [each.rule for each in answered.see("shop-2", "committed")] == ["unanswered-end"]
