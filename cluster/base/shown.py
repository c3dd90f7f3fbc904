"""**Pure**: text that strangers chose, as a log or a terminal may be shown it.

INVARIANT  what is shown has no character that steers a terminal or ends a line.
PREVENTS   a client id that wipes its line and writes another.
PROVED BY  tests/cluster/base/test_log.py::test_a_name_that_a_client_chose_steers_no_terminal_that_shows_a_line
"""


def printable(text: str) -> str:
    """The same, with escapes where a character has no shape of its own; a blank that is not the usual one, too."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
