"""Who listens and who dials on this machine, read from /proc. Linux only."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # a JVM's IPv4 is in the second
LISTEN: Final = "0A"  # net/tcp_states.h
LOCAL, REMOTE, STATE, INODE = 1, 2, 3, 9  # columns


def _rows() -> list[list[str]]:
    return [
        line.split()
        for table in TABLES
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]


def _port(address: str) -> int:
    return int(address[address.rindex(":") + 1 :], 16)


def listening_ports() -> frozenset[int]:
    return frozenset(_port(row[LOCAL]) for row in _rows() if row[STATE] == LISTEN)


def dialing_process(port: int, to_port: int, pids: Mapping[int, int]) -> int | None:
    """Whose connection it is that comes from `port`: the number of that process among `pids`, or None."""
    ends = (f"{port:04X}", f"{to_port:04X}")
    for row in _rows():
        if row[LOCAL].endswith(ends[0]) and row[REMOTE].endswith(ends[1]):
            return _holder(f"socket:[{row[INODE]}]", pids)
    return None


def _holder(socket: str, pids: Mapping[int, int]) -> int | None:
    for number, pid in pids.items():
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - a Path for each of a thousand is slow
        except (FileNotFoundError, ProcessLookupError):
            continue
        for name in names:
            try:
                if os.readlink(f"{folder}/{name}") == socket:  # noqa: PTH115
                    return number
            except (FileNotFoundError, ProcessLookupError):
                continue
    return None
