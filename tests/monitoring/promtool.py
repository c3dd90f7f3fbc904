"""Prometheus' own tool, run to its end."""

import subprocess
from pathlib import Path


def promtool(*words: str, where: Path) -> str:
    done = subprocess.run(
        ["promtool", *words], cwd=where, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, f"promtool {' '.join(words)}:\n{done.stdout}{done.stderr}"
    return done.stdout
