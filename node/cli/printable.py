"""**Pure**: names that strangers chose, as a terminal may be shown them and as a shell takes them for one word.

INVARIANT  what is shown has no character that steers a terminal, and a command to paste has a name as one word.
PREVENTS   a client id that wipes its row and writes another; a transactional id `x; rm -rf ~` in a command to paste.
PROVED BY  tests/node/test_cli_printable.py::test_a_name_can_not_forge_a_row_or_steer_the_terminal
"""

import json
import re
import shlex
from typing import Any, Final

_BYTE_MAX, _SHORT_MAX = 0xFF, 0xFFFF
_BY_NAME: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# Where json.dumps leaves them as they are: DEL, C1's controls (CSI is one), what turns the direction of text.
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e\n]")


def printable(text: str) -> str:
    """The same, with escapes where a character has no shape of its own; a blank that is not the usual one, too."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    code = ord(character)
    if character.isprintable():
        return character
    if character in _BY_NAME:
        return _BY_NAME[character]
    if code <= _BYTE_MAX:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _SHORT_MAX else f"\\U{code:08x}"


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
