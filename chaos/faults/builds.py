"""Which build each node of a system runs: today's, or in a run that upgrades an older one first."""

from collections.abc import Sequence

from . import older as older_builds
from .system import NEWER, OLDER, CannotDo


class Builds:
    """`older` names a build (`older.py`); with `begins_older` all nodes begin on it."""

    def __init__(self, older: str, nodes: Sequence[int], *, begins_older: bool) -> None:
        self.why_none = older_builds.why_none(older)
        if begins_older and self.why_none:
            raise CannotDo(f"an upgrade from {older} takes {self.why_none}")
        self.older = older
        self.of: dict[int, str] = dict.fromkeys(nodes, OLDER) if begins_older else {}

    def take(self, node: int, build: str) -> None:
        assert node in self.of, "only who begins on an older build has another"
        self.of[node] = build

    def is_older(self, node: int) -> bool:
        return self.of.get(node, NEWER) == OLDER
