"""How long a process waits whose clock is wrong, or was: a deadline is a time of the clock that it was told.

Every wait of libc that has a deadline is done by a small program (waits.c), as the JVM and CPython do them.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fencepost.chaos.faults.world import World
from support.needs import give_up

SLACK_MS = 1_500  # a machine that does other things, too; a wait that went wrong is off by more


@dataclass(frozen=True, slots=True)
class Wait:
    name: str
    true_ms: float
    lied_ms: float
    turns: int


class Waits:
    def __init__(self, program: Path, world: World, ms: int) -> None:
        self.process = subprocess.Popen(
            [program, str(ms)],
            env=world.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.asked, self.told = self.process.stdin, self.process.stdout
        assert self.told.readline() == "up\n"

    def begin(self) -> None:
        self.asked.write("\n")
        self.asked.flush()

    def end(self) -> list[Wait]:
        found = []
        while (line := self.told.readline()) != "over\n":
            name, truly, lied, turns = line.split("\t")
            found.append(Wait(name, int(truly) / 1000, int(lied) / 1000, int(turns)))
        assert len(found) == 13
        return found

    def all(self) -> list[Wait]:
        self.begin()
        return self.end()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.asked.close()
        self.told.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    found = shutil.which("gcc")
    if not found:
        give_up("needs gcc: there is no `gcc` on the PATH")
    made: Path = tmp_path_factory.mktemp("waits") / "waits"
    source = Path(__file__).with_name("waits.c")
    subprocess.run([found, "-O1", "-pthread", "-o", made, source], check=True, timeout=60)
    return made


@pytest.fixture
def waits(program, world) -> Iterator[Callable[[int], Waits]]:
    made: list[Waits] = []

    def make(ms: int) -> Waits:
        made.append(Waits(program, world, ms))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("gained_s", [4.0, -1.0])
def test_a_wait_is_as_long_as_it_should_be_after_a_clock_was_wrong(world, waits, gained_s) -> None:
    """What a steady clock has gained or lost stays with its process when the fault is over."""
    world.set(steady_offset=int(gained_s * 1e9), wall_offset=int(gained_s * 1e9))
    for wait in waits(60).all():
        assert 59 <= wait.true_ms < 60 + SLACK_MS, wait


@pytest.mark.parametrize(("rate", "true_ms"), [(0.25, 240), (4.0, 15)])
def test_a_wait_goes_by_the_clock_that_is_told_while_its_rate_is_wrong(
    world, waits, rate, true_ms
) -> None:
    world.drift(wall=rate, steady=rate)
    for wait in waits(60).all():
        assert wait.lied_ms >= 59.9 and true_ms - 1 <= wait.true_ms < true_ms + SLACK_MS, wait


@pytest.mark.slow
def test_no_wait_is_over_before_its_clock_is_there(world, waits) -> None:
    """The clocks become four times as slow when the waits have begun."""
    begun = waits(120)
    begun.begin()
    time.sleep(0.03)
    world.drift(wall=0.25, steady=0.25)
    for wait in begun.end():
        assert wait.lied_ms >= 119.9 and wait.true_ms > 150, wait
        assert wait.turns <= 3, wait  # a condition variable comes back, and is asked again


@pytest.mark.slow
def test_a_wait_by_a_clock_that_was_set_back_ends_when_that_is_mended(world, waits) -> None:
    """An hour is left by the clock that was set back, and nothing when it has been set right."""
    begun = waits(150)
    begun.begin()
    time.sleep(0.05)
    world.jump(-3_600)
    time.sleep(0.3)
    world.right_clocks()
    found = begun.end()
    assert any(wait.true_ms > 300 for wait in found), found
    for wait in found:
        assert wait.true_ms < 1_400 + SLACK_MS, wait


@pytest.mark.slow
def test_a_deadline_that_is_far_away_or_none_is_left_to_libc(world) -> None:
    """292 years are the longest that CPython waits; a deadline of before 1970 is refused."""
    world.set(steady_offset=-(10**9))
    world.drift(steady=0.1)
    source = """
import ctypes, errno, sys, threading
held = threading.Lock()
held.acquire()
threading.Thread(target=lambda: (threading.Event().wait(0.05), held.release())).start()
assert held.acquire(timeout=threading.TIMEOUT_MAX)
at = (ctypes.c_long * 2)(-1, 0)
assert ctypes.CDLL(None).clock_nanosleep(1, 1, at, None) == errno.EINVAL
at = (ctypes.c_long * 2)(1, 10**9)
assert ctypes.CDLL(None).clock_nanosleep(1, 1, at, None) == errno.EINVAL
"""
    done = subprocess.run(
        [sys.executable, "-c", source], env=world.environment(), timeout=60, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize("gained_s", [4, -1])
def test_python_sleeps_and_waits_as_long_as_it_should(world, gained_s) -> None:
    world.set(steady_offset=gained_s * 10**9)
    source = "import threading, time; time.sleep(0.1); threading.Event().wait(0.1)"
    began = time.monotonic()
    command = [sys.executable, "-S", "-c", source]
    subprocess.run(command, env=world.environment(), check=True, timeout=60)
    assert 0.2 <= time.monotonic() - began < 0.2 + SLACK_MS / 1000
