"""The tree as the tidy tests see it: every Python file of the product, parsed once."""

import ast
import functools
import pathlib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("cluster", "replication", "txn", "node", "clients", "chaos")


@dataclass(frozen=True)
class Source:
    path: pathlib.PurePosixPath  # relative to the root
    text: str
    tree: ast.Module

    @property
    def top(self) -> str:
        return self.path.parts[0]

    @property
    def package(self) -> tuple[str, ...]:
        return self.path.parts[:-1]


def parse(path: str, text: str) -> Source:
    return Source(pathlib.PurePosixPath(path), text, ast.parse(text))


@functools.cache
def sources() -> tuple[Source, ...]:
    found = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    return tuple(
        parse(str(p.relative_to(ROOT)), p.read_text())
        for p in sorted(found)
        if "node_modules" not in p.parts
    )


def imports_of(source: Source) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of every import; ours come out as `fencepost.…`."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ("fencepost", *source.package)
                package = package[: len(package) - (node.level - 1)]
                base = ".".join((*package, base)) if base else ".".join(package)
            names += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return names
