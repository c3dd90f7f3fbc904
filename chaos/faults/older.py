"""An older build of Fencepost: a commit of this checkout's history, or a folder that somebody has kept, and how its nodes start.

INVARIANT  a node that is started here runs the code of that build and no line of ours, or does not start.
PREVENTS   an upgrade from today's build to today's build.
PROVED BY  tests/chaos/test_faults_older.py::test_a_node_that_would_run_another_build_does_not_start
"""

import io
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..harness import checkout
from ..harness.processes import DidNotStart

# Of before the newest change of a stored record (GroupDecided's note, dacd8f6). The three nodes that were measured beside Kafka 4.3
# are of it (367175f).
OLDER: Final = "d2b95e5"
PARTS: Final = ("cluster", "replication", "txn", "node")  # what a node is made of
NODE: Final = "older_node.py"  # how it starts


def why_none(older: str) -> str:
    """A sentence if this machine has no such build."""
    if Path(older).is_dir():
        if _packages(Path(older)) is None:
            return f"{older} holds no build: there is no node/main.py in it, nor a fencepost/node/main.py"
        return ""
    if shutil.which("git") is None:
        return f"git, to take {older} out of the history"
    if checkout.git("rev-parse", "--show-toplevel") is None:
        return f"a checkout with its history, to take {older} from ({checkout.ROOT} is none); or --older DIR"
    if checkout.git("cat-file", "-e", f"{older}^{{commit}}") is None:
        return f"a history that has commit {older} (this one is cut short); or --older DIR"
    return ""


def called(older: str) -> str:
    """As a person finds it again."""
    if Path(older).is_dir():
        return older
    return checkout.said("rev-parse", "--short", f"{older}^{{commit}}") or older


def make(older: str, into: Path) -> None:
    """Its files, in a folder that is not there yet; DidNotStart when they can't be had."""
    parts = into / "fencepost"
    parts.mkdir(parents=True)
    if Path(older).is_dir():
        packages = _packages(Path(older))
        assert packages is not None, f"{older} holds no build"
        for name in PARTS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(packages / name, parts / name, ignore=ignored)
    else:
        top = checkout.said("rev-parse", "--show-toplevel")
        # As zip: of a tar file Python extracts what it should not, before 3.11.4 and without a word.
        archive = top and checkout.git("archive", "--format=zip", older, *PARTS, at=Path(top))
        if not archive:
            raise DidNotStart(f"git can't take {', '.join(PARTS)} out of {older}")
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            files.extractall(parts)
    shutil.copy(Path(__file__).with_name(NODE), into / NODE)


def command(made: Path) -> list[str]:
    """In place of `node_command`: the folder of the script is the first in which Python looks."""
    return [sys.executable, str(made / NODE), "serve"]


def _packages(folder: Path) -> Path | None:
    """A checkout has them at its root; where they are installed they are in `fencepost`."""
    both: Sequence[Path] = (folder, folder / "fencepost")
    return next((each for each in both if (each / "node" / "main.py").is_file()), None)
