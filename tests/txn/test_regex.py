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
    PARTS_MAX,
    PLACES_MAX,
    TOO_LARGE,
    Pause,
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
    started = time.process_time()
    for text in ("(a+)+b", "(a|aa)+$", "(.*)*x", "(a?){60}a{60}", "((a*)*)*b"):
        assert Regex(text).matches("a" * 249) == (text == "(a|aa)+$")
    assert time.process_time() - started < 2


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


@pytest.mark.parametrize(
    "empty", ["()", "a{0}", "(?:a{0}){250}", "()()", "(){250}", "(?:){2}", "(){2}(a{0}){3}"]
)
def test_copies_of_copies_of_nothing_cost_no_more_than_one(empty: str) -> None:
    """`()` takes no place, so the limit of places never stopped `((((){250}){250}){250}){250}`."""
    text = f"{empty}{{1}}" if empty.endswith(")") else f"(?:{empty}){{1}}"
    for _ in range(12):
        text = f"(?:{text}){{250}}"
    regex = Regex(text)
    assert regex.parts < 100
    assert regex.matches("") and not regex.matches("a")


@pytest.mark.parametrize(
    "text",
    [
        "(?:" + "()" * 1_500 + "){0,1000}",
        "(?:(?:" + "()" * 1_500 + "){0,40}){0,49}",
        "(?:a" + "()" * 1_500 + "){250}",
        "(?:(?:|){250}){250}",
    ],
)
def test_nothing_between_what_is_copied_is_counted_too(text: str) -> None:
    """Each copy takes a place or two, and 1,500 empty groups are gone through for it."""
    assert refusal_of(text) == TOO_LARGE


def test_an_honest_expression_is_far_from_the_limit_of_parts() -> None:
    texts = ["(?:ab|cd|ef){0,200}", "(?:(?:eu|us)-[a-z]+[.]v[0-9]{1,3}){20}", "a" * PLACES_MAX]
    for text in texts:
        assert Regex(text[:-1] if text[0] == "a" else text).parts < PARTS_MAX // 2


def test_a_match_that_stops_goes_on_where_it_was() -> None:
    name = "b" * 248 + "z"
    for text, expected in (("(.?.?){240}z", True), ("(.?.?){240}y", False)):
        regex, pause, stops, most = Regex(text), None, 0, 0
        while True:
            before = regex.work
            answer = regex.match(name, pause, 1_000)
            most = max(most, regex.work - before)
            if not isinstance(answer, Pause):
                break
            pause, stops = answer, stops + 1
        assert (answer, stops > 50) == (expected, True)
        assert most <= 1_000 + 2 * PLACES_MAX, "a step may go over it, and the end is one more"


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
        regex = Regex(text)
        expected = regex.matches(name)
        answer = regex.match(name, None, 1)
        while isinstance(answer, Pause):
            answer = regex.match(name, answer, 1)
        assert answer == expected
    else:
        assert why


@pytest.mark.parametrize(
    ("text", "name"),
    [(r"orders\b.*", "orders-eu"), ("(?i)ORDERS", "orders"), (r"\Qa.b\E", "a.b"), (r"\pL+", "ab")],
)
def test_the_language_is_re2_s_not_python_s(text: str, name: str) -> None:
    assert Regex(text).matches(name)
