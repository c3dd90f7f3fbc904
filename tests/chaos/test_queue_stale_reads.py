"""Ends that were asked for, against what had been acknowledged."""

from concurrent.futures import Future
from types import SimpleNamespace

from fencepost.chaos.checkers.stale_reads import StaleReads
from fencepost.chaos.checkers.txn_history import Sent, Txn
from fencepost.chaos.workloads.queue_topics import Topics

A = "t0-0"


def sent(offset, ended_s, kind="ok"):
    op = Txn("send", kind, "a", sends=[Sent(A, offset, offset)], ended_s=ended_s, line=offset + 1)
    return op


def asked(end, began_s):
    return Txn("ends", "ok", "b", positions={A: end}, began_s=began_s, ended_s=began_s + 1, line=99)


def found(*ops):
    seen = StaleReads()
    return [anomaly for op in ops for anomaly in seen.see(op)]


def test_an_end_below_what_was_acknowledged_before_it_was_asked_for_is_stale() -> None:
    [stale] = found(sent(4, 1.0), sent(5, 2.0), asked(5, 3.0))
    assert (stale.rule, stale.key, stale.operations) == ("stale-read", A, (6, 99))


def test_an_end_behind_it_is_right() -> None:
    assert found(sent(5, 2.0), asked(6, 3.0)) == []


def test_what_came_after_the_question_or_is_unknown_says_nothing() -> None:
    assert found(sent(4, 1.0), sent(5, 3.5), asked(5, 3.0)) == []
    assert found(sent(4, 1.0), sent(5, 2.0, "info"), asked(5, 3.0)) == []


def test_an_end_that_nobody_told_is_none(monkeypatch) -> None:
    """librdkafka's answer for a partition whose leader went away is -1001, without an error."""
    told = {0: 7, 1: -1001}

    class Admin:
        def list_offsets(self, asked, **_: object):
            found = {place: Future() for place in asked}
            for place, answer in found.items():
                answer.set_result(SimpleNamespace(offset=told[place.partition]))
            return found

    topics = Topics("nowhere:1", 3)
    monkeypatch.setattr(topics, "_admin", Admin)
    assert topics.ends(["t0-0", "t0-1"]) == {"t0-0": 7}


def test_of_a_key_that_is_not_written_to_any_more_only_its_end_is_kept() -> None:
    """Keys come and go: what is held must not grow with how long a history is."""
    reads = StaleReads()
    for key in range(50):
        for at in range(40):
            ended_s = 100.0 * key + at
            sent = [Sent(f"t{key}-0", at, at)]
            reads.see(Txn("send", "ok", "a", sends=sent, began_s=ended_s, ended_s=ended_s))
    assert sum(map(len, reads._known.values())) < 50 + 3 * 40
    late = Txn("ends", "ok", "b", positions={"t0-0": 39}, began_s=6_000.0, ended_s=6_000.0)
    assert [each.rule for each in reads.see(late)] == ["stale-read"]
