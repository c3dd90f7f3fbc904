"""What a seed of the kill runs stands for: the point, the sink, the place, and whose executors."""

import random
from dataclasses import dataclass, replace
from typing import Final

from .spark_points import ALL_POINTS, BROKER_POINTS, marks_of, sinks_of
from .spark_settings import BATCH

PARTITIONS: Final = 3
BATCHES: Final = 3
EXECUTORS: Final = "local-cluster[2,1,1024]"
STANDALONE: Final = "standalone"
STANDALONE_EACH: Final = 4  # one round of the points in so many
SHUFFLED: Final = 0.5  # of the runs
HEADERS: Final = 0.4  # of the runs read and write them
# So many rows a task that these are only summed up (EXACT_ROWS of `clients/spark/row_marks.py`).
LARGE: Final = 0.15
# Slow rows are those of the stage that writes: no shuffle before it, or it would have them all at once.
SLOW: Final = ("executor-orphans", "input-fails")
# There is but room for one driver's executors on the standalone workers.
NEEDS_ROOM: Final = ("second-driver",)


@dataclass(frozen=True, kw_only=True)
class Run:
    seed: int
    point: str
    sink: str
    batch: int
    partition: int
    is_standalone: bool = False
    is_shuffled: bool = False
    has_headers: bool = False
    is_large: bool = False
    batches: int = BATCHES

    @classmethod
    def of(cls, seed: int, point: str | None = None, sink: str | None = None) -> "Run":
        """Every point comes in turn, with every sink that has it; what is drawn is when and where."""
        rng = random.Random(seed)
        rounds, its_point = seed // len(ALL_POINTS), point or point_at(seed)
        sinks = sinks_of(its_point)
        made = cls(
            seed=seed,
            point=its_point,
            sink=sink or sinks[rounds % len(sinks)],
            batch=rng.randrange(*_batches(its_point)),
            partition=rng.randrange(PARTITIONS),
            is_standalone=rounds % STANDALONE_EACH == STANDALONE_EACH - 1,
        )
        made = replace(made, is_shuffled=made.must_shuffle or rng.random() < SHUFFLED)
        rows = random.Random(f"rows of {seed}")
        has_headers, is_large = rows.random() < HEADERS, rows.random() < LARGE
        return replace(made, has_headers=has_headers, is_large=is_large and not made.is_slow)

    @property
    def must_shuffle(self) -> bool:
        return self.point == "stage-runs-again"

    @property
    def is_slow(self) -> bool:
        return self.point in SLOW

    def fails_at(self, records: int) -> int:
        """A record in the middle of the batch's part of the partition: with one batch behind the other, or each third record."""
        if self.point != "input-fails":
            return -1
        each = records // PARTITIONS // self.batches
        offset = self.batch * each + each // 2
        if self.sink == BATCH:
            offset = each // 2 * self.batches + self.batch
        return offset * PARTITIONS + self.partition

    @property
    def shuffled_to(self) -> int:
        return PARTITIONS if (self.is_shuffled or self.must_shuffle) and not self.is_slow else 0

    @property
    def master(self) -> str:
        """Workers of their own can only die where there are some."""
        if self.point in NEEDS_ROOM:
            return EXECUTORS
        return STANDALONE if self.is_standalone or self.point.startswith("host") else EXECUTORS

    @property
    def marks(self) -> tuple[str, ...]:
        return marks_of(self.point)


def _batches(point: str) -> tuple[int, int]:
    """From, and up to which. A node's death must meet a job that is still at work: not in its last batch. And there is only
    something to fetch of an executor that has done something: not in the first one, to which it may come late."""
    if point in BROKER_POINTS:
        return 0, BATCHES - 1
    return (1 if point == "stage-runs-again" else 0), BATCHES


def point_at(seed: int) -> str:
    return ALL_POINTS[seed % len(ALL_POINTS)]
