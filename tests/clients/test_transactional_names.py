"""What a group may be called, against what the coordinator makes of such a name."""

from itertools import product

import pytest
from fencepost.clients.transactional import (
    AdminApi,
    Checker,
    GroupMember,
    HalfMessageProducer,
    TransactionGroup,
    Verdict,
)
from fencepost.clients.transactional.names import SEPARATOR, group_name, member_name
from fencepost.txn.transactions.ids import transactional_partition_key

NOWHERE = "127.0.0.1:1"
DOOR = AdminApi(f"http://{NOWHERE}")
NAMES = ["".join(each) for size in range(6) for each in product("a:", repeat=size)]
MAKES = {
    "group": lambda name: TransactionGroup(name, DOOR),
    "member": lambda name: GroupMember(NOWHERE, name, "m"),
    "half messages": lambda name: HalfMessageProducer(NOWHERE, name, DOOR),
    "checker": lambda name: Checker(name, "m", DOOR, lambda *_: Verdict.UNKNOWN),
}


def is_taken(name: str) -> bool:
    try:
        group_name(name)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_refused_if_its_members_would_be_filed_elsewhere(name) -> None:
    filed = transactional_partition_key(f"{name}{SEPARATOR}m")
    assert is_taken(name) == (filed == name)


@pytest.mark.parametrize("name", [*NAMES, "m"])
def test_a_member_of_any_name_but_an_empty_one_is_filed_under_its_group(name) -> None:
    if name:
        assert transactional_partition_key(f"g{SEPARATOR}{member_name(name)}") == "g"
        return
    assert transactional_partition_key(f"g{SEPARATOR}{name}") != "g"
    with pytest.raises(ValueError, match="name='' is no name for a member: it must not be empty"):
        GroupMember(NOWHERE, "g", name)


@pytest.mark.parametrize("name", ["", "a::b", "a:"])
@pytest.mark.parametrize("what", MAKES)
def test_nobody_begins_in_a_group_of_no_name(what, name) -> None:
    with pytest.raises(ValueError, match=f"group={name!r} is no name for a group: it must not"):
        MAKES[what](name)
