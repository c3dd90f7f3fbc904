"""**Pure**: names that strangers chose, as a shell takes them for one word, and in JSON; for a terminal see `cluster/base/shown.py`.

INVARIANT  what is shown has no character that steers a terminal, and a command to paste has a name as one word.
PREVENTS   a client id that wipes its row and writes another; a transactional id `x; rm -rf ~` in a command to paste.
PROVED BY  tests/node/test_cli_printable.py::test_a_name_can_not_forge_a_row_or_steer_the_terminal
"""

import json
import re
import shlex
from typing import Any, Final

# Where json.dumps leaves them as they are: DEL, C1's controls (CSI is one), what turns the direction of text.
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e\n]")


def quoted(name: str) -> str:
    """As one word of a command: in quotes if need be, and with bash's and zsh's escapes where nothing else can be shown."""
    if name.isprintable():
        return shlex.quote(name)
    return f"$'{''.join(map(_escaped, name))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{each:02x}" for each in character.encode(errors="surrogatepass"))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that is the same to a program, and steers no terminal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return text if text.isascii() and "\x7f" not in text else _NOT_ASCII.sub(_in_json, text)


def _in_json(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]
