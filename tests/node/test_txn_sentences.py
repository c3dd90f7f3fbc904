"""What `fencepost txn` says of transactions, and which of them it calls hanging."""

from uuid import UUID

import pytest
from fencepost.cluster.base.ids import (
    NO_LEADER,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from fencepost.cluster.metadata.image import ClusterImage, PartitionState, TopicState
from fencepost.node.cli.txn_sentences import (
    Open,
    Stable,
    Transaction,
    hanging,
    show_duration,
    why_stands_still,
)

PLACE, ELSEWHERE = TopicPartition("orders", 3), TopicPartition("orders", 4)
NOW, MINUTE = 10_000_000, 60_000


def image(leader: int = 1) -> ClusterImage:
    found = ClusterImage()
    states = [
        PartitionState(
            index,
            BrokerId(leader),
            LeaderEpoch(1),
            PartitionEpoch(1),
            (BrokerId(1),),
            (BrokerId(1),),
        )
        for index in range(5)
    ]
    found.topics["orders"] = TopicState("orders", UUID(int=1), states)
    return found


def known(**changes: object) -> Transaction:
    fields: dict[str, object] = {
        "transactional_id": "pay",
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 2,
        "timeout_ms": MINUTE,
        "started_ms": NOW - 20_000,
        "partitions": (PLACE,),
        "coordinator": 2,
        **changes,
    }
    return Transaction(**fields)  # type: ignore[arg-type]


def opened(**changes: object) -> Open:
    fields: dict[str, object] = {
        "place": PLACE,
        "producer_id": 7,
        "producer_epoch": 2,
        "coordinator_epoch": -1,
        "first_offset": 90,
        "last_write_ms": NOW - 30 * MINUTE,
        "since_ms": NOW - 20_000,
        **changes,
    }
    return Open(**fields)  # type: ignore[arg-type]


def said(
    *coordinated: Transaction,
    opens: tuple[Open, ...] = (opened(),),
    behind: int = 10,
    by_all: bool = True,
) -> str:
    stable = Stable(last_stable_offset=90, high_watermark=90 + behind)
    by_producer = {each.producer_id: each for each in coordinated}
    return why_stands_still(image(), PLACE, stable, opens, by_producer, NOW, is_known_by_all=by_all)


def test_what_a_silent_coordinator_may_know_is_not_told_to_hang() -> None:
    """The command that ends what hangs would stand there for whoever is in a hurry."""
    told = said(by_all=False)
    assert "Not every coordinator answered" in told
    assert "abort" not in told and "no coordinator knows" not in told
    assert said(known(), by_all=False) == said(known())
    elsewhere = known(partitions=(ELSEWHERE,))  # its own coordinator answered
    assert said(elsewhere, by_all=False) == said(elsewhere) and "abort" in said(elsewhere)


def test_an_open_transaction_is_named_with_the_time_that_its_producer_has_left() -> None:
    assert said(known()) == (
        "Its last stable offset stands at 90 for 20.0 s, 10 behind the high watermark: the transaction of pay, which began at 90, is "
        "open; its producer has 40.0 s left to end it, then it is aborted."
    )


def test_a_decided_transaction_waits_for_its_marker_from_its_coordinator() -> None:
    sentence = said(known(state="PrepareCommit"))
    assert "is decided (commit); the marker is on its way from node 2." in sentence


def test_a_prepared_transaction_has_no_timeout_that_anybody_could_wait_for() -> None:
    assert "waits for its owner to commit or abort it" in said(known(timeout_ms=2**31 - 1))


def test_the_first_of_several_open_transactions_is_what_readers_wait_for() -> None:
    later = opened(producer_id=8, first_offset=95)
    assert "the transaction of pay" in said(known(), opens=(later, opened()))


@pytest.mark.parametrize("coordinated", [(), (known(partitions=(ELSEWHERE,)),)])
def test_a_transaction_that_no_coordinator_will_end_comes_with_the_command_that_ends_it(
    coordinated: tuple[Transaction, ...],
) -> None:
    sentence = said(*coordinated)
    assert "that no coordinator knows" in sentence
    assert "`fencepost txn abort --topic orders --partition 3 --start-offset 90`" in sentence


def test_what_nobody_holds_back_does_not_stand_still() -> None:
    assert said(opens=(), behind=0) == "It does not stand still: no transaction is open there."


def test_without_a_leader_no_marker_can_be_written() -> None:
    nowhere = why_stands_still(image(NO_LEADER), PLACE, None, [], {}, NOW)
    assert nowhere.startswith("It has no leader, so no marker can be written. Only node 1 has")


def test_only_old_transactions_that_no_coordinator_counts_among_its_own_hang() -> None:
    """Kafka's TransactionsCommand: a young one may have begun after the coordinators were asked."""
    stray = opened(producer_id=9)
    elsewhere = opened(place=ELSEWHERE, producer_id=8)
    young = opened(producer_id=10, last_write_ms=NOW - MINUTE)
    by_producer = {7: known(), 8: known(producer_id=8)}
    found = [opened(), stray, elsewhere, young]
    assert hanging(found, by_producer, longer_than_ms=15 * MINUTE, now_ms=NOW) == [stray, elsewhere]


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0, "0.0 s"), (59_999, "59.9 s"), (61_000, "1 min 1 s"), (7_380_000, "2 h 3 min")],
)
def test_durations_are_shown_as_people_say_them(milliseconds: int, shown: str) -> None:
    assert show_duration(milliseconds) == shown
