"""In a part of the seeds consumers read from replicas that follow, too, as those do that name their rack (KIP-392).

It is in them by dice of its own: a seed without it is the run that it was. `--workloads followers` asks for it. Which replica a node
would name to a consumer of a rack is not looked at here (`tests/node/test_read_replica_policy.py`): any that Metadata names is asked.
"""

import random
from collections.abc import Callable
from typing import Final

from .plan import Plan

FOLLOWERS: Final = "followers"
SEEDS_ODDS: Final = 0.25
READS_ODDS: Final = 0.6


def follower_odds(plan: Plan, stream: Callable[[str], random.Random]) -> float:
    """How often a consumer asks one that follows."""
    return READS_ODDS if plan.has_scene(FOLLOWERS, SEEDS_ODDS, stream(FOLLOWERS)) else 0.0
