"""Producers, partitions and a coordinator of transactions, by chance: what must hold stands in `chance_run.py`.

That the model sees what is wrong is tested with faults that are planted, one of them a bug that it has found
(`an_epoch_kept_by_an_older_client_is_given_on`). Many seeds: `python tests/txn/chance_run.py FIRST..LAST`.
"""

from collections import Counter
from collections.abc import Iterable

import pytest
from chance_client import Told
from chance_faults import FAULTS, Plant
from chance_run import problems_of, run

SEEDS = 600
PARTS = 6
WORDS = ("ABORTED AND SHOWN", "DOUBLED", "HANGING", "LOST", "TORN")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_told_is_in_the_logs_whole_and_once(part: int) -> None:
    told: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        try:
            told += run(seed)
        except AssertionError as error:
            error.add_note(f"python tests/txn/chance_run.py {seed} --tell")
            raise
    # Or it would hold of nothing: some thousand in all.
    assert min(told["committed"], told["aborted"], told["unknown"]) > 100, told


@pytest.mark.slow
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seed that is written down, or by another of those that the test above plays."""
    plant(monkeypatch)
    found = first_found([FAULTS[plant], *range(SEEDS)])
    assert found is not None, "see with --planted which of more seeds finds it"
    assert found.startswith(WORDS), found


def first_found(seeds: Iterable[int]) -> str | None:
    for seed in seeds:
        try:
            run(seed)
        except AssertionError as error:
            return str(error)
    return None


def test_a_seed_plays_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    run(3, speaks=True)
    first = capsys.readouterr().out
    run(3, speaks=True)
    assert capsys.readouterr().out == first != ""


@pytest.mark.parametrize(
    ("committed", "acknowledged", "shown", "problems"),
    [
        (True, "ab", {"a": True, "b": True}, []),
        (None, "ab", {"a": False, "b": False}, []),
        (False, "ab", {"a": False, "b": False}, []),
        (False, "", {"a": False}, []),
        (None, "ab", {"a": True}, ["LOST", "TORN"]),
        (True, "a", {"a": False}, ["LOST"]),
        (True, "ab", {"a": True, "b": False}, ["LOST", "TORN"]),
        (None, "ab", {"a": True, "b": False}, ["TORN"]),
        (False, "", {"a": False, "b": True}, ["ABORTED"]),
    ],
)
def test_what_was_told_is_held_against_what_is_shown(
    committed: bool | None, acknowledged: str, shown: dict[str, bool | None], problems: list[str]
) -> None:
    told = Told("pay", committed, ("a", "b"), tuple(acknowledged))
    assert [problem.split()[0] for problem in problems_of(told, shown)] == problems
