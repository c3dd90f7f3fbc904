"""The table of checks that `test_every_version.py` runs: one function an API, told the node and the version."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker

E = ErrorCode
Check = Callable[[Asker, int], None]
CHECKS: Final[dict[ApiKey, Check]] = {}
# TOPIC has three records in partition 0, at the times 1,000 to 1,002.
TOPIC, EMPTY, MISSING = "topic", "empty", "missing"
UNKNOWN_ID: Final = UUID(int=4711)


def check(key: ApiKey) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        CHECKS[key] = function
        return function

    return add


def also(key: ApiKey) -> Callable[[Check], Check]:
    """A further check of an API that an earlier table has."""

    def add(function: Check) -> Check:
        first = CHECKS[key]

        def both(node: Asker, version: int) -> None:
            first(node, version)
            function(node, version)

        CHECKS[key] = both
        return function

    return add


def codes(found: Any) -> list[ErrorCode]:
    return [each.error_code for each in found]
