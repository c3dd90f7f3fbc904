"""The places where the kill runs strike. The first word says who is struck. (`spark_strikes.py` has the blows.)"""

from typing import Final

POINTS: Final = {
    "task-starts": "an attempt fails before it writes",
    "task-halfway": "an attempt fails in the middle of its rows",
    "task-wrote": "an attempt fails when all is written",
    "worker-halfway": "a task's Python dies in the middle of its rows",
    "worker-wrote": "a task's Python dies when all is written",
    "executor-halfway": "an executor dies in the middle of a task's rows",
    "executor-wrote": "an executor dies when a task has written",
    "host-halfway": "a worker of Spark dies with its executor in the middle of a task's rows",
    "host-wrote": "a worker of Spark dies with its executor when a task has written",
    "twin-sleeps": "an attempt sleeps when all is written, until its speculative copy has won",
    "job-fails": "all attempts of a task fail: the batch is aborted",
    "driver-aborts": "the driver dies as it begins to abort such a batch",
    "driver-aborted": "the driver dies when it has aborted such a batch",
    "driver-starts": "the driver dies as a task begins: what was before is noted, nothing of this batch is written",
    "driver-halfway": "the driver dies in the middle of a task's rows",
    "driver-wrote": "the driver dies when a task has written",
    "driver-commits": "the driver dies before it asks for the commit",
    "driver-sent": "the driver dies while it waits for the answer",
    "driver-decided": "the driver dies when it has the answer",
    "driver-listed": "the driver dies when it has looked for what lost attempts left open",
    "driver-fences": "the driver dies as it ends what a lost attempt left open",
    "driver-committed": "the driver dies before Spark notes the commit",
}
BROKER_POINTS: Final = {
    "broker-dies": "any node, in the middle of a batch",
    "coordinator-dies": "the node that coordinates the group",
}
