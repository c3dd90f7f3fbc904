"""Series of bounded size, against the plain way to compute the same."""

import random
from itertools import pairwise

import pytest
from fencepost.chaos.report.axes import LogAxis, TimeAxis, ValueAxis
from fencepost.chaos.report.leaders import Leaders
from fencepost.chaos.report.series import (
    BINS_MAX,
    CELLS_MAX,
    Acknowledgements,
    Gap,
    Series,
    level_of,
    quantile_ms,
)


@pytest.mark.parametrize("seconds", [10, 300, 86_400, 40 * 86_400])
def test_a_run_of_any_length_has_as_many_bins_as_a_short_one(seconds) -> None:
    series, acks = Series(), Acknowledgements()
    for at in range(2_000):
        series.at(at * seconds / 2_000).acknowledged += 1
        acks.add(at * seconds / 2_000)
    assert len(series.bins) <= BINS_MAX
    assert sum(each.acknowledged for each in series.bins) == 2_000
    assert len(acks._first) <= CELLS_MAX


def test_bins_that_were_joined_hold_what_wider_ones_would_have_held() -> None:
    rng = random.Random(5)
    moments = [(rng.uniform(0, 1_000), rng.uniform(0.5, 900.0)) for _ in range(5_000)]
    series = Series()
    for at, latency in moments:
        place = series.at(at)
        place.acknowledged += 1
        place.add_latency(latency)
    width = series.width_s
    for index in (0, 17, len(series.bins) - 1):
        here = sorted(latency for at, latency in moments if int(at / width) == index)
        assert series.bins[index].acknowledged == len(here)
        assert series.bins[index].quantile_ms(0.5) == pytest.approx(
            here[(len(here) - 1) // 2], rel=0.11
        )


def test_a_quantile_is_right_to_a_tenth() -> None:
    rng = random.Random(1)
    values = sorted(rng.lognormvariate(3, 1.5) for _ in range(10_000))
    from array import array

    levels = array("L", [0]) * 170
    for value in values:
        levels[level_of(value)] += 1
    for part in (0.5, 0.9, 0.99, 1.0):
        exact = values[min(len(values) - 1, int(part * len(values)))]
        assert quantile_ms(levels, part) == pytest.approx(exact, rel=0.1)


def plain_gaps(moments, longer, tried) -> list[Gap]:
    ordered = sorted(moments)
    found = [Gap(a, b) for a, b in pairwise(ordered) if b - a > longer]
    return found + ([Gap(ordered[-1], tried, is_open=True)] if tried - ordered[-1] > longer else [])


@pytest.mark.parametrize("seed", range(8))
def test_gaps_are_those_that_sorting_all_moments_finds(seed) -> None:
    rng = random.Random(seed)
    moments, now = [], 0.0
    for _ in range(400):
        now += rng.choice((0.001, 0.05, 0.2, 1.5, 4.0))
        moments.append(now)
    tried = now + rng.choice((0.0, 3.0))
    shuffled = [*moments]
    for at in range(0, 400, 5):  # nearly in order, as histories are
        part = shuffled[at : at + 5]
        rng.shuffle(part)
        shuffled[at : at + 5] = part
    acks = Acknowledgements()
    for each in shuffled:
        acks.add(each)
    acks.tried(tried, tried)
    assert list(acks.gaps(1.0)) == plain_gaps(moments, 1.0, tried)
    for _ in range(30):
        start = rng.uniform(0.0, now)
        end = start + rng.uniform(0.0, 20.0)
        until = min(end, max(tried, now))
        inside = [start, *(each for each in sorted(moments) if start < each < until), until]
        plain = max(b - a for a, b in pairwise(inside))
        # Within a cell of a tenth of a second nothing is told apart.
        assert acks.longest_within(start, end) == pytest.approx(plain, abs=0.11), (start, end)


def test_an_end_without_acknowledgements_is_a_gap_while_somebody_tried() -> None:
    acks = Acknowledgements()
    acks.add(1.0)
    acks.tried(20.0, 30.0)
    assert list(acks.gaps(1.0)) == [Gap(1.0, 30.0, is_open=True)]


def test_a_write_that_was_under_way_when_all_had_to_stop_is_no_gap() -> None:
    """Its end is the moment at which somebody gathered what was left open."""
    acks = Acknowledgements()
    acks.add(0.6)
    acks.tried(0.9, 9.2)
    assert list(acks.gaps(1.0)) == []
    assert acks.longest_within(0.0, 60.0) == pytest.approx(0.6)


def test_axes_hold_all_that_is_drawn_on_them() -> None:
    for end in (0.3, 7.0, 60.0, 3_600.0, 86_400.0, 40 * 86_400.0):
        ticks = TimeAxis(end).ticks()
        assert 2 <= len(ticks) <= 11
        assert ticks[-1][0] <= 1_000.0
    for most in (0.0, 0.04, 3.0, 99.9, 12_345.0, 1e9):
        axis = ValueAxis.up_to(most)
        assert axis.top >= most and 2 <= len(axis.ticks()) <= 6
    assert [label for _, label in LogAxis.around(2.0, 4_000.0).ticks()] == [
        "1 ms",
        "10 ms",
        "100 ms",
        "1 s",
        "10 s",
    ]


def test_leaders_are_stretches_between_changes_and_nothing_is_said_of_silence() -> None:
    leaders = Leaders()
    for at, leader in ((0, 1), (1, 1), (2, -1), (8, 2), (40, 2)):
        sample = {"leaders": {"t-0": leader}, "isr": {"t-0": [1, 2]}, "controller": 1}
        leaders.add(float(at), sample)
    leaders.end(50.0)
    found = [(each.from_s, each.to_s, each.leader) for each in leaders.of["t-0"]]
    assert found == [(0.0, 2.0, "1"), (2.0, 8.0, "nobody"), (8.0, 8.0, "2"), (40.0, 41.0, "2")]
    assert leaders.elections == {"t-0": 1}


def test_a_question_that_nobody_answered_ends_a_stretch() -> None:
    leaders = Leaders()
    answer = {"leaders": {"t-0": 1}, "controller": 2}
    for at, sample in ((0, answer), (1, answer), (2, {"acked": 5}), (3, answer), (4, answer)):
        leaders.add(float(at), sample)
    for stretches in (leaders.of["t-0"], leaders.controllers):
        assert [(each.from_s, each.to_s) for each in stretches] == [(0.0, 1.0), (3.0, 4.0)]
