"""Who is in a group, asked of a stand-in for the admin door: all of them, or an error."""

from typing import Any

import pytest
from admin_door import told
from fencepost.clients.transactional import (
    AdminApi,
    MembersLeftOut,
    MemberWrote,
    TransactionGroup,
)

LISTED = {
    "a": {"producer_id": 1, "producer_epoch": 0, "state": "Ongoing"},
    "b": {"producer_id": 2, "producer_epoch": 5, "state": "CompleteCommit"},
}
A, B = MemberWrote("a", 1, 0), MemberWrote("b", 2, 5)


def asked(what: str, **fields: Any) -> tuple[Any, list[str]]:
    paths: list[str] = []

    def answer(_method: str, path: str, _body: dict[str, Any]) -> tuple[int, Any]:
        paths.append(path)
        return 200, {"group": "job", "decisions": [], "members": LISTED, **fields}

    with told(answer) as door:
        return getattr(TransactionGroup("job", AdminApi(door)), what)(), paths


@pytest.mark.parametrize("fields", [{"members_left_out": 0}, {}], ids=["now", "an older node"])
def test_as_many_members_are_asked_for_as_one_end_takes_and_no_decisions(fields) -> None:
    found, paths = asked("members", **fields)
    assert found == {"a": A, "b": B}
    assert paths == ["/v1/transaction-groups/job?limit=0&members=10000"]
    assert asked("open_members", **fields)[0] == {"a": A}


def test_the_decisions_that_are_remembered_are_asked_for_without_members() -> None:
    identity = {"producer_id": 1, "producer_epoch": 0}
    decided = [
        {"group": "job", "number": number, "outcome": "commit", "members": {"a": identity}}
        for number in (7, 9)
    ]
    found, paths = asked("decisions", decisions=decided)
    assert [(each.number, each.outcome, each.members) for each in found] == [
        (7, "commit", (A,)),
        (9, "commit", (A,)),
    ]
    assert paths == ["/v1/transaction-groups/job?limit=1000&members=0"]


@pytest.mark.parametrize(
    ("what", "listed"), [("members", {"a": A, "b": B}), ("open_members", {"a": A})]
)
def test_members_that_are_left_out_are_not_passed_over(what, listed) -> None:
    """A driver that committed those that were listed would commit a part."""
    with pytest.raises(MembersLeftOut, match="job has 2345 members more than were listed") as cut:
        asked(what, members_left_out=2345)
    assert (cut.value.left_out, cut.value.listed) == (2345, listed)


@pytest.mark.parametrize("knows", [True, False], ids=["now", "an older node"])
def test_a_note_goes_with_an_end_to_nodes_that_keep_it(*, knows: bool) -> None:
    bodies: list[dict[str, Any]] = []

    def answer(_method: str, _path: str, body: dict[str, Any]) -> tuple[int, Any]:
        bodies.append(body)
        if "note" in body and not knows:
            said = "'note' is no field of this request: it may have group, number"
            return 400, {"error": "INVALID_REQUEST", "message": said}
        return 200, {"group": "job", "is_new": True, **body}

    with told(answer) as door:
        group = TransactionGroup("job", AdminApi(door))
        assert group.commit(7, [A], "of seven").note == ("of seven" if knows else "")
        assert group.commit(8, [A]).note == ""
    noted = [each.get("note") for each in bodies]
    assert noted == (["of seven", None] if knows else ["of seven", None, None])
