"""What Linux says of this process: `/proc/self`, read when somebody asks. Elsewhere nothing is said."""

import contextlib
import os
import resource
import time

from .ports import Usage

_STAT, _FDS, _UPTIME = "/proc/self/stat", "/proc/self/fd", "/proc/uptime"
# Places in /proc/self/stat behind the name in parentheses: proc(5), counted from `state` = 0.
_UTIME, _STIME, _THREADS, _START, _VSIZE, _RSS = 11, 12, 17, 19, 20, 21


def process_usage() -> Usage | None:
    try:
        with open(_STAT, "rb") as file:
            # The name may hold spaces and parentheses itself.
            fields = file.read().rpartition(b")")[2].split()
        with open(_UPTIME, "rb") as file:
            uptime_s = float(file.read().split()[0])
    except (OSError, ValueError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    age_s = uptime_s - int(fields[_START]) / ticks
    return Usage(
        cpu_s=(int(fields[_UTIME]) + int(fields[_STIME])) / ticks,
        resident_bytes=int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[_VSIZE]),
        open_fds=_open_fds(),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=int(fields[_THREADS]),
        started_s=time.time() - age_s,
    )


def _open_fds() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(_FDS))
    return -1
