"""Why a batch of commands was refused when it was applied: the image had moved on since it was decided."""

import enum
from dataclasses import dataclass


class Reason(enum.Enum):
    """What the image had, that the command did not expect."""

    CLUSTER_EXISTS = "cluster exists"
    BROKER_UNKNOWN = "broker unknown"
    STALE_BROKER_EPOCH = "stale broker epoch"
    TOPIC_EXISTS = "topic exists"
    TOPIC_UNKNOWN = "topic unknown"
    PARTITION_UNKNOWN = "partition unknown"
    STALE_PARTITION_COUNT = "stale partition count"
    STALE_PARTITION_EPOCH = "stale partition epoch"
    STALE_CONFIG = "stale config"
    STALE_FEATURE = "stale feature level"
    STALE_IMAGE = "stale image"
    PRODUCER_IDS_TAKEN = "producer ids taken"
    TWICE_IN_BATCH = "twice in one batch"
    IMPOSSIBLE = "impossible"  # no image could have made it right


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing of the batch happened, on any node."""

    reason: Reason
    message: str
