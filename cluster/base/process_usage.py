"""What Linux says of this process: `/proc/self`, read when somebody asks. Elsewhere nothing is said."""

import contextlib
import os
import resource
import time
from functools import cache

from .ports import Usage

_STAT, _FDS, _UPTIME = "/proc/self/stat", "/proc/self/fd", "/proc/uptime"
# Places in /proc/self/stat behind the name in parentheses: proc(5), counted from `state` = 0.
_UTIME, _STIME, _THREADS, _START, _VSIZE, _RSS = 11, 12, 17, 19, 20, 21


def process_usage() -> Usage | None:
    try:
        with open(_STAT, "rb") as file:
            # The name may hold spaces and parentheses itself.
            fields = file.read().rpartition(b")")[2].split()
        started_s = _started_s(int(fields[_START]))
    except (OSError, ValueError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return Usage(
        cpu_s=(int(fields[_UTIME]) + int(fields[_STIME])) / ticks,
        resident_bytes=int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[_VSIZE]),
        open_fds=_open_fds(),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=int(fields[_THREADS]),
        started_s=started_s,
    )


@cache
def _started_s(start_ticks: int) -> float:
    """Once: asked again it would be another by the kernel's rounding, or by a clock that was set, and look like a restart."""
    with open(_UPTIME, "rb") as file:
        uptime_s = float(file.read().split()[0])
    return time.time() - uptime_s + start_ticks / os.sysconf("SC_CLK_TCK")


def _open_fds() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(_FDS))
    return -1
