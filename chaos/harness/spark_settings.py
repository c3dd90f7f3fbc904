"""What the kill runs tell their job (`spark_job.py`)."""

import json
import sys
from dataclasses import asdict, dataclass

STREAM, BATCH = "stream", "batch"


@dataclass(frozen=True, kw_only=True)
class Job:
    bootstrap: str
    admin: str
    source: str
    out: str  # what the two topics' names begin with
    folder: str
    sink: str = STREAM
    master: str = "local[2,4]"
    strike: str = ""
    per_batch: int = 200
    batches: int = 6
    speculation: bool = False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "fencepost.chaos.harness.spark_job", json.dumps(asdict(self))]
