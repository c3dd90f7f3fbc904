"""The thread that looks at a cluster about each second, while nodes of it are being replaced."""

import json
import time
from pathlib import Path

from fencepost.chaos.runs import watch as watches
from fencepost.chaos.runs.folder import SEEN, RunFolder
from fencepost.chaos.runs.watch import Watch


def test_a_look_that_fails_is_told_and_the_next_one_comes(tmp_path: Path, monkeypatch) -> None:
    """Without its lines nobody knows how busy the machine was: what the last of them says would excuse all that follows."""
    monkeypatch.setattr(watches, "EVERY_S", 0.01)
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    looks = iter([OSError("no such container"), {"controller": 2}])

    def ask() -> dict[str, int]:
        found = next(looks, {})
        if isinstance(found, Exception):
            raise found
        return found

    watch = Watch(folder, ask, lambda: {"acked": 7}, lambda: 1.0)
    watch.start()
    deadline = time.monotonic() + 30
    while len(folder.lines(SEEN)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.stop()
    first, second, *more = map(json.dumps, folder.lines(SEEN))
    assert more and all('"acked": 7' in line and '"load"' in line for line in (first, second))
    assert '"not_seen": "OSError: no such container"' in first
    assert '"controller": 2' in second
