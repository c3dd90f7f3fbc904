"""How far a query is behind, from what Spark says of its progress: `lag_of(query.lastProgress)`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .offsets import Offsets, from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Of one source: offsets that are there and not read yet. Markers of transactions are among them."""

    total: int
    most: int  # of one partition
    by_partition: Offsets


def lag_of(progress: Any) -> list[Lag]:
    """One for each source of the format `fencepost`, in their order; takes Spark's object, or its JSON as a dictionary."""
    found = []
    for source in _field(progress, "sources") or []:
        end, latest = (_offsets(_field(source, name)) for name in ("endOffset", "latestOffset"))
        if end is not None and latest is not None:
            left = {place: max(latest[place] - end.get(place, 0), 0) for place in sorted(latest)}
            most = max(left.values(), default=0)
            found.append(Lag(total=sum(left.values()), most=most, by_partition=left))
    return found


def _field(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name)


def _offsets(told: Any) -> Offsets | None:
    """Text or a table; None for a source of another kind, or one that has not begun."""
    try:
        # PySpark makes the text "None" of what a source does not say.
        table = json.loads(told) if isinstance(told, str) else told
        return from_json(table) if isinstance(table, dict) else None
    except (AttributeError, TypeError, ValueError):
        return None
