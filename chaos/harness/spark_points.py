"""The places where the kill runs strike. The first word says who is struck. (`spark_strikes.py` has the blows.)"""

from collections.abc import Mapping
from typing import Final

from .spark_settings import BATCH, STREAM, TASK

POINTS: Final = {
    "task-starts": "an attempt fails before it writes",
    "task-halfway": "an attempt fails in the middle of its rows",
    "task-wrote": "an attempt fails when all is written",
    "worker-halfway": "a task's Python dies in the middle of its rows",
    "worker-wrote": "a task's Python dies when all is written",
    "executor-halfway": "an executor dies in the middle of a task's rows",
    "executor-wrote": "an executor dies when a task has written",
    "executor-orphans": "an executor and its daemon die in the middle of a task's rows, and the task's Python goes on",
    "executor-sleeps": "an executor is stopped in the middle of a task's rows; it goes on when it was given up, and the task done elsewhere",
    "executor-oversleeps": "an executor is stopped before a task begins to write; it goes on when it was given up, and the batch decided",
    "stage-runs-again": "an executor dies with what tasks still have to fetch of it: their stage is run again",
    "host-halfway": "a worker of Spark dies with its executor in the middle of a task's rows",
    "host-wrote": "a worker of Spark dies with its executor when a task has written",
    "twin-sleeps": "an attempt sleeps when all is written, until its speculative copy has won",
    "input-fails": "what a task reads fails in the middle of its rows, in all attempts of the first start",
    "job-fails": "all attempts of a task fail: the batch is aborted",
    "driver-aborts": "the driver dies as it begins to abort such a batch",
    "driver-aborted": "the driver dies when it has aborted such a batch",
    "driver-starts": "the driver dies as a task begins: what was before is noted, nothing of this batch is written",
    "driver-halfway": "the driver dies in the middle of a task's rows",
    "driver-wrote": "the driver dies when a task has written",
    "driver-commits": "the driver dies before it asks for the commit",
    "driver-sent": "the driver dies while it waits for the answer: its request is sent, and at once, or some time later, it is dead",
    "driver-decided": "the driver dies when it has the answer",
    "driver-listed": "the driver dies when it has looked for what lost attempts left open",
    "driver-fences": "the driver dies as it ends what a lost attempt left open",
    "driver-committed": "the driver dies before Spark notes the commit",
    "second-driver": "another driver begins the same query while the first one is in the middle of a batch",
    "commit-note-lost": "all is done; then Spark's note of the last commit is gone: offsets/N is there, commits/N is not",
}
BROKER_POINTS: Final = {
    "broker-dies": "any node, in the middle of a batch",
    "coordinator-dies": "the node that coordinates the group",
}
ALL_POINTS: Final = (*sorted(POINTS), *sorted(BROKER_POINTS))
BESIDE: Final = "beside"  # instead of a point: in a second driver's job
SLEEPS: Final = ("executor-sleeps", "executor-oversleeps")
ALL_ATTEMPTS_FAIL: Final = ("job-fails", "driver-aborts", "driver-aborted")
# What a driver does with the group; and a copy, which `transactions=task` must not be given (clients/spark/README.md).
GROUP_ONLY: Final = (
    "driver-sent",
    "driver-decided",
    "driver-listed",
    "driver-fences",
    "twin-sleeps",
)

# Files in a run's folder, by which processes that know nothing of each other tell what they have seen.
STRUCK: Final = "struck-0"
SENT: Final = "sent"  # the commit's request, as a whole
ASLEEP: Final = "asleep"  # who is: the task's Python, its executor; an orphan, too
DONE_ELSEWHERE: Final = "done-elsewhere"
DECIDED: Final = "decided"
GIVEN_UP: Final = "given-up"
WENT_ON: Final = "went-on"
RAN_AGAIN: Final = "stage-ran-again"
SECOND_WORKS: Final = "second-works"
NOTE_LOST: Final = "note-lost"
BROKER_DEAD: Final = "broker-dead"
# Without these a run has not met what its point is for.
MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "driver-sent": (STRUCK, SENT),
    "executor-orphans": (STRUCK, WENT_ON),
    "executor-sleeps": (STRUCK, DONE_ELSEWHERE, GIVEN_UP, WENT_ON),
    "executor-oversleeps": (STRUCK, DECIDED, GIVEN_UP, WENT_ON),
    "stage-runs-again": (STRUCK, RAN_AGAIN),
    "second-driver": (STRUCK, SECOND_WORKS),
    "commit-note-lost": (NOTE_LOST, STRUCK),
    "broker-dies": (BROKER_DEAD,),
    "coordinator-dies": (BROKER_DEAD,),
}


def marks_of(point: str) -> tuple[str, ...]:
    return MARKS.get(point, (STRUCK,))


def sinks_of(point: str) -> tuple[str, ...]:
    """Those in which there is such a place."""
    return (STREAM, BATCH) if point in GROUP_ONLY else (STREAM, BATCH, TASK)
