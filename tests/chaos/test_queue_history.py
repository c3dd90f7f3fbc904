"""Histories that are cut short are read as far as they go."""

import io

from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, WholeLines, to_line

OPS = [
    Txn("send", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)], began_s=1.0, ended_s=1.5),
    Txn(
        "read",
        "ok",
        "b",
        polls=[Polled("t0-0", 0, 8, 1)],
        rebalanced=["t0-1"],
        shown=[Polled("t0-1", 3, 24, 3)],
    ),
]
BYTES = "".join(f"{to_line(op)}\n" for op in OPS).encode()

# An operation that no rule asks for would be passed over by all of them.
GARBLED = [
    b'{"f": "zzz", "type": "ok", "process": "a"}\n',
    b'{"f": "txn", "type": "OK", "process": "a"}\n',
    b'{"f": ["txn"], "type": "ok", "process": "a"}\n',
]


def test_a_whole_history_is_read_with_its_line_numbers() -> None:
    lines = WholeLines(io.BytesIO(BYTES))
    assert list(lines) == OPS
    assert [op.line for op in WholeLines(io.BytesIO(BYTES))] == [1, 2]
    assert lines.cut == ""


def test_a_history_whose_last_line_is_torn_is_read_up_to_there_and_called_cut() -> None:
    for cut in (1, 2, 40):  # without its end alone the line is sound, and not read all the same
        lines = WholeLines(io.BytesIO(BYTES[:-cut]))
        assert list(lines) == OPS[:1]
        assert lines.cut.startswith("line 2 has no end")


def test_a_line_that_is_no_operation_ends_a_history_there() -> None:
    for wrong in (b"}{\n", b'{"f": "send"}\n', b'{"colour": 1}\n', b"[]\n", *GARBLED):
        lines = WholeLines(io.BytesIO(BYTES + wrong + BYTES))
        assert list(lines) == OPS
        assert lines.cut.startswith("line 3 is no operation")
