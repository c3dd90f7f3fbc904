"""Positions as text: what they take in, and what they have."""

import pytest
from fencepost.clients.binlog.gtids import (
    MARIADB,
    MYSQL,
    MysqlPosition,
    WrongPosition,
    position_of,
)

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4c9e3dfc-9d25-11e9-8d2e-0242ac1cfd7e"


def test_mariadb_has_the_last_gtid_of_each_domain() -> None:
    position = position_of(MARIADB, "0-1-270,5-2-13")
    position.add("0-3-271")  # another server writes now
    position.add("1-1-1")
    assert str(position) == "0-3-271,1-1-1,5-2-13"


def test_a_position_has_what_lies_before_it_and_nothing_of_another_domain() -> None:
    position = position_of(MARIADB, "0-1-270")
    assert position.has("0-1-270") and position.has("0-1-5") and position.has("")
    assert not position.has("0-1-271") and not position.has("0-1-5,1-1-1")


def test_a_mysql_position_joins_what_is_side_by_side() -> None:
    position = MysqlPosition(f"{SERVER}:1-23:25")
    position.add(f"{SERVER}:24")
    position.add(f"{SERVER.upper()}:27")
    position.add(f"{OTHER}:9")
    assert str(position) == f"{SERVER}:1-25:27,{OTHER}:9"


def test_a_mysql_position_with_a_hole_has_not_what_is_in_it() -> None:
    position = position_of(MYSQL, f"{SERVER}:1-5:7-9")
    assert position.has(f"{SERVER}:2-4:7") and not position.has(f"{SERVER}:5-7")
    assert not position.has(f"{OTHER}:1")


@pytest.mark.parametrize(
    ("flavor", "text"), [(MARIADB, f"{SERVER}:1-3"), (MYSQL, "0-1-3"), (MARIADB, "0-1")]
)
def test_a_position_of_another_kind_is_refused_by_name(flavor: str, text: str) -> None:
    with pytest.raises(WrongPosition, match="look like"):
        position_of(flavor, text)
