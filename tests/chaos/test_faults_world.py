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
import ctypes, errno, fcntl, json, os, socket, subprocess, sys, time
folder = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *arguments):
    ctypes.set_errno(0)
    code = getattr(libc, name)(*arguments)
    return ctypes.get_errno() if code < 0 else code
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


READS = (
    "tried(os.read, a, 1)",
    "tried(os.readv, a, [bytearray(1)])",
    "tried(os.pread, a, 1, 0)",
    "tried(os.preadv, a, [bytearray(1)], 0)",
    "tried(os.sendfile, s.fileno(), a, 0, 1)",
    "tried(os.sendfile, o, a, 0, 1)",
    "tried(os.copy_file_range, a, o, 1, 0, 0)",
    "tried(os.read, os.dup(a), 1)",
    "tried(lambda: open(folder + '/a').read())",
)
# As a program calls them that was built with _FORTIFY_SOURCE, or for one signature alone: (name, arguments, what is read)
CALLS = (
    "called('__read_chk', a, room, 1, 1)",
    "called('__pread_chk', a, room, 1, ctypes.c_long(0), 1)",
    "called('__pread64_chk', a, room, 1, ctypes.c_long(0), 1)",
    "called('preadv64', a, parts, 1, ctypes.c_long(0))",
    "called('sendfile', s.fileno(), a, ctypes.byref(ctypes.c_long(0)), 1)",
)


@pytest.fixture
def open_files(child) -> None:
    """`a` lies below the folder, `o` outside; `s` and `r` are two ends of a socket, `p` and `q` of a pipe."""
    child.ask("globals().update(a=os.open(folder + '/a', os.O_RDWR | os.O_CREAT))")
    child.ask("globals().update(o=os.open(os.path.dirname(folder) + '/o', os.O_RDWR | os.O_CREAT))")
    child.ask(
        "globals().update(zip('rs', socket.socketpair()), room=ctypes.create_string_buffer(9))"
    )
    child.ask("globals().update(zip('pq', os.pipe()))")
    child.ask("globals().update(parts=(ctypes.c_size_t * 2)(ctypes.addressof(room), 1))")
    assert child.ask("[os.pwrite(fd, b'abc' * 9, 0) for fd in (a, o)]") == [27, 27]


@pytest.mark.usefixtures("open_files")
@pytest.mark.parametrize("read", [*READS, *CALLS])
def test_no_way_to_read_passes_by_a_disk_that_fails(world, child, read) -> None:
    """A fetch goes by sendfile, of a node of ours and of Kafka: what fails for pread alone strikes none."""
    world.set(read_error=errno.EIO)
    assert child.ask(read) == errno.EIO
    world.sound_disk()
    assert child.ask(read) == (1 if read in CALLS else 0)


@pytest.mark.usefixtures("open_files")
def test_what_is_read_of_others_is_left_alone(world, child) -> None:
    child.ask("os.mkfifo(folder + '/f')")
    child.ask("globals().update(f=os.open(folder + '/f', os.O_RDWR))")
    world.set(read_error=errno.EIO, full=1)
    assert child.ask("os.write(f, b'x') == len(os.read(f, 1))")
    assert child.ask("os.write(q, b'pipe') and os.read(p, 9).decode()") == "pipe"
    assert (
        child.ask("s.send(b'sent') and os.readv(r.fileno(), [room]) and room[:4].decode()")
        == "sent"
    )
    assert child.ask("tried(os.read, o, 1)") == 0
    assert child.ask("tried(os.sendfile, s.fileno(), o, 0, 1)") == 0
    assert child.ask("os.write(os.dup(o), b'x')") == 1
    assert child.ask("tried(os.posix_fallocate, o, 0, 9)") == 0
    assert child.ask("os.write(os.dup2(o, os.dup(a)), b'x')") == 1
    assert child.ask("tried(os.link, folder + '/a', os.path.dirname(folder) + '/linked')") == 0


@pytest.mark.usefixtures("open_files")
@pytest.mark.parametrize(
    "fill",
    [
        "tried(os.posix_fallocate, a, 0, 1 << 20)",
        "called('fallocate', a, 0, ctypes.c_long(0), ctypes.c_long(1 << 20))",
        "called('fallocate64', a, 0, ctypes.c_long(0), ctypes.c_long(1 << 20))",
        "tried(os.link, folder + '/a', folder + f'/b{time.monotonic()}')",
        "tried(os.sendfile, a, o, 0, 1)",
        "tried(os.copy_file_range, o, a, 1, 0, 0)",
        "tried(os.write, os.dup(a), b'x')",
        "tried(os.write, libc.dup(a), b'x')",
        "tried(os.write, os.dup2(a, 200), b'x')",
        "tried(os.write, libc.dup2(a, 201), b'x')",
        "tried(os.write, libc.dup3(a, 202, os.O_CLOEXEC), b'x')",
        "tried(os.write, fcntl.fcntl(a, fcntl.F_DUPFD, 203), b'x')",
        "tried(os.write, fcntl.fcntl(a, fcntl.F_DUPFD_CLOEXEC, 204), b'x')",
        "tried(os.write, libc.fcntl(a, fcntl.F_DUPFD, 205), b'x')",
    ],
)
def test_no_way_to_fill_it_passes_by_a_disk_that_is_full(world, child, fill) -> None:
    world.set(full=1)
    assert child.ask(fill) == errno.ENOSPC
    world.sound_disk()
    assert child.ask(fill) == 0


@pytest.mark.usefixtures("open_files")
@pytest.mark.parametrize(
    "closed",
    [
        "os.close(n)",
        "os.closerange(n, n + 1)",
        "libc.close_range(n, n, 0)",
        "libc.closefrom(n)",
        "libc.fclose(ctypes.c_void_p(fdopen(n, b'r')))",
        "os.close(n) or len(list(os.scandir(d)))",
    ],
)
def test_a_number_that_another_file_has_now_is_not_struck(world, child, closed) -> None:
    """Also when it was closed inside libc, as the end of a stream or of a folder does, or one call closed many."""
    child.ask("globals().update(fdopen=libc.fdopen, d=os.open(folder, os.O_RDONLY))")
    child.ask("setattr(fdopen, 'restype', ctypes.c_void_p)")
    child.ask("globals().update(n=os.dup(a))")
    child.ask(closed)
    assert child.ask("globals().update(m=os.memfd_create('m')) or m - n") == 0
    world.set(full=1, read_error=errno.EIO)
    assert child.ask("os.write(m, b'x')") == 1
    assert child.ask("tried(os.pread, m, 1, 0)") == 0


@pytest.mark.usefixtures("open_files")
def test_what_a_child_does_before_its_program_begins_is_not_its_parents(world, child) -> None:
    """CPython starts programs by vfork: the child has numbers of its own, and the memory of its parent."""
    child.ask("subprocess.run(['true'], stdout=a, stdin=o, close_fds=False).returncode")
    child.ask("subprocess.run(['true'], stdout=a).returncode")
    world.set(full=1)
    assert child.ask("'an answer'") == "an answer"
    assert child.ask("tried(os.write, a, b'x')") == errno.ENOSPC


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
