"""The rules of the queue workload over a history of any length, in memory that hardly grows with it.

    python -m fencepost.chaos.checkers.queue_measure --operations 100000000      what it takes, measured

Three passes: by line (`queue_lines.py`), by value (`queue_values.py`), by place (`queue_places.py`, `queue_cycles.py`), with
files in a folder beside the history that is removed afterwards. The rules are those of the plain checkers, and tests compare
the two; what is allowed anyway (G0, int-send-skip) is not looked for, and a transaction of unknown fate that may fill a part
of a gap in what a group consumed is taken to fill it. What overtook another is told as `key-order`, and as `nonmonotonic-send`
too where its sender had been told of both offsets.
"""

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from .history import Anomaly
from .queue_cycles import Knots
from .queue_lines import Found, Lines
from .queue_places import Places
from .queue_values import Values
from .txn_history import Txn


def stream(file: Path, see: Callable[[Txn], None]) -> tuple[list[Anomaly], str]:
    """Anomalies, and where the history was cut short. `see` is called with each operation, in their order."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="checking-", dir=file.parent) as made:
        folder = Path(made)
        lines = Lines(folder, file.stat().st_size, found)
        with closing(lines.words):
            lines.read(file, see)
            values = Values(lines, folder, found)
            values.run()
            Places(lines, values, folder, found).run()
            Knots(lines, found).run(file)
    return found.all(), lines.cut
