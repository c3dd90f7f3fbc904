"""From which kept positions a source goes on, and from which it would promise rows that nobody has read."""

import json

import pytest
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.database import CannotFollow
from fencepost.clients.binlog.gtids import WrongPosition, position_of
from fencepost.clients.binlog.kept_place import as_kept, position_in

FLAVOR = "mariadb"
ORDERS, ALL = ("shop.orders",), ("shop.*",)


def lives(*lives: tuple[str, tuple[str, ...]], kept: str = "") -> str:
    """Each goes on from what the one before kept; what the last one keeps."""
    for number, (snapshot, tables) in enumerate(lives):
        settings = Settings(source="s", snapshot=snapshot, tables=tables)
        if kept:
            assert str(position_in(kept, FLAVOR, settings)) == json.loads(kept)["gtid"]
        kept = as_kept(position_of(FLAVOR, f"0-1-{number + 1}"), FLAVOR, settings)
    return kept


def test_what_was_read_is_gone_on_with() -> None:
    lives(("initial", ALL), ("initial", ALL), ("initial", ORDERS), ("initial", ORDERS))
    lives(("never", ORDERS), ("never", ALL), ("never", ORDERS))
    lives(("initial", ORDERS), ("never", ALL))


@pytest.mark.parametrize(
    ("before", "tables", "said"),
    [
        ([("initial", ORDERS)], ALL, "shop.* may match other tables"),
        ([("initial", ALL), ("initial", ORDERS)], ALL, "shop.* may match other tables"),
        # Whoever is refused so may say --snapshot never, and leave it out again one day.
        ([("initial", ORDERS), ("never", ALL)], ALL, "rows of shop.* may be in no topic"),
        ([("never", ORDERS)], ORDERS, "rows of shop.orders may be in no topic"),
        # A table that was renamed to this name meanwhile has rows that nobody was told.
        ([("initial", ORDERS), ("never", ORDERS)], ORDERS, "rows of shop.orders may be in no topic"),
    ],
)  # fmt: skip
def test_rows_that_nobody_has_read_are_not_promised(
    before: list[tuple[str, tuple[str, ...]]], tables: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CannotFollow) as refused:
        position_in(lives(*before), FLAVOR, Settings(source="s", tables=tables))
    assert said in str(refused.value) and "--resnapshot" in str(refused.value)


@pytest.mark.parametrize("unsaid", [("read",), ("read", "tables")])
def test_what_an_older_build_did_not_say_is_taken_for_what_it_followed(
    unsaid: tuple[str, ...],
) -> None:
    told = json.loads(lives(("initial", ORDERS)))
    kept = json.dumps({name: told[name] for name in told if name not in unsaid})
    lives(("initial", ORDERS), kept=kept)
    if "tables" not in unsaid:
        with pytest.raises(CannotFollow, match="may match other tables"):
            position_in(kept, FLAVOR, Settings(source="s", tables=ALL))


@pytest.mark.parametrize("kept", ["", "[]", "{}", '{"flavor": "mariadb", "gtid": "0-1-1", "tables": 3}'])  # fmt: skip
def test_what_is_no_position_is_refused_by_its_text(kept: str) -> None:
    with pytest.raises(WrongPosition, match="--position-topic"):
        position_in(kept, FLAVOR, Settings(source="s"))
