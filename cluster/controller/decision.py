"""What a policy reads and what it returns: policies are pure, so everything that they need is handed in."""

import base64
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from uuid import UUID

from ..base.errors import ErrorCode
from ..base.ids import BrokerId
from ..metadata.broker_config import BrokerValues
from ..metadata.codec import BATCH_BYTES_MAX, Command
from ..metadata.image import ClusterImage, ConfigType, PartitionState
from ..metadata.records import PartitionsChanged
from ..metadata.topic_config import TopicConfigs

R = TypeVar("R")

# Kafka's bound on the partitions that one request may create: its records fit into one batch.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
TOO_LARGE: Final = "Unable to perform excessively large batch operation."
TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."


class CommandRefused(Exception):
    """An item can't be done; Kafka's code and sentence. Raised and caught within the policies."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    """Records to agree on, all or none, and the answer for when they are applied at a version."""

    records: list[Command] = field(default_factory=list)
    reply: Callable[[int], R]
    # The answer when the records are more than a batch may hold; None where clients can't make them so.
    too_large: Callable[[CommandRefused], R] | None = None
    # Or which of them may be agreed on first, some at a time: each is right without the others, and is not decided again.
    apart: Callable[[], Sequence[PartitionsChanged]] | None = None
    # Of a decision that is too large: the rest is decided on what this has made.
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class Disks:
    """What brokers have said of their disks, as far as this controller has heard (`full_disks.py`)."""

    full: frozenset[BrokerId] = frozenset()  # they take no records
    lately_full: frozenset[BrokerId] = frozenset()  # now, or so lately that it may be so again
    all_heard: bool = True  # since it leads each of them has had the time to say so

    def in_turn(self, broker_id: BrokerId) -> tuple[bool, bool]:
        """To sort by, those with room first. Who takes no records can be read, so it leads where nobody else can."""
        return broker_id in self.full, broker_id in self.lately_full


NOTHING_HEARD: Final = Disks()


@dataclass(frozen=True, slots=True)
class Scene:
    """What the active controller knows: the image, its node's settings, and its dice."""

    image: ClusterImage
    node_id: BrokerId
    node_config: Mapping[str, str]
    topic_configs: TopicConfigs
    rng: random.Random
    now_ms: int
    voters: Collection[BrokerId]  # on the metadata, or soon, when what is under way is in the log
    disks: Disks = NOTHING_HEARD

    @property
    def settings(self) -> BrokerValues:
        return BrokerValues(self.image, self.node_config, self.node_id)

    def new_id(self) -> UUID:
        """A random id whose printed form does not begin with a dash: command lines would take it for an option."""
        while True:
            made = UUID(int=self.rng.getrandbits(128), version=4)
            if not printed(made).startswith("-"):
                return made

    def min_insync_replicas(self, topic: str, partition: PartitionState) -> int:
        """The least ISR in force; a topic of two replicas can't have three of them in sync.

        Replicas that a move is adding don't count: a topic of one would stop at the first step of its move.
        """
        overrides = self.image.config(ConfigType.TOPIC, topic)
        config = self.topic_configs.with_overrides(self.image, overrides)
        return min(config.min_insync_replicas, len(partition.original_replicas))


def is_too_long(values: Iterable[str | None]) -> bool:
    """Whether these alone are more than a batch may hold: they are not even looked at."""
    return sum(len(value or "") for value in values) > BATCH_BYTES_MAX


def printed(identifier: UUID) -> str:
    """An id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode()
