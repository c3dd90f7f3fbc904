"""Chapters of `txn_answers.py`: ends that take a while or come by a timeout, and what a person sees and writes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.cluster.wire.api import ApiKey
from txn_talk import MISSING, TOPIC, UNSETTLED, Producer, Talk, could_begin

WIDE, WIDTH = "wide", 400


def about_the_middle_of_an_end(talk: Talk) -> None:
    """What comes between the decision, which is answered at once, and the last of its markers: many, so that they take a while."""
    talk.node.create_topic(WIDE, WIDTH)
    questions: tuple[tuple[str, Callable[[str, Producer], Any]], ...] = (
        ("add", talk.add),
        ("add in a batch", lambda label, who: talk.verify(label, who, 5, only=False)),
        ("add offsets", talk.add_offsets),
        ("verify", talk.verify),
        ("begin again", lambda label, who: talk.init(label, who, 4)),
        ("begin again with what is had", lambda label, who: talk.init(label, who, 4, **_had(who))),
        ("commit again", talk.end),
        ("abort what is committed", lambda label, who: talk.end(label, who, commit=False)),
        ("end as a new client", lambda label, who: talk.end(label, who, 5)),
        ("produce", talk.produce),
        ("produce as a new client", lambda label, who: talk.produce(label, who, 12)),
    )
    for name, question in questions:
        talk.in_time(partial(_in_the_middle, talk, f"middle: {name}", question))


def _had(who: Producer) -> dict[str, int]:
    return {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}


def _in_the_middle(talk: Talk, label: str, question: Callable[[str, Producer], Any]) -> bool:
    """Whether it was asked in time: the transaction has not ended after it either."""
    who = Producer(label)
    talk.until(lambda: could_begin(talk, who, 4))
    wide = [{"name": WIDE, "partitions": list(range(WIDTH))}]
    old = {f"v3_and_below_{field}": value for field, value in who.fields.items()}
    talk.node.ask(ApiKey.add_partitions_to_txn, 3, **old, v3_and_below_topics=wide)
    talk.node.ask(ApiKey.end_txn, 3, **who.fields, committed=True)
    question(label, who)
    was_in_time = talk.state(who.transactional_id) in UNSETTLED
    talk.settle(who.transactional_id)
    return was_in_time


def about_timeouts(talk: Talk) -> None:
    """A transaction that took too long was aborted meanwhile."""
    old = talk.begun("late: begin", "late", 4, transaction_timeout=100)
    talk.add("late: add", old)
    talk.produce("late: produce", old)
    new = talk.begun("late: begin as a new client", "late new", 5, transaction_timeout=100)
    talk.produce("late: produce as a new client", new, 12)
    for name in ("late", "late new"):
        talk.until(lambda name=name: talk.state(name) == "CompleteAbort")  # type: ignore[misc]
        talk.describe(f"late: describe {name}", name)
    talk.add("late: add too late", old)
    talk.produce("late: produce too late", old)
    for version in (0, 3, 4):
        talk.end(f"late: commit too late, v{version}", old, version)
        talk.end(f"late: abort too late, v{version}", old, version, commit=False)
    talk.produce("late: produce too late as a new client", new, 12)
    talk.commit_offset("late: commit an offset too late as a new client", new, 5)
    talk.end("late: commit too late as a new client", new, 5)
    talk.end("late: abort too late as a new client", new, 5, commit=False)
    for who, version in ((old, 4), (new, 5)):
        had = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
        talk.init(f"late: begin with what was had, v{version}", who, version, **had)


def about_lists(talk: Talk) -> None:
    who = talk.begun("lists: begin", "lists")
    talk.list("lists: this producer's", producer_id_filters=[who.producer_id])
    talk.list("lists: nobody's", producer_id_filters=[4711, -1])
    talk.list("lists: of a state that is none", state_filters=["Sleeping"])
    talk.list("lists: of a state in small letters", state_filters=["ongoing"])
    talk.list(
        "lists: of some states",
        state_filters=["Ongoing", "Sleeping", "Empty"],
        producer_id_filters=[who.producer_id],
    )
    talk.list(
        "lists: running for longer than none",
        duration_filter=-1,
        producer_id_filters=[who.producer_id],
    )
    talk.produce("lists: produce", who, 12)
    mine = {"producer_id_filters": [who.producer_id]}
    for duration in (-7, 0, 1_000_000, 2**63 - 1):
        talk.list(f"lists: running for longer than {duration}", duration_filter=duration, **mine)
    for version in (0, 1, 2):
        talk.list(f"lists: v{version}", version, state_filters=["Ongoing"], **mine)
    for pattern in ("lis.*", "list", "", "(", None, "x" * 1_000, "(a+)+$"):
        talk.list(f"lists: named {str(pattern)[:9]}", transactional_id_pattern=pattern, **mine)
    talk.end("lists: abort", who, 5, commit=False)
    talk.settle("lists")


def about_markers(talk: Talk) -> None:
    """What a person writes to end a transaction that hangs."""
    key = ApiKey.write_txn_markers
    who = talk.begun("markers: begin", "markers", 4)
    talk.add("markers: add", who)
    talk.produce("markers: produce", who)

    def write(label: str, version: int = 1, **more: object) -> None:
        marker = {
            "producer_id": who.producer_id,
            "producer_epoch": who.producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
            **more,
        }
        talk.ask(f"markers: {label}", key, version, markers=[marker])

    talk.ask("markers: none", key, 1, markers=[])
    write("for a partition that is not there", topics=[{"name": TOPIC, "partition_indexes": [9]}])
    write("for a topic that is not there", topics=[{"name": MISSING, "partition_indexes": [0]}])
    write("for no topic", topics=[])
    write("of an older epoch", producer_epoch=-1)
    write("of a negative coordinator epoch", coordinator_epoch=-1)
    write("of a producer that wrote nothing", producer_id=4711)
    write(
        "for a partition that it wrote nothing to",
        topics=[{"name": TOPIC, "partition_indexes": [1]}],
    )
    write("abort", coordinator_epoch=3)
    write("abort again", coordinator_epoch=3)
    write("of a coordinator that was replaced", coordinator_epoch=2)
    talk.produce("markers: produce after the abort", who)
    write("abort, v2", 2, coordinator_epoch=3)
