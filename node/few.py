"""The first few of many names, for a sentence."""

from collections.abc import Sequence
from typing import Final

NAMED_MAX: Final = 3


def few(names: Sequence[str]) -> str:
    """`a-0, a-1, a-2 and 7 more`."""
    named = ", ".join(names[:NAMED_MAX])
    more = len(names) - NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
