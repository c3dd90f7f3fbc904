"""stub"""

from dataclasses import dataclass
from typing import Any


@dataclass
class CompactionStats:
    x: int = 0


async def compact(log: Any, now_ms: int, last_stable_offset: int) -> CompactionStats:
    return CompactionStats()
