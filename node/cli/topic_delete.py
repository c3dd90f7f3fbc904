"""`fencepost topic delete`: what cannot be taken back is asked about, with what is in the topics.

INVARIANT  nothing is deleted that was not confirmed, and what the cluster itself needs only where `--internal` is said.
PREVENTS   the positions of all groups gone by `topic delete $(fencepost topic list --internal ...)`; a wrong name.
PROVED BY  tests/node/test_cli_topic_delete.py::test_without_a_terminal_nothing_is_deleted_that_was_not_confirmed

Other clients may delete internal topics as they may in Kafka: the cluster allows it to whoever asks for it.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
)

from ..few import few
from .checked import Failed, named
from .cluster import (
    EXIT_FAILED,
    TIMEOUT_S,
    add_cluster_arguments,
    confluent_kafka,
    connect,
    goes_on,
    need_somebody_who_leads,
    offsets_at,
    records,
    say,
    seen,
    settle,
)
from .kafka_client import OffsetSpec
from .output import show_line

NODE_S: Final = 5.0  # how long one node may take to tell its groups, or where its logs end
GROUPS_MAX: Final = 1_000  # of which it is asked what they read
LOSS: Final[Mapping[str, str]] = {
    GROUP_OFFSETS_TOPIC: (
        "has the positions of all groups: without it every reader begins anew, where its auto.offset.reset says"
    ),
    TRANSACTION_STATE_TOPIC: (
        "has what becomes of every transactional id: without it no half message is decided any more, what is open"
        " stays so until it is ended partition by partition (`fencepost txn find-hanging`), and producers that were"
        " fenced are so no more"
    ),
}
assert LOSS.keys() == INTERNAL_TOPICS


def configure(actions: Any) -> None:
    delete = actions.add_parser("delete", help="delete topics with all their records")
    delete.add_argument("topic", nargs="+")
    delete.add_argument("--yes", action="store_true", help="don't ask")
    delete.add_argument(
        "--internal",
        action="store_true",
        help=f"needed for {' and '.join(sorted(INTERNAL_TOPICS))}: the cluster keeps its own there",
    )
    add_cluster_arguments(delete)
    delete.set_defaults(action=_delete)


def _delete(arguments: argparse.Namespace) -> int:
    named("a topic's name", *arguments.topic)
    names = list(dict.fromkeys(arguments.topic))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal and not arguments.internal:
        raise Failed(f"{_losses(internal)}. Nothing was deleted; to do that, say --internal.")
    admin = connect(arguments)
    need_somebody_who_leads(arguments)
    if not arguments.yes and not _agreed(arguments, admin, names):
        say("nothing was deleted")
        return EXIT_FAILED
    return settle(
        "topic",
        admin.delete_topics(names),
        failed="can't delete",
        done="deleted",
        as_json=arguments.json,
    )


def _agreed(arguments: argparse.Namespace, admin: Any, names: Sequence[str]) -> bool:
    """What is not there is not asked about: the cluster will say that it isn't."""
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    there = {name: topics[name].partitions for name in names if name in topics}
    if not there:
        return True
    told = _told(admin, there)
    what = f"{few(told)} would be deleted with all that is in {'it' if len(told) == 1 else 'them'}, for good"
    if internal := [name for name in there if name in INTERNAL_TOPICS]:
        what += f". {_losses(internal)}"
    if arguments.json or not sys.stdin.isatty():
        raise Failed(f"{what}. To do that, say --yes.")
    show_line(f"{what}.")
    return goes_on()


def _losses(internal: Sequence[str]) -> str:
    return "; ".join(f"{name} {LOSS[name]}" for name in internal)


def _told(admin: Any, there: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """Each with what is in it, as far as it can be told soon: who has no leader has nobody to ask."""
    led = [
        (name, number)
        for name, partitions in there.items()
        for number, each in partitions.items()
        if each.leader != NO_LEADER
    ]
    specs = OffsetSpec.earliest(), OffsetSpec.latest()
    first, end = offsets_at(admin, led, *specs, skips_failed=True, wait_s=NODE_S)
    readers = _readers(admin)
    told = []
    for name, partitions in there.items():
        known = [place for place in first.keys() & end.keys() if place[0] == name]
        size = f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}"
        if len(known) < len(partitions):
            size += f", {len(partitions) - len(known)} of which can't be asked"
        if known:  # markers of transactions, and what was compacted, have offsets, too
            size += f", up to {records(sum(end[each] - first[each] for each in known))}"
        if groups := sorted(readers.get(name, ())):
            size += f"; {few(groups)} {'reads' if len(groups) == 1 else 'read'} it"
        told.append(f"{name} ({size})")
    return told


def _readers(admin: Any) -> dict[str, set[str]]:
    """The groups whose members read a topic now; none where nobody tells."""
    found: dict[str, set[str]] = {}
    try:
        asked = admin.list_consumer_groups(request_timeout=NODE_S)
        names = [each.group_id for each in seen("groups", asked).valid][:GROUPS_MAX]
        futures = admin.describe_consumer_groups(names, request_timeout=NODE_S) if names else {}
    except (Failed, confluent_kafka.KafkaException):
        return found
    for name, future in futures.items():
        try:
            members = seen(name, future).members
        except Failed:
            continue
        for member in members:
            for each in member.assignment.topic_partitions:
                found.setdefault(each.topic, set()).add(name)
    return found
