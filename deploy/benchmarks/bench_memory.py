"""Memory as it is on a machine that has run for a while: full of pages that were read or written once.

A hypervisor may take back what its guest has left free for some seconds. To have it again costs the guest more than
anything a broker does with it: on the machine of the README's table 1.5 s of CPU a GB, where pages that the guest still
has cost 0.15. Whoever runs just after files were deleted would pay it, and whoever runs later would not. So before each
measured turn free memory is filled with pages that the kernel can drop at once.
"""

import os
import tempfile
from pathlib import Path

LEFT_FREE = 512 * 1024**2
STEP = 64 * 1024**2
LENGTH = 8 * 1024**4


class PageCache:
    """A sparse file that has no end: to read its holes fills pages and asks no disk."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `close` does
        self._file.truncate(LENGTH)
        # Page by page: to read ahead in large ones the kernel keeps gigabytes free.
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def fill(self) -> None:
        target = memoryview(bytearray(STEP))
        left = _kilobytes("MemTotal") * 1024
        while left > 0 and _kilobytes("MemFree") * 1024 > LEFT_FREE:
            left -= self._file.readinto(target) or left

    def close(self) -> None:
        self._file.close()


def _kilobytes(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)
