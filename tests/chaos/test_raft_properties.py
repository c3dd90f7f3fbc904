"""Each anomaly in as few events as there can be: a checker that can't fail proves nothing."""

from typing import Any

from fencepost.chaos.checkers.raft_properties import check

Event = dict[str, Any]


def add(node: int, index: int, term: int, digest: str = "x", before: int = 1) -> Event:
    place = {"index": index, "term": term, "digest": digest, "before": before}
    return {"f": "add", "node": node, **place}


def lead(node: int, term: int, *log: tuple[int, str], first: int = 1) -> Event:
    return {"f": "lead", "node": node, "term": term, "first": first, "log": [list(e) for e in log]}


def applied(node: int, index: int, term: int = 1, digest: str = "x", during: int = 1) -> Event:
    entry = {"index": index, "term": term, "digest": digest}
    return {"f": "apply", "node": node, **entry, "during": during}


def restored(node: int, index: int) -> Event:
    return {"f": "restore", "node": node, "index": index}


def durable(node: int, index: int) -> Event:
    return {"f": "durable", "node": node, "index": index}


def committed(node: int, index: int, *voters: int, term: int = 1) -> Event:
    return {"f": "commit", "node": node, "index": index, "term": term, "voters": list(voters)}


def rules(*events: Event) -> list[str]:
    return [anomaly.rule for anomaly in check(events)]


def test_a_run_in_which_nothing_is_wrong_has_no_anomaly() -> None:
    assert not rules(
        lead(1, 1, (0, "a")),
        add(1, 2, 1, "x", 0),
        add(2, 2, 1, "x", 0),
        restored(1, 1),
        applied(1, 2),
        lead(2, 3, (0, "a"), (1, "x")),
        restored(2, 2),
        applied(2, 3, 3, "y"),
        lead(2, 4, (3, "y"), first=3),
    )


def test_two_leaders_in_one_term_break_election_safety() -> None:
    assert rules(lead(1, 1), lead(2, 1)) == ["election-safety"]
    assert rules(lead(1, 1), lead(2, 2), lead(1, 1)) == []


def test_one_place_of_one_term_with_two_contents_breaks_log_matching() -> None:
    assert rules(add(1, 2, 1, "x"), add(2, 2, 1, "y")) == ["log-matching"]


def test_one_entry_with_two_pasts_breaks_log_matching() -> None:
    assert rules(add(1, 3, 4, before=1), add(2, 3, 4, before=2)) == ["log-matching"]


def test_a_leader_that_lacks_what_was_committed_is_incomplete() -> None:
    committed = [restored(1, 0), applied(1, 1), applied(1, 2)]
    assert rules(*committed, lead(2, 2, (1, "x"))) == ["leader-completeness"]
    assert rules(*committed, lead(2, 2, (1, "x"), (1, "other"))) == ["leader-completeness"]
    assert rules(*committed, lead(2, 2, (1, "x"), first=2)) == []
    # Its votes came late: another leads a later term already, and has committed.
    later = [restored(1, 0), applied(1, 1, during=3)]
    assert rules(*later, lead(2, 2)) == []
    assert rules(*later, lead(2, 4)) == ["leader-completeness"]


def test_two_entries_applied_at_one_index_break_state_machine_safety() -> None:
    assert rules(applied(1, 1), applied(2, 1, digest="y")) == ["state-machine-safety"]
    assert rules(applied(1, 1), applied(2, 1, term=2)) == ["state-machine-safety"]


def test_an_entry_that_is_left_out_or_applied_again_is_out_of_order() -> None:
    assert rules(applied(1, 1), applied(1, 3)) == ["order"]
    assert rules(applied(1, 1), applied(1, 1)) == ["order"]
    assert rules(applied(1, 1), restored(1, 0), applied(1, 1)) == []


def test_a_commit_that_no_majority_of_the_voters_has_synced_breaks_commit_majority() -> None:
    both = add(1, 2, 1), add(2, 2, 1)
    assert rules(*both, durable(1, 2), durable(2, 2), committed(1, 2, 1, 2, 3)) == []
    assert rules(*both, durable(1, 2), durable(2, 1), committed(1, 2, 1, 2, 3)) == [
        "commit-majority"
    ]
    # It was removed, and counts itself.
    assert rules(*both, durable(1, 2), durable(2, 2), committed(1, 2, 2, 3)) == ["commit-majority"]
    # What was synced there is of another term.
    other = add(2, 2, 1), durable(2, 2), add(1, 2, 2), durable(1, 2)
    assert rules(*other, committed(1, 2, 1, 2, 3, term=2)) == ["commit-majority"]
    assert rules(add(1, 2, 1), committed(1, 2, 1)) == []
