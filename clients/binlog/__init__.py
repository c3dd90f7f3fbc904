"""A database's row changes, exactly once, to topics. `pip install -e '.[binlog]'`."""

from .settings import Settings, WrongSetting
from .source import BinlogSource

__all__ = ["BinlogSource", "Settings", "WrongSetting"]
