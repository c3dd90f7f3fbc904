"""Topics that come and go under one name: whose a record is, and what is owed of it."""

from fencepost.chaos.checkers import lives, txn_verdict
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.lives import Change
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn

OLD, NEW, ANY = "t@old-0", "t@new-0", "t@?-0"
STAYS = "stays-0"
FOUND = {"t": "new"}


def txn(number, *sends, kind="ok"):
    return Txn("txn", kind, "a", number, [Sent(*each) for each in sends], ended_s=1.0)


def read(*polls, process=FINAL):
    return Txn(
        "read", "ok", process, polls=[Polled(*each) for each in polls], began_s=50.0, ended_s=50.0
    )


def rules(history, found=FOUND):
    owed = txn_verdict.judge(lives.owed(history, found), txn_verdict.OF_LIVES)
    return sorted(each.rule for each in [*lives.check(history, [], found), *owed.anomalies])


def made(topic_id, kind="ok"):
    return Change("create", kind, "t", topic_id)


def deleted(topic_id, kind="ok"):
    return Change("delete", kind, "t", topic_id)


def changes(found, *some):
    return [each.rule for each in lives.check([], some, {"t": found})]


def test_a_record_of_a_topic_that_was_deleted_is_not_in_its_successor() -> None:
    assert rules([txn(1, (OLD, 10, 0)), read((NEW, 0, 10, 1))]) == ["another-life"]
    assert rules([txn(1, (NEW, 10, 0)), read((OLD, 0, 10, 1), process="r")], {"t": None}) == [
        "another-life"
    ]


def test_of_a_topic_that_was_deleted_nothing_is_owed() -> None:
    both = txn(1, (OLD, 10, 0), (STAYS, 11, 0))
    assert rules([both, read((STAYS, 0, 11, 1))]) == []
    assert "torn" in rules([both, read()]), "the other topic stays"


def test_what_was_acknowledged_of_a_topic_that_lives_is_there() -> None:
    both = txn(1, (NEW, 10, 0), (STAYS, 11, 0))
    assert rules([both, read((NEW, 0, 10, 1), (STAYS, 0, 11, 1))]) == []
    assert "torn" in rules([both, read((STAYS, 0, 11, 1))])
    assert "G1a" in rules([txn(1, (NEW, 10, 0), kind="fail"), read((NEW, 0, 10, 1))])


def test_a_send_that_was_tried_at_two_topics_is_owed_where_it_was_taken() -> None:
    """The first did not answer, and was deleted meanwhile."""
    twice = txn(1, (OLD, 10), (NEW, 10, 0))
    assert rules([twice, read((NEW, 0, 10, 1))]) == []
    assert rules([twice, read((OLD, 0, 10, 1), process="r"), read((NEW, 0, 10, 1))]) == []
    assert "unseen" in rules([twice, read()])


def test_a_send_by_name_is_where_somebody_reads_it() -> None:
    by_name = txn(1, (ANY, 10), (STAYS, 11, 0))
    assert rules([by_name, read((NEW, 0, 10, 1), (STAYS, 0, 11, 1))]) == []
    assert rules([by_name, read((STAYS, 0, 11, 1))]) == [], "it may have been the one before"
    elsewhere = read(("t@new-1", 0, 10, 1), (STAYS, 0, 11, 1))
    assert rules([by_name, elsewhere]) == ["another-life"]


def test_a_send_by_name_is_owed_by_the_topic_that_was_there_before_it_and_is_for_ever() -> None:
    """Nobody has read it: it went as if nobody had ever sent it."""

    def admin(f, topic_id, ended_s, kind="ok"):
        return Txn(f, kind, "admin", named={"t": topic_id}, ended_s=ended_s)

    by_name = txn(1, (ANY, 10, 0), (STAYS, 11, 0))
    by_name.began_s = 0.5
    rest = [by_name, read((STAYS, 0, 11, 1))]
    assert "torn" in rules([admin("create", "new", 0.2), *rest])
    assert rules([admin("create", "new", 0.7), *rest]) == [], "it may have been the one before"
    assert rules([admin("create", "old", 0.2), *rest]) == []
    asked = admin("delete", "new", 3.0, "info")
    assert rules([admin("create", "new", 0.2), *rest, asked]) == [], "it may have been deleted"
    asked.type = "fail"
    assert "torn" in rules([admin("create", "new", 0.2), *rest, asked])
    whole = [by_name, read((NEW, 0, 10, 1), (STAYS, 0, 11, 1))]
    assert rules([admin("create", "new", 0.2), *whole]) == []


def test_a_topic_that_was_made_and_not_deleted_is_there() -> None:
    assert changes("a", made("a")) == []
    assert changes(None, made("a")) == ["topic-lost"]
    assert changes("b", made("a")) == ["topic-lost"], "another one of its name"
    assert changes(None, made("a"), deleted("a", "info")) == []
    assert changes(None, made("a"), deleted("a", "fail")) == ["topic-lost"]


def test_a_topic_that_was_deleted_is_not_there() -> None:
    assert changes("a", made("a"), deleted("a")) == ["topic-back"]
    assert changes("b", made("a"), deleted("a"), made("b")) == []
    assert changes("a", made("a"), deleted("a", "info")) == []
