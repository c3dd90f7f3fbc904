"""The syntax of regular expressions that Kafka's coordinator takes (RE2, as RE2/J reads it), as a tree.

Only what can be in a topic's name matters, so a set of characters is a number with 128 bits, bit c for the
character c. A character beyond ASCII is legal in an expression and matches nothing.
The words of an error are RE2/J's: Kafka hands them to the client, and people search for them.
"""

from dataclasses import dataclass
from typing import Final

from .regex_classes import (
    ALL,
    FOLDED_BEYOND_ASCII,
    PERL,
    POSIX,
    folded,
    span,
    unicode_class,
)

INVALID_RANGE: Final = "invalid character class range"
INVALID_ESCAPE: Final = "invalid escape sequence"
INVALID_NAME: Final = "invalid named capture"
DUPLICATE_NAME: Final = "duplicate capture group name"
INVALID_PERL: Final = "invalid or unsupported Perl syntax"
INVALID_REPEAT_OP: Final = "invalid nested repetition operator"
INVALID_REPEAT_SIZE: Final = "invalid repeat count"
MISSING_BRACKET: Final = "missing closing ]"
MISSING_PAREN: Final = "missing closing )"
MISSING_REPEAT_ARGUMENT: Final = "missing argument to repetition operator"
STRAY_PAREN: Final = "regexp/syntax: internal error"
TRAILING_BACKSLASH: Final = "trailing backslash at end of expression"
# Ours: RE2/J has no such bound, and a tree that nests for ever ends a Python process.
TOO_DEEP: Final = "expression nests too deeply"

REPEAT_MAX: Final = 1000  # RE2's own limit
DEPTH_MAX: Final = 100

_ESCAPED_PLACES: Final = {"A": "start", "z": "end", "b": "word_edge", "B": "no_word_edge"}
_CONTROL: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


class RegexRefused(ValueError):
    """The expression is not one; `args[0]` says why in RE2/J's words."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class At:
    """A place between characters: `start`, `end`, `line_start`, `line_end`, `word_edge`, `no_word_edge`."""

    place: str


@dataclass(frozen=True, slots=True)
class Concat:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """`part` at least `low` times and at most `high`; None is without end."""

    part: "Node"
    low: int
    high: int | None


Node = Chars | At | Concat | Either | Repeat
EMPTY: Final = Concat(())


@dataclass(frozen=True, slots=True)
class _Flags:
    fold: bool = False
    lines: bool = False
    dot_all: bool = False


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.flags = _Flags()
        self.names: set[str] = set()

    # ---- the text -------------------------------------------------------------------------

    def more(self) -> bool:
        return self.at < len(self.text)

    def sees(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def take(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    # ---- alternatives, sequences, repetitions ---------------------------------------------

    def expression(self) -> Node:
        """Up to the end or to the `)` that closes this group."""
        alternatives = [self.sequence()]
        while self.sees("|"):
            self.at += 1
            alternatives.append(self.sequence())
        return alternatives[0] if len(alternatives) == 1 else Either(tuple(alternatives))

    def sequence(self) -> Node:
        parts: list[Node] = []
        just_repeated = False
        while self.more() and not (self.sees("|") or self.sees(")")):
            bounds = self.repetition()
            if bounds is None:
                # RE2/J takes a `{` that stands for itself for a repetition when one follows it.
                just_repeated = self.sees("{")
                parts.extend(self.atom())
                continue
            if just_repeated:
                raise RegexRefused(INVALID_REPEAT_OP)
            if not parts:
                raise RegexRefused(MISSING_REPEAT_ARGUMENT)
            parts[-1] = Repeat(parts[-1], *bounds)
            just_repeated = True
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def repetition(self) -> tuple[int, int | None] | None:
        """The bounds of the repetition that starts here; None, and nothing taken, when none does."""
        if not self.more():
            return None
        bounds: tuple[int, int | None] | None
        match self.text[self.at]:
            case "*":
                bounds, size = (0, None), 1
            case "+":
                bounds, size = (1, None), 1
            case "?":
                bounds, size = (0, 1), 1
            case "{":
                bounds, size = self.counted()
            case _:
                return None
        if bounds is None:
            return None
        self.at += size
        if self.sees("?"):  # which of several matches it prefers does not matter here
            self.at += 1
        return bounds

    def counted(self) -> tuple[tuple[int, int | None] | None, int]:
        """`{n}`, `{n,}` or `{n,m}` and its length; what is not of that form stands for itself."""
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_count(low) or not (high == "" or _is_count(high)):
            return None, 0
        least = _count(low)
        most = (_count(high) if high else None) if comma else least
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise RegexRefused(INVALID_REPEAT_SIZE)
        return (least, most), end + 1 - self.at

    # ---- atoms ----------------------------------------------------------------------------

    def atom(self) -> tuple[Node, ...]:
        """What starts here: one node, none for what only sets flags, one a character for a quote."""
        match self.take():
            case "(":
                return self.group()
            case "[":
                return (Chars(self.char_class()),)
            case ".":
                return (Chars(ALL if self.flags.dot_all else ALL & ~(1 << 10)),)
            case "^":
                return (At("line_start" if self.flags.lines else "start"),)
            case "$":
                return (At("line_end" if self.flags.lines else "end"),)
            case "\\":
                return self.escape()
            case char:
                return (self.literal(ord(char)),)

    def literal(self, code: int) -> Chars:
        return Chars(self.fold(span(code, code), code, code))

    def fold(self, mask: int, low: int, high: int) -> int:
        if not self.flags.fold:
            return mask
        for code, twins in FOLDED_BEYOND_ASCII.items():
            if low <= code <= high:
                mask |= twins
        return folded(mask)

    def group(self) -> tuple[Node, ...]:
        outer = self.flags
        if self.sees("?"):
            self.at += 1
            if not (self.named() or self.flag_group()):
                return ()
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise RegexRefused(TOO_DEEP)
        node = self.expression()
        if not self.sees(")"):
            raise RegexRefused(MISSING_PAREN)
        self.at += 1
        self.depth -= 1
        self.flags = outer
        return (node,)

    def named(self) -> bool:
        """`(?P<name>` or `(?<name>`: taken, and true."""
        if self.sees("P<"):
            start = self.at + 2
        elif self.sees("<"):
            start = self.at + 1
        else:
            return False
        end = self.text.find(">", start)
        name = self.text[start : max(end, 0)]
        if end < 0 or not name or not all(c == "_" or (c.isascii() and c.isalnum()) for c in name):
            raise RegexRefused(INVALID_NAME)
        if name in self.names:
            raise RegexRefused(DUPLICATE_NAME)
        self.names.add(name)
        self.at = end + 1
        return True

    def flag_group(self) -> bool:
        """`(?flags)` sets flags up to the end of the group around it; `(?flags:` opens one (true)."""
        flags = self.flags
        value, changed, negated = True, False, False
        while self.more():
            char = self.take()
            if char in "imsU":
                changed = True
                fold = value if char == "i" else flags.fold
                lines = value if char == "m" else flags.lines
                flags = _Flags(fold, lines, value if char == "s" else flags.dot_all)
            elif char == "-" and not negated:
                value, negated, changed = False, True, False
            elif char in ":)" and (changed or not negated):
                self.flags = flags
                return char == ":"
            else:
                break
        raise RegexRefused(INVALID_PERL)

    def escape(self) -> tuple[Node, ...]:
        if not self.more():
            raise RegexRefused(TRAILING_BACKSLASH)
        char = self.text[self.at]
        if char in _ESCAPED_PLACES:
            self.at += 1
            return (At(_ESCAPED_PLACES[char]),)
        if char == "Q":
            end = self.text.find("\\E", self.at)
            text = self.text[self.at + 1 : end if end >= 0 else len(self.text)]
            self.at = end + 2 if end >= 0 else len(self.text)
            return tuple(self.literal(ord(quoted)) for quoted in text)
        mask = self.escaped_class()
        return (Chars(mask) if mask is not None else self.literal(self.escaped_char()),)

    def escaped_class(self) -> int | None:
        """`\\d`, `\\pL`, `\\p{Greek}` …, after the backslash; None when it is another escape."""
        char = self.text[self.at]
        if char in PERL:
            self.at += 1
            return PERL[char]
        if char not in "pP":
            return None
        self.at += 1
        if not self.more():
            raise RegexRefused(INVALID_RANGE)
        name = self.take()
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise RegexRefused(INVALID_RANGE)
            name = self.text[self.at : end]
            self.at = end + 1
        negated = char == "P"
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        mask = unicode_class(name)
        if mask is None:
            raise RegexRefused(INVALID_RANGE)
        mask = folded(mask) if self.flags.fold else mask
        return ALL & ~mask if negated else mask

    def escaped_char(self) -> int:
        if not self.more():
            raise RegexRefused(TRAILING_BACKSLASH)
        char = self.take()
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self.hexadecimal()
        if char in "01234567" and (
            char == "0" or (self.more() and self.text[self.at] in "01234567")
        ):
            digits = char
            while len(digits) < 3 and self.more() and self.text[self.at] in "01234567":
                digits += self.take()
            return int(digits, 8)
        if not (char.isascii() and char.isalnum()):
            return ord(char)
        raise RegexRefused(INVALID_ESCAPE)

    def hexadecimal(self) -> int:
        if self.sees("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at + 1 : max(end, 0)]
            self.at = end + 1
        else:
            digits = self.text[self.at : self.at + 2]
            self.at += 2
            end = 0 if len(digits) == 2 else -1
        if end < 0 or not digits or any(c not in "0123456789abcdefABCDEF" for c in digits):
            raise RegexRefused(INVALID_ESCAPE)
        if len(digits.lstrip("0")) > 6 or int(digits, 16) > 0x10FFFF:
            raise RegexRefused(INVALID_ESCAPE)
        return int(digits, 16)

    # ---- classes --------------------------------------------------------------------------

    def char_class(self) -> int:
        negated = self.sees("^")
        self.at += negated
        mask = 0
        first = True
        while first or not self.sees("]"):
            if not self.more():
                raise RegexRefused(MISSING_BRACKET)
            first = False
            mask |= self.class_item()
        self.at += 1
        return ALL & ~mask if negated else mask

    def class_item(self) -> int:
        if self.sees("[:"):
            end = self.text.find(":]", self.at + 2)
            if end >= 0:
                name = self.text[self.at + 2 : end]
                self.at = end + 2
                if name.removeprefix("^") not in POSIX:
                    raise RegexRefused(INVALID_RANGE)
                mask = POSIX[name.removeprefix("^")]
                mask = folded(mask) if self.flags.fold else mask
                return ALL & ~mask if name.startswith("^") else mask
        if self.sees("\\") and self.at + 1 < len(self.text):
            self.at += 1
            named = self.escaped_class()
            if named is not None:
                return named
            self.at -= 1
        low = high = self.class_char()
        if self.sees("-") and self.at + 1 < len(self.text) and self.text[self.at + 1] != "]":
            self.at += 1
            high = self.class_char()
            if high < low:
                raise RegexRefused(INVALID_RANGE)
        return self.fold(span(low, high), low, high)

    def class_char(self) -> int:
        if not self.more():
            raise RegexRefused(MISSING_BRACKET)
        char = self.take()
        return self.escaped_char() if char == "\\" else ord(char)


def _is_count(digits: str) -> bool:
    # RE2 reads no leading zeros: what has them stands for itself.
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")


def _count(digits: str) -> int:
    return int(digits) if len(digits) <= 6 else REPEAT_MAX + 1


def parse(text: str) -> Node:
    """The tree of an expression, or RegexRefused."""
    parser = _Parser(text)
    node = parser.expression()
    if parser.more():
        raise RegexRefused(STRAY_PAREN)
    return node
