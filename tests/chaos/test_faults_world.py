"""What a process sees of the clock and the disk when its world lies to it."""

import errno
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from fencepost.chaos.faults.world import World

# Answers each line of Python with what it evaluates to, as JSON.
CHILD = """
import errno, json, os, sys, time
folder = sys.argv[1]
def tried(call, *arguments):
    try:
        call(*arguments)
        return 0
    except OSError as error:
        return error.errno
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class Child:
    def __init__(self, world: World) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(world.around)],
            env=world.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, expression: str):
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(expression + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        pipes: list[IO[str] | None] = [self.process.stdin, self.process.stdout]
        for pipe in pipes:
            assert pipe is not None
            pipe.close()


@pytest.fixture
def world(tmp_path, compiled) -> Iterator[World]:
    around = tmp_path / "data"
    around.mkdir()
    world = World(tmp_path / "world", around, compiled)
    yield world
    world.close()


@pytest.fixture
def child(world) -> Iterator[Child]:
    child = Child(world)
    yield child
    child.close()


def test_a_wall_clock_jumps_while_its_process_runs_and_the_steady_one_does_not(
    world, child
) -> None:
    world.jump(-3_600)
    assert child.ask("time.time()") == pytest.approx(time.time() - 3_600, abs=5)
    assert child.ask("time.monotonic()") == pytest.approx(time.monotonic(), abs=5)
    world.right_clocks()
    assert child.ask("time.time()") == pytest.approx(time.time(), abs=5)


def test_clocks_may_run_at_a_rate_of_their_own(world, child) -> None:
    world.drift(wall=1_000.0)
    before = child.ask("time.time()")
    time.sleep(0.02)
    assert child.ask("time.time()") - before >= 20


def test_the_steady_clock_never_goes_back_whatever_its_rate(world, child) -> None:
    last = child.ask("time.monotonic_ns()")
    for rate in (3.0, 0.1, 1.0, 0.5, 2.0, 0.01):
        world.drift(steady=rate)
        for _ in range(50):
            now = child.ask("time.monotonic_ns()")
            assert now >= last, rate
            last = now
    world.right_clocks()
    assert child.ask("time.monotonic_ns()") >= last


def test_a_full_disk_refuses_writes_and_new_files_and_says_that_it_is_full(world, child) -> None:
    write = "tried(lambda: open(folder + '/a', 'ab').write(b'x') and None)"
    child.ask("globals().update(a=os.open(folder + '/a', os.O_RDWR | os.O_CREAT))")
    world.set(full=1)
    assert child.ask("tried(os.pwritev, a, [b'x', b'y'], 0)") == errno.ENOSPC
    assert child.ask("tried(os.open, folder + '/b', os.O_RDWR | os.O_CREAT)") == errno.ENOSPC
    assert child.ask("tried(os.mkdir, folder + '/c')") == errno.ENOSPC
    assert child.ask("os.statvfs(folder).f_bavail") == 0
    assert child.ask("tried(os.fdatasync, a)") == 0
    world.sound_disk()
    assert child.ask("tried(os.pwritev, a, [b'x', b'y'], 0)") == 0
    assert child.ask(write) == 0


def test_calls_fail_by_kind_and_only_below_the_folder(world, child, tmp_path) -> None:
    child.ask("globals().update(a=os.open(folder + '/a', os.O_RDWR | os.O_CREAT))")
    child.ask("globals().update(o=os.open(folder + '/../o', os.O_RDWR | os.O_CREAT))")
    world.set(sync_error=errno.EIO, read_error=errno.EIO)
    assert child.ask("tried(os.fdatasync, a)") == errno.EIO
    assert child.ask("tried(os.fsync, a)") == errno.EIO
    assert child.ask("tried(os.pread, a, 1, 0)") == errno.EIO
    assert child.ask("tried(os.pwrite, a, b'x', 0)") == 0
    world.set(write_error=errno.EIO, one_in=3)
    answers = [child.ask("tried(os.pwrite, a, b'x', 0)") for _ in range(9)]
    assert sorted(answers) == [0] * 6 + [errno.EIO] * 3
    world.sound_disk()
    assert child.ask("tried(os.fsync, a)") == 0


def test_what_lies_outside_of_the_folder_is_left_alone(world, child, tmp_path) -> None:
    outside = tmp_path / "outside"
    child.ask(f"globals().update(o=os.open({str(outside)!r}, os.O_RDWR | os.O_CREAT))")
    world.set(full=1, sync_error=errno.EIO, write_error=errno.EIO)
    assert child.ask("tried(os.pwrite, o, b'x', 0)") == 0
    assert child.ask("tried(os.fsync, o)") == 0


def test_syncs_that_are_stuck_come_back_when_the_disk_does(world, child) -> None:
    child.ask("globals().update(a=os.open(folder + '/a', os.O_RDWR | os.O_CREAT))")
    world.set(slow_sync_us=30_000)
    began = time.monotonic()
    assert child.ask("tried(os.fdatasync, a)") == 0
    assert time.monotonic() - began >= 0.03


def test_another_boot_of_the_machine_has_another_id(world, child) -> None:
    read = "open('/proc/sys/kernel/random/boot_id').read()"
    first = child.ask(read)
    assert first != Path("/proc/sys/kernel/random/boot_id").read_text()
    world.new_boot_id()
    assert child.ask(read) != first
