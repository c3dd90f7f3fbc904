"""Sets of ASCII characters by the names that RE2 has for them, each a number with bit c for character c."""

import unicodedata
from functools import cache
from typing import Final

ALL: Final = (1 << 128) - 1


def span(low: int, high: int) -> int:
    """All characters from `low` to `high`, as far as they are ASCII."""
    high = min(high, 127)
    return 0 if low > high else (1 << (high + 1)) - (1 << low)


def chars(text: str) -> int:
    mask = 0
    for char in text:
        mask |= 1 << ord(char)
    return mask


_LOWER: Final = span(ord("a"), ord("z"))
_UPPER: Final = span(ord("A"), ord("Z"))
_DIGIT: Final = span(ord("0"), ord("9"))
WORD: Final = _LOWER | _UPPER | _DIGIT | chars("_")
_SPACE: Final = chars("\t\n\f\r ")
_GRAPH: Final = span(0x21, 0x7E)

PERL: Final = {
    "d": _DIGIT,
    "s": _SPACE,
    "w": WORD,
    "D": ALL & ~_DIGIT,
    "S": ALL & ~_SPACE,
    "W": ALL & ~WORD,
}
POSIX: Final = {
    "alnum": _LOWER | _UPPER | _DIGIT,
    "alpha": _LOWER | _UPPER,
    "ascii": ALL,
    "blank": chars("\t "),
    "cntrl": span(0, 31) | 1 << 127,
    "digit": _DIGIT,
    "graph": _GRAPH,
    "lower": _LOWER,
    "print": _GRAPH | chars(" "),
    "punct": _GRAPH & ~(_LOWER | _UPPER | _DIGIT),
    "space": chars("\t\n\v\f\r "),
    "upper": _UPPER,
    "word": WORD,
    "xdigit": _DIGIT | span(ord("a"), ord("f")) | span(ord("A"), ord("F")),
}
# Two characters beyond ASCII whose other case is in it: the long s and the Kelvin sign.
FOLDED_BEYOND_ASCII: Final = {0x17F: chars("sS"), 0x212A: chars("kK")}


def folded(mask: int) -> int:
    """With the other case of every letter."""
    return mask | (mask & _LOWER) >> 32 | (mask & _UPPER) << 32


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CATEGORIES: Final = _names(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
# Unicode's scripts, as RE2/J knows them. All of ASCII is Latin (its letters) or Common (the rest).
_SCRIPTS: Final = _names(
    """Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese
    Buhid Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic
    Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek
    Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited
    Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li
    Kharoshthi Khmer Lao Latin Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic
    Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian
    Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan
    Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le
    Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi"""
)


@cache
def _category(name: str) -> int:
    found = (c for c in range(128) if unicodedata.category(chr(c)).startswith(name))
    return sum(1 << c for c in found)


def unicode_class(name: str) -> int | None:
    """The ASCII part of a general category, a script or `Any`; None when there is no such name."""
    if name == "Any":
        return ALL
    if name in _CATEGORIES:
        return _category(name)
    if name in _SCRIPTS:
        latin = _LOWER | _UPPER
        return {"Latin": latin, "Common": ALL & ~latin}.get(name, 0)
    return None
