"""Commands whose standard output is on a disk that is always full."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

FULL = Path("/dev/full")
NEEDS_ONE = pytest.mark.skipif(
    not FULL.exists(), reason="only Linux has a disk that is always full"
)


def into_full(command: Sequence[str | Path]) -> tuple[int, str]:
    """Exit code, and what standard error says."""
    with FULL.open("w") as full:
        said = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    return said.returncode, said.stderr
