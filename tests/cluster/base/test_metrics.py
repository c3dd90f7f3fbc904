"""Counting: buckets against a plain list of values, and what a declaration refuses."""

import pytest
from fencepost.cluster.base.metrics import Histogram, counter
from hypothesis import given
from hypothesis import strategies as st

BOUNDS = (0.001, 0.01, 1.0)


@given(st.lists(st.floats(min_value=0, max_value=100) | st.sampled_from(BOUNDS)))
def test_a_histogram_counts_as_a_plain_list_of_values_would(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    below = 0
    for bound, count in zip((*BOUNDS, float("inf")), histogram.counts, strict=True):
        below += count
        assert below == sum(value <= bound for value in values)
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))


def test_a_copy_does_not_change_with_what_it_was_made_of() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(0.5)
    copy = histogram.copy()
    histogram.observe(0.5)
    assert (copy.count, copy.total) == (1, 0.5)
    assert (histogram.count, histogram.total) == (2, 1.0)


def test_a_counter_without_total_in_its_name_is_refused() -> None:
    with pytest.raises(AssertionError, match="fencepost_things"):
        counter("fencepost_things", "Things.")
