"""The process around the ports: death, logs, settings of the machine."""

import io
import json
import subprocess
import sys

from fencepost.cluster.base.log import StreamLog

DYING = """
import asyncio
from fencepost.cluster.base.real_env import open_env

async def main():
    async with open_env() as env:
        async def broken():
            assert 1 == 2, "an epoch went backwards"
        {how}
        await asyncio.sleep(30)

try:
    asyncio.run(main())
finally:
    print("cleaned up")
"""


def died(how: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", DYING.replace("{how}", how)],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_broken_invariant_ends_the_process_with_70() -> None:
    code, out, err = died('env.tasks.spawn(broken(), name="flusher")')
    line = json.loads(err)
    assert code == 70 and out == ""
    assert line["event"] == "broken_invariant" and "an epoch went backwards" in line["traceback"]


def test_a_callback_that_raises_ends_the_process_too() -> None:
    code, _, err = died("env.clock.call_later(0.01, lambda: 1 // 0)")
    assert code == 70 and "ZeroDivisionError" in err


def test_events_are_one_json_object_a_line_for_machines() -> None:
    stream = io.StringIO()
    log = StreamLog(stream, human=False, level="info")
    log.info("started", port=9092, path="/data", odd=b"\xff")
    log.warn("slow")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "started" and first["port"] == 9092 and first["level"] == "info"
    assert first["at"].endswith("Z") and second["level"] == "warn"


def test_events_are_short_lines_for_people_and_quiet_below_the_level() -> None:
    stream = io.StringIO()
    log = StreamLog(stream, human=True, level="warn")
    log.info("started")
    log.error("disk_full", path="/data")
    assert stream.getvalue().endswith("error disk_full path=/data\n")
    assert "started" not in stream.getvalue()


def test_a_closed_standard_error_does_not_end_a_node() -> None:
    stream = io.StringIO()
    stream.close()
    StreamLog(stream, human=False).info("nobody listens")
