"""What the kill runs tell their drivers (`spark_job.py`), and how the two hear of each other."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

# The sinks: a stream and batch writes in the query's group, and a stream with `transactions=task`.
STREAM, BATCH, TASK = "stream", "batch", "task"
# In the folder of a driver: its jobs, numbered from 0.
READY: Final = "ready "
ENDED: Final = "ended "
DONE: Final = "done"


@dataclass(frozen=True, kw_only=True)
class Job:
    bootstrap: str
    admin: str
    source: str
    out: str  # what the two topics' names begin with
    folder: str
    sink: str = STREAM
    strike: str = ""
    per_batch: int = 200
    batches: int = 6
    shuffled_to: int = 0  # tasks, by a shuffle before the sink; 0 is none
    has_headers: bool = False  # its rows are read and written with them
    is_slow: bool = False  # its rows come one by one, and each is large
    fails_at: int = -1  # the number of a record that can't be read, in the first start

    def write(self, file: Path) -> None:
        """Whole or not at all: its reader looks for the file's name."""
        half = file.with_suffix(".half")
        half.write_text(json.dumps(asdict(self)))
        half.rename(file)

    @classmethod
    def read(cls, file: Path) -> "Job":
        return cls(**json.loads(file.read_text()))


def scratch(folder: Path) -> dict[str, str]:
    """The environment of a JVM that may be killed: what Spark removes when it ends (`/tmp/blockmgr-…`, `artifacts-…`) is here."""
    folder.mkdir(parents=True, exist_ok=True)
    here = str(folder)
    return {
        "SPARK_LOCAL_DIRS": here,
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={here}",
    }


def job_file(folder: Path, number: int) -> Path:
    return folder / f"job-{number}.json"
