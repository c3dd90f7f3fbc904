"""A value is at one offset of one partition, and an offset holds one value, whoever looks and when.

INVARIANT  no value is at two offsets, no offset holds two values.
PREVENTS   a retry that a transaction wrote twice, and a log that two readers see differently.
PROVED BY  tests/chaos/test_txn_checkers.py::test_a_value_at_two_offsets_is_a_duplicate
"""

from collections import defaultdict

from .history import Anomaly
from .txn_history import Log, Txns


def check(history: Txns) -> list[Anomaly]:
    found = []
    log = Log(history)
    for key in sorted(log.at):
        places = defaultdict(list)
        for offset, values in sorted(log.at[key].items()):
            if len(values) > 1:
                what = f"offset {offset} holds {sorted(values)}"
                found.append(Anomaly("inconsistent-offsets", key, what, log.lines(values)))
            for value in values:
                places[value].append(offset)
        for value, offsets in sorted(places.items()):
            if len(offsets) > 1:
                what = f"value {value} is at {offsets}"
                found.append(Anomaly("duplicate", key, what, log.lines([value])))
    return found
