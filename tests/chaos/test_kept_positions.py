"""What is committed in a topic that lives is told of it: of a group, and of a transaction whose records are there."""

from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.kept_positions import KeptPositions
from fencepost.chaos.checkers.life_positions import Placed, ToldOf
from fencepost.chaos.checkers.lives import Change
from fencepost.chaos.checkers.txn_history import NO_NUMBER, Polled, Sent, Txn

ME = "t@new-0"


def put(number, at=(1.0, 2.0), *, topic_id="new", once=True, txn=False, group="g") -> Placed:
    return Placed(group, "t", topic_id, number, *at, is_once=once, in_transaction=txn)


def told(number, at=(5.0, 5.1), *, topic_id="new", who="r", group="g") -> ToldOf:
    return ToldOf(who, group, "t", topic_id, number, *at)


def txn(number, kind="ok", ended_s=3.0, *sends) -> Txn:
    return Txn("txn", kind, "a", number, [Sent(*each) for each in sends], ended_s=ended_s)


def read(*polls, process=FINAL) -> Txn:
    return Txn("read", "ok", process, polls=[Polled(*each) for each in polls])


def deleted(asked_s, kind="ok", topic_id="new") -> Change:
    return Change("delete", kind, "t", topic_id, asked_s)


def rules(placed, seen, *history, changes=()) -> list[str]:
    return [each.rule for each in KeptPositions(placed, seen, changes, list(history)).check()]


def test_a_position_that_was_acknowledged_and_is_not_told_is_lost() -> None:
    assert rules([put(7)], [told(7)]) == []
    assert rules([put(7)], [told(NO_NUMBER)]) == ["position-lost"]
    assert rules([put(7)], [told(8)]) == ["position-lost"], "nobody has committed such a one"
    assert rules([put(7)], [told(NO_NUMBER, who=FINAL)]) == ["position-lost"]
    assert rules([put(7, once=False)], [told(NO_NUMBER)]) == ["position-lost"]


def test_what_was_not_acknowledged_before_anybody_asked_is_owed_to_nobody() -> None:
    assert rules([put(7, (1.0, 5.0))], [told(NO_NUMBER)]) == []
    assert rules([Placed("g", "t", "new", 7, 1.0)], [told(NO_NUMBER)]) == []


def test_an_earlier_position_than_the_newest_is_none() -> None:
    both = [put(7), put(8, (3.0, 4.0))]
    assert rules(both, [told(8)]) == []
    assert rules(both, [told(7)]) == ["position-lost"]
    assert rules([*both, put(9, (4.9, 5.2))], [told(9)]) == [], "it came meanwhile"


def test_which_of_two_positions_counts_is_open_where_they_were_under_way_at_one_time() -> None:
    assert rules([put(7, (1.0, 3.5)), put(8, (3.0, 4.0))], [told(7)]) == []
    assert rules([put(7, once=False), put(8, (3.0, 4.0))], [told(7)]) == [], "it came once more"
    never = Placed("g", "t", "new", 7, 1.0, is_once=True)
    assert rules([never, put(8, (3.0, 4.0))], [told(7)]) == [], "nobody knows when it came"


def test_a_topic_whose_deletion_was_asked_for_owes_nothing() -> None:
    lost = [put(7)], [told(NO_NUMBER)]
    assert rules(*lost, changes=[deleted(4.0)]) == []
    assert rules(*lost, changes=[deleted(5.1, "info")]) == [], "just when the answer came"
    assert rules(*lost, changes=[deleted(6.0)]) == ["position-lost"], "it was still there"
    assert rules(*lost, changes=[deleted(4.0, "fail")]) == ["position-lost"]
    assert rules(*lost, changes=[deleted(4.0, topic_id="old")]) == ["position-lost"]


def test_a_position_is_owed_of_the_topic_that_was_meant_and_by_its_own_group() -> None:
    assert rules([put(7, topic_id="old")], [told(NO_NUMBER)]) == []
    assert rules([put(7, topic_id="None")], [told(NO_NUMBER)]) == [], "it knew of none"
    assert rules([put(7)], [told(NO_NUMBER, topic_id="old")]) == [], "that node is late"
    assert rules([put(7, group="another")], [told(NO_NUMBER)]) == []


def test_a_committed_transaction_without_its_position_in_a_new_topic_is_seen() -> None:
    placed = [put(7, txn=True)]
    whole = txn(7, "ok", 3.0, (ME, 70, 0)), read((ME, 0, 70, 7))
    assert rules(placed, [told(7)], *whole) == []
    assert rules(placed, [told(NO_NUMBER)], *whole) == ["position-lost"]
    assert rules(placed, [told(NO_NUMBER, (2.5, 5.0))], *whole) == [], "it had not ended"
    assert rules(placed, [told(NO_NUMBER)], txn(7, "fail", 3.0, (ME, 70))) == []


def test_a_transaction_of_unknown_outcome_owes_its_position_if_its_records_are_there() -> None:
    placed, open_one = [put(7, txn=True)], txn(7, "info", 3.0, (ME, 70))
    there, seen = read((ME, 0, 70, 7)), read((ME, 0, 70, 7), process="r")
    nothing = told(NO_NUMBER, who=FINAL)
    assert rules(placed, [nothing], open_one, there) == ["position-lost"]
    assert rules(placed, [nothing], open_one, seen) == ["position-lost"]
    assert rules(placed, [nothing], open_one, read()) == []
    assert rules(placed, [told(NO_NUMBER)], open_one, there) == [], "it may have ended later"


def test_a_position_of_a_transaction_that_failed_is_torn_off() -> None:
    placed = [put(7, txn=True)]
    assert rules(placed, [told(7)], txn(7, "fail")) == ["torn-offset"]
    late = [put(7, txn=True, once=False)]
    assert rules(late, [told(7)], txn(7, "fail")) == [], "it came once more, into the next one"


def test_a_position_whose_transaction_has_no_records_is_torn_off() -> None:
    placed = [put(7, txn=True)]
    open_one = txn(7, "info", 3.0, (ME, 70), (ME, 71))
    assert rules(placed, [told(7)], open_one, read()) == ["torn-offset"]
    assert rules(placed, [told(7)], open_one, read((ME, 0, 70, 7))) == ["torn-offset"]
    assert rules(placed, [told(7)], open_one, read((ME, 0, 70, 7), (ME, 1, 71, 7))) == []
    assert rules(placed, [told(7)], txn(7, "info"), read()) == [], "it has sent nothing"


def test_how_many_were_owed_is_known() -> None:
    checked = KeptPositions([put(7)], [told(7), told(7, topic_id="old")], [], [])
    assert len(checked.owed) == 1
