"""What clients are told of their groups' positions in a long history, judged as in a short one."""

import pytest
from fencepost.chaos.checkers import torn_transactions
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_stream import stream
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from test_queue_stream import rules, written


def told_meanwhile(number: int, at: int, began_s: float) -> Txn:
    op = Txn("position", "ok", "a", began_s=began_s, ended_s=began_s + 0.5)
    op.offsets, op.writers = {"g|t0-0": at}, {"g|t0-0": number}
    return op


def moved(number: int, at: int, *, kind: str = "ok", ended_s: float) -> Txn:
    sends = [Sent("t0-1", number * 10, number if kind == "ok" else None)]
    op = Txn("txn", kind, "a", number, sends, offsets={"g|t0-0": at})
    op.began_s, op.ended_s = ended_s - 1, ended_s
    return op


MEANWHILE = {
    "nothing yet": (told_meanwhile(-1, -1, 0.5), set()),
    "what is committed": (told_meanwhile(2, 6, 20.5), set()),
    "what was committed when it was asked": (told_meanwhile(1, 3, 19.9), set()),
    "less than is committed": (told_meanwhile(1, 3, 20.5), {"torn-offset"}),
    "nothing any more": (told_meanwhile(-1, -1, 20.5), {"torn-offset"}),
    "what failed": (told_meanwhile(3, 9, 30.5), {"torn-offset"}),
    "elsewhere": (told_meanwhile(2, 5, 20.5), {"torn-offset"}),
    "nobody's": (told_meanwhile(77, 6, 20.5), {"torn-offset"}),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_is_told_of_positions_meanwhile_is_judged_in_a_long_history_too(
    tmp_path, what
) -> None:
    asked, expected = MEANWHILE[what]
    history = [moved(1, 3, ended_s=10.0), moved(2, 6, ended_s=20.0)]
    history += [moved(3, 9, kind="fail", ended_s=30.0), asked]
    history.sort(key=lambda op: op.ended_s)
    final = Txn("read", "ok", FINAL, polls=[Polled("t0-1", n, n * 10, n) for n in (1, 2)])
    final.began_s = final.ended_s = 90.0
    end = Txn("position", "ok", FINAL, began_s=91.0, ended_s=91.0)
    end.offsets, end.writers = {"g|t0-0": 6}, {"g|t0-0": 2}
    file = written(tmp_path, [*history, final, end])
    plain = rules(torn_transactions.check([*history, final, end]))
    found, _ = stream(file, lambda _: None)
    assert rules(found) == plain == expected
