"""Which code of the nodes a commit has: what was run on a commit counts for every later one that left this code as it was.

INVARIANT  two commits are of one code only when no file of Python that a node is made of differs between them. What an operator
           types (node/cli) is no part of one, but for how a node is started. A commit that nobody can look up, or with changes
           that were in no commit, is of no known code.
PREVENTS   counts that begin anew because a sentence in a README or in a command's help changed; and counts of code that is
           no longer what runs.
PROVED BY  tests/chaos/test_report_nodes_code.py
"""

from hashlib import blake2b
from typing import Final

from ..faults.older import PARTS
from ..harness import checkout

NOW: Final = "HEAD"  # as the checkout stands
UNKNOWN: Final = ""
COMMANDS: Final = "node/cli/"
# Of the commands, what a node is started with, here too.
STARTED_WITH: Final = frozenset(
    f"{COMMANDS}{name}.py"
    for name in (
        "__init__",
        "children",
        "dev_folder",
        "printable",
        "serve",
        "start",
        "start_again",
        "supervisor",
    )
)


class NodesCode:
    """Asks git once for each commit."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, commit: str) -> str:
        """The same word for the same code."""
        if commit not in self._known:
            self._known[commit] = _changed_now() if commit == NOW else _code(commit)
        return self._known[commit]


def _changed_now() -> str:
    changed = checkout.git("diff", "--name-only", "--no-renames", NOW, "--", *PARTS)
    if changed is None or any(map(_runs, changed.decode().splitlines())):
        return UNKNOWN
    return _code(NOW)


def _code(commit: str) -> str:
    """Of a hash, or of what `git describe --always --dirty` says."""
    if not commit or commit.endswith(("+", "-dirty")):
        return UNKNOWN
    listed = checkout.git("ls-tree", "-r", "--full-tree", commit, "--", *PARTS)
    files = [line for line in (listed or b"").decode().splitlines() if _runs(line.split("\t")[-1])]
    return blake2b("\n".join(files).encode(), digest_size=16).hexdigest() if files else UNKNOWN


def _runs(name: str) -> bool:
    """Whether a node runs that file, by its path in the checkout."""
    return name.endswith(".py") and (not name.startswith(COMMANDS) or name in STARTED_WITH)
