"""A trace can be read by a person."""

import pytest
from fencepost.chaos.campaigns.show import Wanted, shown, strangers
from fencepost.node.main import main

TRACE = [
    "0.000000000 node-1 world.start number=1 boot=1",
    "0.100000000 node-1 disk.append path=/data/x at=0 size=4 crc=9",
    "0.200000000 node-1 log.info event=isr_shrinks fields={'partition': 'stream-0', 'isr': [1, 2]}",
    "0.300000000 chaos kill number=3",
    "0.400000000 node-2 log.warn event=broker_not_registered_yet fields={'reason': 'no leader'}",
    "0.500000000 node-2 log.warn event=broker_not_registered_yet fields={'reason': 'no leader'}",
    "0.600000000 node-2 log.warn event=broker_not_registered_yet fields={'reason': 'no leader'}",
    "0.700000000 node-2 world.down machine_stays=True",
]


def test_logs_are_sentences_small_events_are_left_out_and_repetitions_counted() -> None:
    assert list(shown(TRACE, Wanted())) == [
        "   0.000000s  node-1     world.start number=1 boot=1",
        "   0.200000s  node-1     isr shrinks: partition 'stream-0', isr [1, 2]",
        "   0.300000s  chaos      kill number=3",
        "   0.400000s  node-2     ! broker not registered yet: reason 'no leader'",
        "                         … 2 more like this",
        "   0.700000s  node-2     world.down machine_stays=True",
    ]


def test_who_when_and_everything_can_be_asked_for() -> None:
    of_one = list(shown(TRACE, Wanted(everything=True, who=("node-1",))))
    assert len(of_one) == 3
    assert "disk.append" in of_one[1]
    later = list(shown(TRACE, Wanted(from_s=0.25, to_s=0.35)))
    assert later == ["   0.300000s  chaos      kill number=3"]


def test_who_is_in_no_trace_is_named_with_all_who_are() -> None:
    assert strangers(TRACE, ("chaos", "node-2")) == "" == strangers(TRACE, ())
    assert strangers(TRACE, ("node-1", "nobody")) == (
        "--who 'nobody': nobody has that name in this run; there are: chaos, node-1, node-2"
    )


@pytest.mark.slow
def test_a_seed_in_which_nobody_has_a_name_is_not_shown_as_an_empty_one(capsys) -> None:
    """It was shown as one in which nothing happened, with exit code 0."""
    words = ["sim", "show", "--campaign", "one-node", "--seeds", "1", "--seconds", "2", "--who"]
    assert main([*words, "nobody"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "nobody has that name in this run; there are: " in told.err and ", node\n" in told.err
    assert main([*words, "chaos"]) == 0
    assert "  chaos " in capsys.readouterr().out
    assert main([*words, "chaos", "--from", "900"]) == 0
    assert capsys.readouterr().out.startswith("nothing is shown: ")
