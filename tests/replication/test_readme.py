"""The README shows what the tables say."""

import pathlib
import re

from fencepost.replication.isr_machine import MAY_BECOME

README = pathlib.Path(__file__).parents[2] / "replication" / "README.md"


def test_the_diagram_is_the_table() -> None:
    drawn = re.findall(r"^ +(\w+) --> (\w+)$", README.read_text(), re.MULTILINE)
    table = [(state.__name__, to.__name__) for state, may in MAY_BECOME.items() for to in may]
    assert drawn == sorted(table)
