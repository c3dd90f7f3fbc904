"""ListTransactions by a pattern: in small pieces, whatever the pattern is."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest
from fencepost.txn.runtime.regex import NAMES_A_TURN, WORK_A_TURN, Regex
from fencepost.txn.transactions import requests
from fencepost.txn.transactions.requests import named_like


def listed(pattern: str, ids: list[str]) -> tuple[list[str], list[int]]:
    """What matches, and how much of the expression's work each turn of the loop did."""
    regex, turns = Regex(pattern), [0]

    async def sleep(_: float) -> None:
        turns.append(regex.work)
        await asyncio.sleep(0)

    rows = [{"transactional_id": each} for each in ids]
    found = asyncio.run(named_like(regex, rows, SimpleNamespace(sleep=sleep)))
    turns.append(regex.work)
    work = [after - before for before, after in pairwise(turns)]
    return [row["transactional_id"] for row in found], work


def test_a_slow_pattern_is_matched_in_small_pieces() -> None:
    ids = ["a" * length for length in range(200, 249)]
    found, turns = listed("(.?.?){240}", ids)
    assert found == ids
    assert sum(turns) > 3 * WORK_A_TURN
    assert max(turns) <= 2 * WORK_A_TURN


def test_many_ids_take_several_turns_though_each_is_matched_at_once() -> None:
    ids = [f"job-{number}" for number in range(3 * NAMES_A_TURN)]
    found, turns = listed("job-.*7", ids)
    assert found == [each for each in ids if each.endswith("7")]
    assert len(turns) >= 4


@pytest.mark.parametrize("pattern", [None, ""])
def test_without_a_pattern_everything_is_listed(pattern: str | None) -> None:
    assert requests.pattern_of(SimpleNamespace(transactional_id_pattern=pattern)) is None
    assert requests.pattern_of(SimpleNamespace()) is None
