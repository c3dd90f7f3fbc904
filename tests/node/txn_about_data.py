"""Chapters of `txn_answers.py`: batches, and offsets of groups, that are written in a transaction."""

from fencepost.cluster.wire.api import ApiKey
from txn_talk import INT_MAX, MISSING, TOPIC, E, Talk, position


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
