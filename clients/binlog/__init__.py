"""A database's row changes, exactly once, to topics. `pip install -e '.[binlog]'`.

Only the source itself needs that extra's drivers, so it is imported when it is asked for: positions and what reads a topic
(`kept_positions.py`, `reading.py`) serve others, too, and do with a Kafka client.
"""

from typing import TYPE_CHECKING, Any

from .settings import Settings, WrongSetting

if TYPE_CHECKING:
    from .source import BinlogSource

__all__ = ["BinlogSource", "Settings", "WrongSetting"]


def __getattr__(name: str) -> Any:
    if name != "BinlogSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .source import BinlogSource

    return BinlogSource
