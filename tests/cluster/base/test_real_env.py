"""The process around the ports: death, logs, settings of the machine."""

import json
import subprocess
import sys

DYING = """
import asyncio, os
from fencepost.cluster.base.real_env import open_env

def fails(number):
    raise OSError(number, os.strerror(number))

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


def test_a_disk_that_fails_ends_the_process_with_74_and_a_sentence() -> None:
    code, _, err = died("env.clock.call_later(0.01, lambda: fails(5))")
    line = json.loads(err)
    assert code == 74 and line["event"] == "node_ends" and "fails" in line["traceback"]
    assert line["cause"].startswith("OSError(5, 'Input/output error'). This comes from the machine")


def test_a_descriptor_that_is_none_is_a_mistake_of_this_program() -> None:
    code, _, err = died("env.clock.call_later(0.01, lambda: fails(9))")
    assert code == 70 and json.loads(err)["event"] == "broken_invariant"


def test_a_callback_that_raises_ends_the_process_too() -> None:
    code, _, err = died("env.clock.call_later(0.01, lambda: 1 // 0)")
    assert code == 70 and "ZeroDivisionError" in err
