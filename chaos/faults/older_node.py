"""A node of an older build that knows neither KIP-848 nor KIP-890: copied beside that build's files (`older.py`), and run there.

All builds of this repository have known both from their first day, so there would be no level to raise. What this takes away is
what such a build tells of itself, and the levels of a cluster that it forms: it is the simulator's `OLD` (`../sim/cluster_builds.py`).
"""

import sys
from pathlib import Path
from typing import Final

# feature -> the highest level that it knows
KNOWS: Final = {"group.version": 0, "transaction.version": 0}
HERE: Final = Path(__file__).resolve().parent


def run() -> int:
    # As node/main.py does without it; it is read only later.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from fencepost.cluster.controller import brokers_policy
    from fencepost.node import broker, main

    for module in (main, broker, brokers_policy):
        file = Path(module.__file__ or "").resolve()
        if HERE not in file.parents:
            sys.exit(f"fencepost: {file} is not of the older build in {HERE}")
    for name, level in KNOWS.items():
        low, high = broker.SUPPORTED_FEATURES[name]
        broker.SUPPORTED_FEATURES[name] = low, min(high, level)
        brokers_policy.FEATURES[name] = min(brokers_policy.FEATURES[name], level)
    return main.main()


if __name__ == "__main__":
    sys.exit(run())
