"""One conversation about transactions, held with Kafka and with us: above all what goes wrong.

    PYTHONPATH=tests python tests/node/txn_answers.py > tests/node/kafka_4_3_txn_answers.json

holds it with a fresh Kafka of one node and writes down what it answered. `test_txn_answers.py` holds it with ours,
and on demand again with a Kafka.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker
from txn_talk import MISSING, TIMEOUT_MS, TOPIC, UNSETTLED, E, Producer, Talk, position

GROUP_KIND, TRANSACTION_KIND = 0, 1
# Everything in one partition: it is loaded when the first of its ids is. Timeouts are looked for often.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
WIDE, WIDTH = "wide", 400
TIMEOUT_MS_MAX: Final = 900_000
INT_MAX, INT_MIN = 2**31 - 1, -(2**31)


def hold(node: Asker) -> Talk:
    prepare(node)
    talk = Talk(node)
    for chapter in CHAPTERS:
        chapter(talk)
    return talk


def prepare(node: Asker) -> None:
    """A topic of two partitions, and both coordinators at work."""
    node.create_topic(TOPIC, 2)
    talk = Talk(node)
    asked = {"transactional_id": "warm", "transaction_timeout": TIMEOUT_MS}
    talk.until(lambda: _found(node, TRANSACTION_KIND))
    talk.until(lambda: node.ask(ApiKey.init_producer_id, 4, **asked).error_code is E.none)
    talk.until(lambda: _found(node, GROUP_KIND))
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    talk.until(lambda: node.ask(ApiKey.heartbeat, **beat).error_code is E.unknown_member_id)


def _found(node: Asker, kind: int) -> bool:
    reply = node.ask(ApiKey.find_coordinator, 3, key="warm", key_type=kind)
    return reply.error_code is E.none


def about_nobody(talk: Talk) -> None:
    """Ids that no coordinator has heard of, and ids that are none."""
    for name, who in (("unknown", Producer("nobody")), ("empty", Producer(""))):
        for version in (0, 1, 3):
            talk.add(f"add partitions, {name} id, v{version}", who, version)
            talk.add_offsets(f"add offsets, {name} id, v{version}", who, version)
        for version in (0, 3, 5):
            talk.end(f"commit, {name} id, v{version}", who, version)
            talk.end(f"abort, {name} id, v{version}", who, version, commit=False)
        for version in (0, 3, 5):
            talk.commit_offset(f"commit an offset, {name} id, v{version}", who, version)
        for version in (4, 5):
            talk.verify(f"verify, {name} id, v{version}", who, version)
            talk.verify(f"add in a batch, {name} id, v{version}", who, version, only=False)
        for version in (3, 9, 11, 12):
            talk.produce(f"produce, {name} id, v{version}", who, version)
        talk.describe(f"describe, {name} id", who.transactional_id)
    talk.describe("describe nothing")
    talk.describe("describe one twice", "nobody", "nobody")
    for kind in (0, 1):
        for keys in ([], [""], ["a", "a", "b"]):
            label = f"find a coordinator of kind {kind} for {keys}"
            fields = {"key_type": kind, "coordinator_keys": keys}
            body = talk.ask(label, ApiKey.find_coordinator, 6, **fields)
            for row in talk.said[-1][3]["coordinators"] if body is not None else ():
                del row["port"]
                del row["host"]
                del row["node_id"]


def about_beginning(talk: Talk) -> None:
    """InitProducerId: timeouts, pairs of id and epoch, lengths."""
    for timeout in (0, -1, INT_MIN, 1, TIMEOUT_MS_MAX, TIMEOUT_MS_MAX + 1, INT_MAX):
        for version in (0, 4):
            who = Producer(f"timeout {timeout}")
            label = f"begin, timeout {timeout}, v{version}"
            talk.init(label, who, version, transaction_timeout=timeout)
    for version in (0, 3, 5):
        talk.init(f"begin, empty id, v{version}", Producer(""), version)
    for length in (300, 32_000, 32_767, 32_768, 3_000_000):
        talk.init(f"begin, an id of {length} bytes", Producer("x" * length))
    nameless = {"transactional_id": None, "transaction_timeout": -1}
    talk.ask("begin without an id", ApiKey.init_producer_id, 4, **nameless)
    pairs = {"an id and no epoch": (5, -1), "an epoch and no id": (-1, 5), "both": (4711, 3)}
    for name, (producer_id, producer_epoch) in pairs.items():
        more = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        talk.init(f"begin with {name}", Producer("pairs"), **more)
        talk.init(f"begin with {name} again", Producer("pairs"), **more)
    one = talk.begun("begin", "one")
    talk.init("begin again", one)
    here = {"producer_id": one.producer_id, "producer_epoch": 1}
    talk.init("begin with what is had", one, **here)
    talk.init("begin with what was had", one, **here)
    talk.init("begin with what was had long ago", one, **{**here, "producer_epoch": 0})
    talk.init("begin with what was had long ago, v3", one, 3, **{**here, "producer_epoch": 0})
    talk.init("begin with what will be had", one, **{**here, "producer_epoch": 9})
    talk.init("begin with another's", one, **{**here, "producer_id": 4711})
    talk.init("begin with another's, v3", one, 3, **{**here, "producer_id": 4711})
    talk.init("begin with a negative epoch", one, **{**here, "producer_epoch": -7})
    talk.init("begin with a negative id", one, **{**here, "producer_id": -7})


def about_order(talk: Talk) -> None:
    """A client before KIP-890's second part, which says everything in its own request."""
    who = talk.begun("order: begin", "order", 4)
    for commit, word in ((True, "commit"), (False, "abort")):
        for version in (0, 3, 4):
            talk.end(f"order: {word} before anything, v{version}", who, version, commit=commit)
    talk.describe("order: describe the empty", "order")
    talk.produce("order: produce outside a transaction", who)
    for version in (0, 2, 3, 4):
        label = f"order: commit an offset outside a transaction, v{version}"
        talk.commit_offset(label, who, version)
    talk.verify("order: verify outside a transaction", who)
    talk.add("order: add a topic that is not there", who, **{TOPIC: [0], "no_such_topic": [0]})
    talk.add("order: add a partition that is not there", who, **{TOPIC: [0, 9]})
    talk.add("order: add a negative partition", who, **{TOPIC: [-1]})
    talk.add("order: add an internal topic", who, __consumer_offsets=[0])
    talk.add("order: add the coordinators' own topic", who, __transaction_state=[0])
    talk.add("order: add no topic", who, **{TOPIC: []})
    talk.describe("order: describe after nothing was added", "order")
    talk.add("order: add", who)
    talk.add("order: add again", who)
    talk.verify("order: verify", who)
    talk.verify("order: verify another partition", who, partition=1)
    talk.produce("order: produce", who)
    talk.produce("order: produce to a partition that was not added", who.but(), partition=1)
    talk.describe("order: describe the ongoing", "order")
    talk.init(
        "order: begin again in the middle, too long a timeout", who, 4, transaction_timeout=INT_MAX
    )
    talk.end("order: commit", who)
    talk.settle("order")
    talk.end("order: commit again", who)
    talk.end("order: abort what is committed", who, commit=False)
    talk.produce("order: produce after the end", who)
    talk.commit_offset("order: commit an offset after the end", who)
    talk.verify("order: verify after the end", who)
    talk.describe("order: describe the committed", "order")
    talk.add("order: add for the next", who)
    talk.end("order: abort", who, commit=False)
    talk.settle("order")
    talk.end("order: abort again", who, commit=False)
    talk.end("order: commit what is aborted", who)
    talk.describe("order: describe the aborted", "order")


def about_strangers(talk: Talk) -> None:
    """Wrong epochs and wrong ids while a transaction is open."""
    who = talk.begun("strangers: begin", "strangers", 4)
    who.became(talk.init("strangers: begin again", who, 4))
    talk.add("strangers: add", who)
    talk.produce("strangers: produce", who)
    wrong = {
        "an older epoch": who.but(producer_epoch=0),
        "a newer epoch": who.but(producer_epoch=5),
        "the highest epoch": who.but(producer_epoch=32_767),
        "no epoch": who.but(producer_epoch=-1),
        "another id": who.but(producer_id=4711),
        "no id": who.but(producer_id=-1),
    }
    for name, stranger in wrong.items():
        for version in (0, 1, 2, 3):
            talk.add(f"strangers: add, {name}, v{version}", stranger, version)
            talk.add_offsets(f"strangers: add offsets, {name}, v{version}", stranger, version)
        for version in (0, 1, 2, 4, 5):
            talk.end(f"strangers: commit, {name}, v{version}", stranger, version)
        talk.verify(f"strangers: verify, {name}", stranger)
        for version in (2, 3, 4, 5):
            talk.commit_offset(
                f"strangers: commit an offset, {name}, v{version}", stranger, version
            )
        for version in (3, 11, 12):
            talk.produce(f"strangers: produce, {name}, v{version}", stranger, version)
    talk.end("strangers: commit", who)
    talk.settle("strangers")


def about_fencing(talk: Talk) -> None:
    """A second incarnation begins while the first is in the middle of a transaction."""
    for version in (3, 4, 5):
        name = f"zombie v{version}"
        zombie = talk.begun(f"{name}: begin", name, version)
        talk.add(f"{name}: add", zombie)
        talk.produce(f"{name}: produce", zombie)
        heir = Producer(name)
        talk.until(lambda heir=heir, version=version: _begun(talk, heir, version))  # type: ignore[misc]
        talk.settle(name)
        for old in (0, 1, 3):
            talk.add(f"{name}: add as the zombie, v{old}", zombie, old)
        for old in (0, 3, 5):
            talk.end(f"{name}: commit as the zombie, v{old}", zombie, old)
        for old in (7, 11, 12):
            talk.produce(f"{name}: produce as the zombie, v{old}", zombie, old)
        talk.commit_offset(f"{name}: commit an offset as the zombie", zombie)
        again = {"producer_id": zombie.producer_id, "producer_epoch": zombie.producer_epoch}
        talk.init(f"{name}: begin as the zombie", zombie, version, **again)
        talk.describe(f"{name}: describe", name)


def _begun(talk: Talk, who: Producer, version: int) -> bool:
    """The first answers are CONCURRENT_TRANSACTIONS from a Kafka, which aborts what is open meanwhile."""
    asked = {"transactional_id": who.transactional_id, "transaction_timeout": TIMEOUT_MS}
    answer = talk.node.ask(ApiKey.init_producer_id, version, **asked)
    if answer.error_code is E.concurrent_transactions:
        return False
    who.became(answer)
    return True


def about_new_clients(talk: Talk) -> None:
    """`transaction.version` 2: writing adds the partition, and each end raises the epoch."""
    who = talk.begun("new: begin", "new")
    talk.end("new: commit before anything", who, 5)
    talk.describe("new: describe the empty", "new")
    talk.produce("new: produce", who, 12)
    talk.produce("new: produce again, v13", who, 13)
    talk.produce("new: produce to another partition, v13", who.but(), 13, partition=1)
    talk.describe("new: describe the ongoing", "new")
    before = who.but()
    who.became(talk.end("new: commit", who, 5))
    talk.settle("new")
    talk.end("new: commit again, as if the answer had been lost", before, 5)
    talk.end("new: abort what is committed", before, 5, commit=False)
    talk.produce("new: produce with the epoch of the last", before, 12)
    talk.commit_offset("new: commit an offset with the epoch of the last", before, 5)
    talk.end("new: commit the empty next", who, 5)
    before = who.but()
    who.became(talk.end("new: abort the empty next", who, 5, commit=False))
    talk.settle("new")
    talk.end("new: abort it again", before, 5, commit=False)
    talk.commit_offset("new: commit an offset", who, 5)
    talk.describe("new: describe with an offset", "new")
    talk.end("new: commit as an old client", who, 4)
    talk.settle("new")
    talk.describe("new: describe after the old end", "new")
    talk.end("new: commit again as a new client", who, 5)
    talk.produce("new: produce after the old end", who, 12)
    talk.describe("new: describe after it", "new")


def about_batches(talk: Talk) -> None:
    """Batches that contradict their request, and what no client may write."""
    who = talk.begun("batches: begin", "batches", 4)
    talk.add("batches: add", who, **{TOPIC: [0, 1]})
    for version in (3, 11, 12):
        v = f"v{version}"
        talk.produce(
            f"batches: of a transaction, in a request of none, {v}", who.but(), version, said=None
        )
        talk.produce(
            f"batches: of none, in a request of a transaction, {v}",
            who.but(),
            version,
            partition=1,
            transactional=False,
        )
        talk.produce(
            f"batches: without a producer, {v}",
            who.but(producer_id=-1, producer_epoch=-1),
            version,
            base_sequence=-1,
        )
        talk.produce(f"batches: a marker, {v}", who.but(), version, control=True)
        for topic in ("__transaction_state", "__consumer_offsets"):
            talk.produce(f"batches: to {topic}, {v}", who.but(), version, topic=topic)
            talk.produce(
                f"batches: plain, to {topic}, {v}",
                who.but(),
                version,
                topic=topic,
                said=None,
                transactional=False,
            )
    for sequence in (5, -1, INT_MAX):
        other = who.but()
        other.sequence = sequence
        talk.produce(f"batches: begin at sequence {sequence}", other)
    talk.end("batches: abort", who, commit=False)
    talk.settle("batches")


def about_offsets(talk: Talk) -> None:
    who = talk.begun("offsets: begin", "offsets", 4)
    talk.add_offsets("offsets: add, empty group", who, group="")
    talk.end("offsets: abort the empty group", who, commit=False)
    talk.settle("offsets")
    talk.commit_offset("offsets: commit before add", who)
    talk.add_offsets("offsets: add", who)
    talk.add_offsets("offsets: add again", who)
    talk.describe("offsets: describe", "offsets")
    nowhere = {MISSING: [0], TOPIC: [0, 9]}
    talk.commit_offset("offsets: commit, some nowhere", who, topics=nowhere)
    talk.commit_offset("offsets: commit, all nowhere", who, topics={MISSING: [0]})
    talk.commit_offset("offsets: commit nothing", who, topics={})
    talk.commit_offset("offsets: commit, empty group", who, group="")
    fields = {**who.fields, "group_id": "g"}
    for name, row in (
        ("too much beside it", position(0, metadata="x" * 5_000)),
        ("a negative one", position(0, -7)),
    ):
        topics = [{"name": TOPIC, "partitions": [row]}]
        talk.ask(f"offsets: commit {name}", ApiKey.txn_offset_commit, 3, **fields, topics=topics)
    talk.commit_offset("offsets: commit as a stranger", who, member_id="m", generation_id=1)
    talk.commit_offset("offsets: commit in a generation", who, generation_id=1)
    talk.commit_offset("offsets: commit as a member without a generation", who, member_id="m")
    talk.commit_offset("offsets: commit as an instance", who, group_instance_id="i")
    talk.commit_offset("offsets: commit for another group", who, group="other")
    _fetch(talk, "offsets: fetch the open, stable", stable=True)
    _fetch(talk, "offsets: fetch the open", stable=False)
    talk.end("offsets: commit", who)
    talk.settle("offsets")
    talk.until(lambda: _is_stable(talk))
    _fetch(talk, "offsets: fetch the committed", stable=True)
    talk.commit_offset("offsets: commit too late", who)
    _fetch(talk, "offsets: fetch after that", stable=True)


def _fetch(talk: Talk, label: str, *, stable: bool) -> None:
    wanted = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    fields = {"groups": [wanted], "require_stable": stable}
    talk.ask(label, ApiKey.offset_fetch, 9, **fields)


def _is_stable(talk: Talk) -> bool:
    wanted = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    reply = talk.node.ask(ApiKey.offset_fetch, 9, groups=[wanted], require_stable=True)
    return bool(reply.groups[0].topics[0].partitions[0].error_code is E.none)


def about_a_group_that_moved_on(talk: Talk) -> None:
    """KIP-447: the group's generation fences what the producer's epoch does not."""
    asked = {
        "group_id": "moving",
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
        "group_instance_id": None,
    }
    first = talk.node.ask(ApiKey.join_group, 9, **asked, member_id="")
    joined = talk.node.ask(ApiKey.join_group, 9, **asked, member_id=first.member_id)
    me = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    who = talk.begun("moving: begin", "moving", 4)
    talk.add_offsets("moving: add", who, group="moving")
    for name, more in {
        "in a rebalance": me,
        "with nothing": {},
        "in a later generation": {**me, "generation_id": 9},
        "in an earlier generation": {**me, "generation_id": 0},
        "without a generation": {**me, "generation_id": -1},
        "without a member": {**me, "member_id": ""},
        "as a stranger": {**me, "member_id": "m"},
        "as an instance": {**me, "group_instance_id": "i"},
    }.items():
        talk.commit_offset(f"moving: commit {name}", who, group="moving", **more)
    fields = {**me, "group_id": "moving", "protocol_type": "consumer", "protocol_name": "range"}
    given = [{"member_id": joined.member_id, "assignment": b"x"}]
    talk.node.ask(ApiKey.sync_group, 5, **fields, group_instance_id=None, assignments=given)
    talk.commit_offset("moving: commit as the member", who, group="moving", **me)
    talk.commit_offset("moving: commit as nobody", who, group="moving")
    leaving = [{"member_id": joined.member_id, "group_instance_id": None, "reason": None}]
    talk.node.ask(ApiKey.leave_group, 5, group_id="moving", members=leaving)
    talk.commit_offset("moving: commit after it left", who, group="moving", **me)
    talk.end("moving: abort", who, commit=False)
    talk.settle("moving")


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
    talk.until(lambda: _begun(talk, who, 4))
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


CHAPTERS: Final[tuple[Callable[[Talk], None], ...]] = (
    about_nobody,
    about_beginning,
    about_order,
    about_strangers,
    about_fencing,
    about_new_clients,
    about_batches,
    about_offsets,
    about_a_group_that_moved_on,
    about_the_middle_of_an_end,
    about_timeouts,
    about_lists,
    about_markers,
)


def main() -> None:
    from kafka_node import fresh_kafka

    with fresh_kafka(SETTINGS) as kafka:
        rows = [json.dumps(row) for row in hold(kafka).said]
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
