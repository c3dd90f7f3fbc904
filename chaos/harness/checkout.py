"""What git says of the checkout that this code runs from: nothing where it runs from none, or where there is no git."""

import subprocess
from pathlib import Path
from typing import Final

# mypy's types are links to these files.
ROOT: Final = Path(__file__).resolve().parents[2]
GIT_S: Final = 60.0


def git(*words: str, at: Path | None = None) -> bytes | None:
    """What it printed; None when it can't."""
    command = ["git", "-C", str(at or ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def said(*words: str) -> str:
    """The same as a line of text; empty when it can't."""
    return (git(*words) or b"").decode(errors="replace").strip()


def commit() -> str:
    """Of the code that runs; with a `+` when something of it was changed since. Empty when nobody knows."""
    here = Path(__file__).resolve()
    if git("ls-files", "--error-unmatch", str(here)) is None:  # the checkout is somebody else's
        return ""
    named = said("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    if not named or changed is None:
        return ""
    return f"{named}{'+' if changed else ''}"
