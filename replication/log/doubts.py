"""Which logs may have lost something that they had acknowledged, because their machine went down.

INVARIANT  a log that acknowledges what is not synced (flush.policy `os`, `interval`) is known as such on the disk
           before it does; one that lost its power as such is doubted, over any number of restarts, until the
           cluster was told.
PREVENTS   a replica that lost what it had acknowledged staying in an ISR, and being elected; and all of a cluster
           that lost its power waiting for the last node to come back, though each had synced everything.
PROVED BY  tests/replication/log/test_doubts.py::test_what_lost_its_power_unsynced_is_doubted_until_the_cluster_was_told
           tests/replication/log/test_doubts.py::test_a_log_that_lacks_something_is_doubted_on_though_its_settings_are_changed

Under flush.policy=ack nothing counts that is not synced, neither for the high watermark nor for the ISR: a power cut
takes nothing from such a log that anybody relies on, and it comes back like one whose process was killed; unless what is
cut off it looks as if a bit had flipped (`torn.py`).
"""

import enum
from collections.abc import Iterable

from fencepost.cluster.base.ids import TopicPartition

from .checkpoint import NONE, Kind, PartitionOffsets
from .config import LogConfig


class Doubt(enum.IntEnum):
    """`Kind.DOUBT` in the checkpoint; none: all that was acknowledged was synced."""

    UNSYNCED = 1  # what was acknowledged may be in the page cache only
    LACKS = 2  # and that was lost


class Doubts:
    """Of all logs of a node."""

    def __init__(self, offsets: PartitionOffsets) -> None:
        self._offsets = offsets
        self._power_was_lost = False
        self._knows_nothing = False
        self._starts = True
        self._unwritten: dict[TopicPartition, None] = {}
        self._lacking: dict[TopicPartition, int] = {}  # and what is said once the cluster knows

    # -- at the start ----------------------------------------------------------------------------------

    def nothing_is_known(self) -> None:
        """What the last run left on the disk does not tell."""
        self._knows_nothing = True

    def power_was_lost(self) -> None:
        self._power_was_lost = True

    def opens(self, partition: TopicPartition, config: LogConfig, *, is_late: bool = False) -> None:
        """`is_late`: not at the first start since the machine went down, which could not open it."""
        before = self._offsets.get(Kind.DOUBT, partition)
        after = NONE if config.flush_policy == "ack" else Doubt.UNSYNCED
        if self._starts and (
            before == Doubt.LACKS
            or self._knows_nothing
            or ((self._power_was_lost or is_late) and before == Doubt.UNSYNCED)
        ):
            self._lacking[partition] = after
            after = Doubt.LACKS
        self._put(partition, after)

    def all_opened(self) -> None:
        """All that the node had: what is opened from here on is new."""
        self._starts = False

    @property
    def lacking(self) -> list[TopicPartition] | None:
        """Those that may lack something that they had acknowledged; None: nobody knows of which."""
        return None if self._knows_nothing else list(self._lacking)

    def of(self, partition: TopicPartition) -> bool:
        """Whether a log that fails now may lose something that it acknowledged, by its policy of now or before."""
        return self._offsets.get(Kind.DOUBT, partition) is not None

    def told(self) -> None:
        """The cluster knows of them: what they lack they will copy, or nobody has it."""
        self._knows_nothing = False
        for partition, after in self._lacking.items():
            if self._offsets.get(Kind.DOUBT, partition) == Doubt.LACKS:
                self._offsets.put(Kind.DOUBT, partition, after)
        self._lacking = {}

    # -- while it runs ---------------------------------------------------------------------------------

    def configured(self, partition: TopicPartition, config: LogConfig) -> None:
        """A log that was `ack` is that again after the next start, when all of it is synced."""
        if config.flush_policy == "ack":
            return
        if partition in self._lacking:
            self._lacking[partition] = Doubt.UNSYNCED
        else:
            self._put(partition, Doubt.UNSYNCED)

    def write_down(self) -> None:
        """Before any of those that were opened or configured acknowledges something. Blocks for a sync, if there were."""
        if self._unwritten:
            self._offsets.flush_now()
            self._unwritten = {}

    @property
    def unwritten(self) -> Iterable[TopicPartition]:
        """Of these the disk may not know what they acknowledge: nothing that is not synced may count."""
        return self._unwritten.keys()

    def _put(self, partition: TopicPartition, doubt: int) -> None:
        before = self._offsets.get(Kind.DOUBT, partition)
        if doubt != (NONE if before is None else before):
            self._offsets.put(Kind.DOUBT, partition, doubt)
            if doubt != NONE:
                self._unwritten[partition] = None
