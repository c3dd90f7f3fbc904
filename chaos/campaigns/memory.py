"""When memory is collected in a campaign: between two runs, and seldom within one.

INVARIANT  what a run leaves is collected before the next one begins, and what outlives runs is not looked at again.
PREVENTS   a tenth of a campaign's time spent on looking through the same modules and classes for garbage.
PROVED BY  tests/chaos/test_campaign_memory.py::test_what_a_run_leaves_is_gone_when_the_next_begins

A run makes hundreds of cycles of garbage and some ten thousand objects that live as long as it does. Python's collector, as it
comes, looked through the young ones seventy times a run and through all that is there, most of it code, nearly once a run.
"""

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

# Objects more than at the last look; and how many looks at the young ones it takes for one at the older ones. A usual run
# never comes to the first; a long one that does is kept as small as before but for these.
THRESHOLDS: Final = (50_000, 20, 50)


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
