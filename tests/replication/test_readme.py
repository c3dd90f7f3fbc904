"""The README shows what the tables say."""

import pathlib
import re

from fencepost.replication import follower_machine
from fencepost.replication.isr_machine import MAY_BECOME

README = pathlib.Path(__file__).parents[2] / "replication" / "README.md"


def drawn(number: int) -> list[tuple[str, str]]:
    diagrams = re.findall(r"```mermaid\n(.*?)```", README.read_text(), re.DOTALL)
    return re.findall(r"^ +(\w+) --> (\w+)$", diagrams[number], re.MULTILINE)


def test_the_diagram_of_the_isr_is_the_table() -> None:
    table = [(state.__name__, to.__name__) for state, may in MAY_BECOME.items() for to in may]
    assert drawn(1) == sorted(table)


def test_the_diagram_of_a_follower_is_the_table() -> None:
    table = [
        (phase.name, to.name) for phase, may in follower_machine.MAY_BECOME.items() for to in may
    ]
    assert sorted(drawn(0)) == sorted(table)
