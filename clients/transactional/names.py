"""What a group may be called: the coordinator files a transactional id under what stands before its first `::`.

INVARIANT  what is written as GROUP::MEMBER is filed under GROUP, and nowhere else.
PREVENTS   a group `a:` whose members are filed under `a`: its own driver and its checkers never find them.
PROVED BY  tests/clients/test_transactional_names.py::test_a_name_is_refused_if_its_members_would_be_filed_elsewhere
"""

from typing import Final

SEPARATOR: Final = "::"


def group_name(name: str, said_as: str = "group") -> str:
    """The name, or ValueError; `said_as` is what whoever said it calls it."""
    if not name or SEPARATOR in name or name.endswith(":"):
        raise ValueError(
            f"{said_as}={name!r} is no name for a group: it must not be empty, must not have '::' in it and must not end "
            "in ':', because its members are filed as GROUP::MEMBER. Say another, such as orders-to-lake"
        )
    return name


def member_name(name: str, said_as: str = "name") -> str:
    """The name, or ValueError; `said_as` is what whoever said it calls it."""
    if not name:
        raise ValueError(
            f"{said_as}={name!r} is no name for a member: it must not be empty, because what is written as GROUP:: is filed "
            "as itself, where its group does not find it. Say one that is its own in the group, such as task-3"
        )
    return name
