"""Regular expressions of subscriptions: RE2/J's language, in bounded time.

`re2j_1_8.json` is what RE2/J 1.8 (which Kafka 4.3 uses) makes of each expression: its complaint, or which of the
names it matches, a digit a name.
"""

import json
import re
import time
from pathlib import Path

import pytest
from fencepost.txn.runtime.regex import (
    PLACES_MAX,
    TOO_LARGE,
    Regex,
    RegexRefused,
    refusal_of,
)
from fencepost.txn.runtime.regex_syntax import DEPTH_MAX, TOO_DEEP
from hypothesis import given
from hypothesis import strategies as st

VECTORS = json.loads((Path(__file__).parent / "re2j_1_8.json").read_text())
NAMES = VECTORS["names"]


def test_expressions_mean_what_they_mean_to_kafka() -> None:
    wrong = []
    for text, expected in VECTORS["expressions"]:
        try:
            regex = Regex(text)
            found = "".join("01"[regex.matches(name)] for name in NAMES)
        except RegexRefused as refused:
            found = f"! {refused.args[0]}"
        if found != expected:
            wrong.append((text, expected, found))
    assert wrong == []


def test_an_expression_that_blows_up_backtracking_is_matched_at_once() -> None:
    started = time.perf_counter()
    for text in ("(a+)+b", "(a|aa)+$", "(.*)*x", "(a?){60}a{60}", "((a*)*)*b"):
        assert Regex(text).matches("a" * 249) == (text == "(a|aa)+$")
    assert time.perf_counter() - started < 2


def test_matching_again_costs_no_more_than_walking_what_is_known() -> None:
    regex = Regex("orders-(eu|us)-[0-9]+")
    assert regex.matches("orders-eu-12")
    work = regex.work
    assert regex.matches("orders-eu-21") and regex.matches("orders-eu-12")
    assert regex.work - work <= 10, "only the end is looked at anew"


def test_an_expression_over_the_limit_is_refused_by_name() -> None:
    many = "|".join(f"[a-z]{{{249}}}" for _ in range(PLACES_MAX // 249 + 1))
    assert refusal_of(many) == TOO_LARGE
    assert refusal_of("(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1)) == TOO_DEEP
    assert refusal_of("(" * 50 + "a" + ")" * 50) is None


def test_a_thousand_repetitions_of_what_can_be_empty_match_a_short_name() -> None:
    """RE2 allows a thousand; a topic's name is no longer than 249, so fewer copies say the same."""
    assert Regex("(a?){1000}").matches("aaa")
    assert not Regex("a{1000}").matches("a" * 249)
    assert Regex("(?:a|b){0,1000}").matches("ab" * 100)


# Of the parts below Python's `re` and RE2 think the same.
atoms = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", "-", r"\.", "(?:ab|a)", "(b|)"]
)
parts = st.builds(
    lambda atom, times: atom + times, atoms, st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}"])
)
sequences = st.lists(parts, max_size=5).map("".join)
expressions = st.lists(sequences, min_size=1, max_size=3).map("|".join)


@given(expressions, st.text("ab.-1", max_size=8))
def test_python_s_own_expressions_agree_where_both_speak_the_same_language(
    text: str, name: str
) -> None:
    assert Regex(text).matches(name) == (re.fullmatch(text, name) is not None)


@given(st.text("ab()[]{}|*+?.^$\\-,:PQEdpx<>1é", max_size=12), st.text("ab-1.", max_size=6))
def test_any_text_is_an_expression_or_is_refused_with_a_reason(text: str, name: str) -> None:
    why = refusal_of(text)
    if why is None:
        Regex(text).matches(name)
    else:
        assert why


@pytest.mark.parametrize(
    ("text", "name"),
    [(r"orders\b.*", "orders-eu"), ("(?i)ORDERS", "orders"), (r"\Qa.b\E", "a.b"), (r"\pL+", "ab")],
)
def test_the_language_is_re2_s_not_python_s(text: str, name: str) -> None:
    assert Regex(text).matches(name)
