"""Which tables are followed, and when others are taken in."""

import random
from itertools import product

import pytest
from fencepost.clients.binlog.patterns import selects, widened

NAMES = ["".join(each) for size in range(4) for each in product("ab-", repeat=size)]


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [
        (["shop.*"], ["shop.*"], []),
        (["shop.*"], ["shop.orders", "shop.o*", "shop.?"], []),
        (["*.*"], ["shop.[ab]*"], []),
        (["shop.orders"], ["shop.orders", "shop.items"], ["shop.items"]),
        (["shop.orders"], ["shop.*"], ["shop.*"]),
        (["shop.?"], ["shop.a", "shop.*"], ["shop.*"]),
        (["shop.[ab]"], ["shop.a", "shop.c"], ["shop.c"]),
        (["shop.*", "stock.*"], ["stock.a*", "s*.*"], ["s*.*"]),
    ],
)
def test_what_was_not_followed_before_is_named(before, now, more) -> None:
    assert widened(before, now) == more


def test_patterns_that_match_more_are_never_taken_for_a_part() -> None:
    rng = random.Random(7)
    patterns = ["".join(rng.choices("ab-*?[]", k=rng.randint(1, 4))) for _ in range(400)]
    covered = 0
    for _ in range(4_000):
        before, now = f"s.{rng.choice(patterns)}", f"s.{rng.choice(patterns)}"
        if not widened([before], [now]):
            covered += 1
            matched = [each for each in NAMES if selects([now], "s", each)]
            assert all(selects([before], "s", each) for each in matched), (before, now)
    assert covered > 100
