"""The process around the ports: death, logs, settings of the machine."""

import json
import subprocess
import sys

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
