"""Tables of Markdown: what comes from outside is no markup in them."""

import re
from collections.abc import Iterable, Sequence

from .markup import visible


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int]) -> str:
    right = set(right)

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = "|".join("--:" if at in right else "---" for at in range(len(head)))
    return "\n".join([line(head), f"|{rule}|", *map(line, rows)]) + "\n"


def named(text: str) -> str:
    """A name from outside is no Markdown and no HTML."""
    plain = visible(re.sub(r"\s", " ", text))
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", plain)


def code(text: str) -> str:
    plain = visible(re.sub(r"\s", " ", text)).replace("`", "").replace("|", "/")
    return f"`{plain}`" if plain else ""
