"""Expressions are looked up in small pieces, and a group moves on when they are known."""

from dataclasses import replace

from consumer_world import GROUP, Coordinator, request
from fencepost.txn.groups.consumer_scan import WORK_MAX, begin, go_on
from fencepost.txn.runtime.decision import SetTimer
from fencepost.txn.runtime.regex import NAMES_A_TURN, PLACES_MAX, WORK_A_TURN, Regex


def _run(scan):
    turns = 0
    while not scan.is_over:
        scan = go_on(scan)
        turns += 1
    return scan, turns


def test_a_turn_looks_at_a_bounded_number_of_names() -> None:
    names = [f"topic-{i}" for i in range(3 * NAMES_A_TURN)]
    scan, turns = _run(begin(["topic-1.*", "x"], names, 7, 1))
    assert turns == 3
    assert len(scan.found[0]) == 1 + 10 + 100 + 1000
    assert scan.found[1] == ()


def _work(scan) -> int:
    return sum(regex.work for regex in scan.compiled if regex is not None)


def test_an_expensive_expression_is_looked_up_in_small_pieces() -> None:
    """`(.*a.{60}){3}`: a state for every subset of places that the text can be in."""
    names = [("ab" * 60 + str(i)) for i in range(200)]
    scan = go_on(begin(["(.*a.{60}){3}|(.*b.{50}){4}"], names, 7, 1))
    most = _work(scan)
    while not scan.is_over:
        before = _work(scan)
        scan = go_on(scan)
        most = max(most, _work(scan) - before)
    assert most <= WORK_A_TURN + 2 * PLACES_MAX, "not even one name is looked at to its end"


def test_one_long_name_takes_several_turns() -> None:
    """A state is new for each of its 249 characters, and each looks at all of the 962 places."""
    names = ["b" * 248 + end for end in "zyz"]
    scan, turns = go_on(begin(["(.?.?){240}z", "b+[y-z]"], names, 7, 1)), 1
    assert (scan.at, scan.regex_at, scan.pause is None) == (0, 0, False)
    while not scan.is_over:
        before = _work(scan)
        scan = go_on(scan)
        assert _work(scan) - before <= WORK_A_TURN + 2 * PLACES_MAX
        turns += 1
    assert turns > 5
    assert scan.found == ((names[0], names[2]), tuple(names))


def test_expressions_are_compiled_in_small_pieces() -> None:
    """A group may have as many as it has members."""
    texts = [f"t{i}-(?:a|b){{300}}" for i in range(50)]
    scan, turns = begin(texts, ["t7-" + "ab" * 125], 7, 1), 0
    while len(scan.compiled) < len(texts):
        before = len(scan.compiled)
        scan = go_on(scan)
        assert 1 <= len(scan.compiled) - before <= 10
        turns += 1
    assert turns >= 5
    scan, _ = _run(scan)
    assert [bool(found) for found in scan.found] == [i == 7 for i in range(50)]


def test_many_expressions_make_a_turn_s_names_fewer() -> None:
    """What is known already costs little, and a hundred times that is a turn's work."""
    names = [f"topic-{i:06}z" for i in range(NAMES_A_TURN)]
    _, turns = _run(begin([f"topic-[0-9]+|{i}" for i in range(100)], names, 7, 1))
    assert turns >= 100 * NAMES_A_TURN // WORK_A_TURN


def test_an_expression_that_costs_too_much_is_ignored() -> None:
    dear = Regex("a")
    dear.work = WORK_MAX
    scan = replace(begin(["a", "b"], ["a", "b"], 7, 1), compiled=(dear, Regex("b")))
    scan, _ = _run(scan)
    assert scan.found == ((), ("b",))


def test_an_expression_that_can_t_be_read_means_nothing() -> None:
    """Kafka's limits are wider than ours, and its log is read here too."""
    scan, _ = _run(begin(["(", "a"], ["a", "b"], 7, 1))
    assert scan.found == ((), ("a",))


def _joined() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics_are(orders=2, refunds=1)
    coordinator.topics.create("orders-eu", 1)
    return coordinator


def test_a_member_is_answered_before_its_expression_is_looked_up() -> None:
    coordinator = _joined()
    reply = coordinator.hear(request("m", names=[], subscribed_topic_regex="orders.*"))
    assert (reply["member_epoch"], reply["assignment"]) == (1, {"topic_partitions": []})
    reply = coordinator.hear(request("m", 1))
    assert reply["member_epoch"] == 2
    assert [len(row["partitions"]) for row in reply["assignment"]["topic_partitions"]] == [2, 1]


def test_a_new_topic_is_found_when_the_last_lookup_is_ten_seconds_old() -> None:
    coordinator = _joined()
    coordinator.hear(request("m", names=[], subscribed_topic_regex="orders.*"))
    coordinator.hear(request("m", 1))
    coordinator.change(coordinator.topics.create("orders-us", 1))
    coordinator.hear(request("m", 2))
    assert "orders-us" not in coordinator.group.resolved["orders.*"].topics
    coordinator.sleep(10_001)
    coordinator.hear(request("m", 2))
    assert "orders-us" in coordinator.group.resolved["orders.*"].topics
    reply = coordinator.hear(request("m", 2))
    assert len(reply["assignment"]["topic_partitions"]) == 3


def test_expressions_are_looked_up_again_after_the_refresh_interval() -> None:
    coordinator = _joined()
    coordinator.hear(request("m", names=[], subscribed_topic_regex="orders.*"))
    first = coordinator.group.resolved["orders.*"].timestamp
    coordinator.sleep(44_000)
    coordinator.hear(request("m", 1))
    assert coordinator.group.resolved["orders.*"].timestamp == first
    for _ in range(14):
        coordinator.sleep(44_000)
        coordinator.hear(request("m", 2))
    assert coordinator.group.resolved["orders.*"].timestamp > first


def test_a_clock_that_is_set_back_does_not_hold_up_a_lookup() -> None:
    coordinator = _joined()
    coordinator.hear(request("m", names=[], subscribed_topic_regex="orders.*"))
    coordinator.hear(request("m", 1))
    coordinator.now_ms -= 600_000
    coordinator.change(coordinator.topics.create("orders-us", 1))
    coordinator.hear(request("m", 2))
    assert "orders-us" in coordinator.group.resolved["orders.*"].topics
    coordinator.change(coordinator.topics.create("orders-uk", 1))
    coordinator.hear(request("m", 2))
    assert "orders-uk" not in coordinator.group.resolved["orders.*"].topics, "the pause is back"


def test_a_group_that_is_gone_when_its_scan_ends_is_left_alone() -> None:
    coordinator = _joined()
    decision = coordinator.machine.decide(
        __import__("consumer_world").command(
            request("m", names=[], subscribed_topic_regex="orders.*")
        ),
        coordinator.now_ms,
    )
    assert SetTimer(("consumer-regex", GROUP), 0) in decision.effects
    assert coordinator.machine.tick(("consumer-regex", GROUP), 1).records == ()
