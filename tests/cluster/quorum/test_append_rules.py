"""What of an append is new, what conflicts, and what it proves: tables, and a plain twin on random logs."""

import pytest
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.quorum.append_rules import Fits, Gap, judge_append
from fencepost.cluster.quorum.segment_format import Entry
from hypothesis import given
from hypothesis import strategies as st


def log_of(*terms: int, first: int = 1) -> list[Entry]:
    return [Entry(b"%d" % term, index, term) for index, term in enumerate(terms, start=first)]


def test_an_append_that_repeats_what_is_there_cuts_nothing() -> None:
    """pysyncobj cuts all behind `prevLogIdx`: a late append takes away what came after it."""
    log = log_of(0, 1, 1, 1)
    assert judge_append(log, 1, (1, 0), log[1:3]) == Fits(3, None, ())
    assert judge_append(log, 1, (2, 1), []) == Fits(2, None, ())


def test_what_follows_is_new_and_nothing_before_it() -> None:
    log, leaders = log_of(0, 1), log_of(0, 1, 1, 2)
    assert judge_append(log, 1, (1, 0), leaders[1:]) == Fits(4, None, leaders[2:])


def test_an_entry_of_another_term_cuts_from_there_on() -> None:
    log, leaders = log_of(0, 1, 1, 1), log_of(0, 1, 2, 2, 2)
    assert judge_append(log, 2, (1, 0), leaders[1:]) == Fits(5, 3, leaders[2:])


def test_a_conflict_with_what_is_committed_is_a_lie_and_refused() -> None:
    log, leaders = log_of(0, 1, 1, 1), log_of(0, 1, 2, 2)
    with pytest.raises(FrameRefused, match="committed"):
        judge_append(log, 3, (1, 0), leaders[1:])
    with pytest.raises(FrameRefused, match="committed"):
        judge_append(log, 3, (3, 2), [])


def test_a_hole_is_asked_for_and_a_foreign_term_is_skipped_whole() -> None:
    log = log_of(0, 1, 3, 3, 3, 3)
    assert judge_append(log, 1, (9, 3), []) == Gap(7)
    assert judge_append(log, 2, (6, 4), []) == Gap(3)
    assert judge_append(log, 4, (6, 4), []) == Gap(5)


def test_what_lies_before_the_snapshot_is_held() -> None:
    log, leaders = log_of(1, 1, 1, first=10), log_of(0, *(1 for _ in range(14)))
    assert judge_append(log, 11, (5, 1), leaders[5:9]) == Fits(11, None, ())
    assert judge_append(log, 11, (5, 1), leaders[5:14]) == Fits(14, None, leaders[12:14])


@st.composite
def scenes(draw: st.DrawFn):
    """Two logs that have a beginning in common, of which a part is committed; one sends any piece of its own."""
    common = sorted(draw(st.lists(st.integers(1, 3), max_size=4)))
    mine = sorted(draw(st.lists(st.integers(4, 6), max_size=4)))
    theirs = sorted(draw(st.lists(st.sampled_from([7, 8, 9]), max_size=4)))
    log, leaders = log_of(0, *common, *mine), log_of(0, *common, *theirs)
    commit_index = draw(st.integers(1, 1 + len(common)))
    start = draw(st.integers(1, len(leaders)))
    end = draw(st.integers(start, len(leaders)))
    dropped = draw(st.integers(0, max(0, commit_index - 2)))
    return log[dropped:], commit_index, leaders, start, end


@given(scenes())
def test_after_a_fit_the_log_is_the_leaders_up_to_what_matched(scene) -> None:
    log, commit_index, leaders, start, end = scene
    previous = leaders[start - 1]
    verdict = judge_append(log, commit_index, previous[1:], leaders[start:end])
    first = log[0].idx
    if isinstance(verdict, Gap):
        assert commit_index < verdict.next_index <= max(previous.idx, log[-1].idx + 1)
        return
    after = log if verdict.cut_from is None else log[: verdict.cut_from - first]
    after = after + list(verdict.new)
    assert [entry.idx for entry in after] == list(range(first, first + len(after)))
    assert after[: verdict.matched + 1 - first] == leaders[first - 1 : verdict.matched]
    assert verdict.matched >= max(commit_index, previous.idx + end - start)
    if verdict.cut_from is not None:
        assert log[verdict.cut_from - first].term != leaders[verdict.cut_from - 1].term
