"""Chapters of `txn_answers.py`: producers that begin, go on in order or not, and are fenced, old clients and new."""

from typing import Final

from fencepost.cluster.wire.api import ApiKey
from txn_talk import INT_MAX, INT_MIN, TOPIC, Producer, Talk, could_begin

TIMEOUT_MS_MAX: Final = 900_000


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
        talk.until(lambda heir=heir, version=version: could_begin(talk, heir, version))  # type: ignore[misc]
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
