"""What was consumed, transformed and produced in transactions is there exactly once, in the order of its input.

INVARIANT  at the end every input has one output; outputs of one input partition are in its order.
PREVENTS   an input that is worked on twice because its offset was lost, or never because its offset went ahead.
PROVED BY  tests/chaos/test_txn_checkers.py::test_an_input_with_two_outputs_is_doubled

An output's `extra` is the value of its input.
"""

from collections import Counter

from .history import Anomaly
from .txn_history import Txns, final_values

INPUT, OUTPUT = "in-", "out-"


def check(history: Txns) -> list[Anomaly]:
    final = final_values(history)
    inputs = {value: each for value, each in final.items() if each.key.startswith(INPUT)}
    outputs = sorted(each for each in final.values() if each.key.startswith(OUTPUT))
    found = []
    made = Counter(each.extra for each in outputs)
    for value in sorted(inputs.keys() | made.keys()):
        if made[value] != 1 or value not in inputs:
            rule = "doubled" if made[value] > 1 else "left-out"
            rule = rule if value in inputs else "from-nothing"
            places = [(each.key, each.offset) for each in outputs if each.extra == value]
            key = inputs[value].key if value in inputs else "in"
            found.append(Anomaly(rule, key, f"input {value} has outputs at {places}"))
    newest: dict[tuple[str, str], int] = {}
    for each in outputs:
        source = inputs.get(each.extra)
        if source is None:
            continue
        place = (source.key, each.key)
        if source.offset < newest.get(place, -1) and made[each.extra] == 1:
            what = f"the output of {source.offset} comes after that of {newest[place]}"
            found.append(Anomaly("out-of-order", source.key, what))
        newest[place] = max(newest.get(place, -1), source.offset)
    return found
