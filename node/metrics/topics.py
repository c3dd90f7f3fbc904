"""Which topics have metrics of their own: the setting `metrics.topics`."""

import re
from collections.abc import Callable

NONE, ALL = "none", "all"


def wanted(setting: str) -> Callable[[str], bool] | None:
    """Whether a topic is asked for; None when none is."""
    entries = [each.strip() for each in setting.split(",")]
    if ALL in entries:
        return lambda _topic: True
    patterns = [each for each in entries if each and each != NONE]
    if not patterns:
        return None
    # Any part of a name, as `*` is in a shell; everything else is itself.
    either = "|".join(".*".join(map(re.escape, each.split("*"))) for each in patterns)
    compiled = re.compile(either)
    return lambda topic: compiled.fullmatch(topic) is not None
