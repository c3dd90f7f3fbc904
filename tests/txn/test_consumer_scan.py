"""Expressions are looked up in small pieces, and a group moves on when they are known."""

from consumer_world import GROUP, Coordinator, request
from fencepost.txn.groups.consumer_scan import NAMES_A_TURN, WORK_A_TURN, WORK_MAX, begin, go_on
from fencepost.txn.runtime.decision import SetTimer


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


def test_an_expensive_expression_is_looked_up_in_small_pieces() -> None:
    """`(.*a.{60}){3}`: a state for every subset of places that the text can be in."""
    names = [("ab" * 60 + str(i)) for i in range(200)]
    scan = begin(["(.*a.{60}){3}|(.*b.{50}){4}"], names, 7, 1)
    most = 0
    while not scan.is_over:
        regex = scan.compiled[0]
        before = 0 if regex is None else regex.work
        scan = go_on(scan)
        most = max(most, 0 if regex is None else regex.work - before)
    one_name = 250 * 500
    assert most <= WORK_A_TURN + one_name


def test_an_expression_that_costs_too_much_is_ignored() -> None:
    scan = begin(["a", "b"], ["a", "b"], 7, 1)
    dear = scan.compiled[0]
    assert dear is not None
    dear.work = WORK_MAX
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
