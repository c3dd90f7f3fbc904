"""What nodes have of settings that were changed under them."""

from fencepost.chaos.checkers.settings import Asked, check

SEGMENT = ("topic t", "segment.bytes")


def asked(*changes):
    return [Asked(*SEGMENT, value, kind) for value, kind in changes]


def rules(changes, *has):
    found = {f"node-{place}": {SEGMENT: value} for place, value in enumerate(has, 1)}
    return [each.rule for each in check(asked(*changes), found)]


def test_a_node_that_has_another_value_than_was_acknowledged_is_seen() -> None:
    assert rules([("1", "ok"), ("2", "ok")], "2", "2") == []
    assert rules([("1", "ok"), ("2", "ok")], "2", "1") == ["setting-lost"]
    assert rules([("1", "ok")], None) == ["setting-lost"]


def test_what_was_taken_back_is_at_its_default() -> None:
    assert rules([("1", "ok"), (None, "ok")], None) == []
    assert rules([("1", "ok"), (None, "ok")], "1") == ["setting-lost"]


def test_a_change_without_an_answer_may_come_any_time_and_one_that_was_refused_never() -> None:
    assert rules([("1", "info"), ("2", "ok")], "1", "2") == []
    assert rules([("1", "fail"), ("2", "ok")], "1") == ["setting-lost"]
    assert rules([("1", "info")], None, "1") == []


def test_of_a_setting_that_a_node_was_not_asked_about_nothing_is_said() -> None:
    assert check(asked(("1", "ok")), {"node-1": {}}) == []
