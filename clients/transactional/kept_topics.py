"""Topics in which a client keeps something of its own: made where they are not there, refused where they would lose it.

INVARIANT  a topic that is said to keep everything is compacted, and deletes nothing for its age or its size.
PREVENTS   a position, or a decision, that retention deletes one day; then all is written again.
PROVED BY  tests/binlog/test_binlog_positions.py::test_a_topic_that_would_forget_positions_is_refused
           tests/spark/test_spark_task_decisions.py::test_a_decision_topic_that_deletes_what_is_old_is_refused
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from .asking_again import PAUSE_S, retrying_for

SETTLES_S: Final = 30.0  # until a new topic is known everywhere
ASK_S: Final = 20.0
# Of producers alone: consumers and admin clients take them as unknown settings.
OF_PRODUCERS: Final = (
    *("compression.", "linger.ms", "batch.", "message.", "queue.buffering.", "acks"),
)
NOT_OURS_TO_ASK: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

log = logging.getLogger("fencepost.clients")


def readers(client: Mapping[str, str]) -> dict[str, str]:
    return {name: client[name] for name in client if not name.startswith(OF_PRODUCERS)}


def ensure_topic(
    client: Mapping[str, str],
    topic: str,
    partitions: int,
    *,
    replication: int = -1,
    config: Mapping[str, str] | None = None,
) -> int:
    """How many partitions it has: another number than asked for, if somebody else made it."""
    admin = AdminClient(readers(client))
    known = _partitions(admin, topic)
    if known:
        return known
    wanted = NewTopic(topic, partitions, replication, config=dict(config or {}))
    make_topic(admin, wanted)  # False if somebody else was faster
    deadline = time.monotonic() + SETTLES_S
    while not (known := _partitions(admin, topic)):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the topic {topic} was created and is not there after {SETTLES_S:g} s: do all brokers run?"
            )
        time.sleep(PAUSE_S)
    return known


def make_topic(admin: AdminClient, wanted: NewTopic, within_s: float = SETTLES_S) -> bool:
    """Whether it was not there before. An answer that leaves open what became of it is no answer: it is asked for again.

    A controller that stops leading while it decides says REQUEST_TIMED_OUT, and no client asks again by itself.
    """
    left_open = False

    def made() -> bool:
        nonlocal left_open
        try:
            admin.create_topics([wanted], request_timeout=within_s)[wanted.topic].result(within_s)
        except KafkaException as trouble:
            if trouble.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return left_open
            left_open = True
            raise
        return True

    return bool(retrying_for(within_s, made))


def _partitions(admin: AdminClient, topic: str) -> int:
    """0 while it is not there. Asked by name alone the brokers would make it, and not compacted."""
    found = admin.list_topics(timeout=ASK_S).topics.get(topic)
    return 0 if found is None or found.error is not None else len(found.partitions)


def losing_policy(client: Mapping[str, str], topic: str) -> str | None:
    """The cleanup.policy by which it loses what it keeps; None if it loses nothing, or if we may not ask."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(readers(client))
    try:
        found = retrying_for(
            SETTLES_S,
            lambda: admin.describe_configs([resource])[resource].result(ASK_S),
            also=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )
    except KafkaException as refused:
        if refused.args[0].code() not in NOT_OURS_TO_ASK:
            raise
        log.warning("%s: its cleanup.policy may not be asked for: see that it is compact", topic)
        return None
    policy = str(found["cleanup.policy"].value)
    return policy if "compact" not in policy or "delete" in policy else None
