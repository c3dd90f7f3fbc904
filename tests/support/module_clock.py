"""A clock for some modules alone. It stands in for their own name `time`: the process's other threads keep theirs.

With `time.sleep` itself replaced, a thread that waits somewhere else no longer waits, and moves the test's clock.
"""

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def set_clock(
    monkeypatch: pytest.MonkeyPatch,
    *modules: ModuleType,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> None:
    for module in modules:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=now_s, sleep=sleep))
