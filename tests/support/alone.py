"""Times that only a machine can be held to which does nothing else: `make test-alone`."""

import os
from typing import Final

_BESIDE_OTHERS: Final = 5.0


def held_to(seconds: float) -> float:
    """So long; beside other tests, which may have all cores for a while, five times that, so that it ends at all."""
    return seconds if os.environ.get("FENCEPOST_TEST_ALONE") else _BESIDE_OTHERS * seconds
