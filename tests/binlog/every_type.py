"""Columns of every type that is followed, each with a value, and that value as a row has it in JSON."""

from typing import Any

TYPES = {
    "t": ("TINYINT", -1),
    "tu": ("TINYINT UNSIGNED", 255),
    "sm": ("SMALLINT", -32768),
    "mu": ("MEDIUMINT UNSIGNED", 16777215),
    "i": ("INT", -2147483648),
    "bu": ("BIGINT UNSIGNED", 18446744073709551615),
    "f": ("FLOAT", 16777216.0),
    "f2": ("FLOAT", 1.1),
    "d": ("DOUBLE", 0.30000000000000004),
    "de": ("DECIMAL(65,30)", "12345678901234567890123456789012345.123456789012345678901234567890"),
    "dn": ("DECIMAL(10,2)", "-0.05"),
    "y": ("YEAR", 2026),
    "da": ("DATE", "2026-11-21"),
    "da0": ("DATE", "0000-00-00"),
    "ti": ("TIME(2)", "-26:00:01.50"),
    "dt": ("DATETIME(6)", "9999-12-31T23:59:59.999999"),
    "dt0": ("DATETIME", "0000-00-00T00:00:00"),
    "ts": ("TIMESTAMP(3) NULL", "2026-11-21T16:20:00.123Z"),
    "ts0": ("TIMESTAMP NULL", "0000-00-00T00:00:00Z"),
    "c": ("CHAR(5)", "ä b"),
    "v": ("VARCHAR(300)", "日本語 🎉"),
    "l1": ("VARCHAR(20) CHARACTER SET latin1", "é€"),
    "u16": ("VARCHAR(20) CHARACTER SET utf16", "ü🎉"),
    # Characters that Python's codecs of these names have otherwise, or not.
    "ku": ("VARCHAR(20) CHARACTER SET koi8u", "•"),
    "kr": ("VARCHAR(20) CHARACTER SET euckr", "똠"),
    "ems": ("VARCHAR(20) CHARACTER SET eucjpms", "～Ⅱ①"),
    # Collations that the driver does not know.
    "u14": ("VARCHAR(20) CHARACTER SET utf16 COLLATE utf16_uca1400_ai_ci", "ü🎉"),
    "u24": ("VARCHAR(20) CHARACTER SET ucs2 COLLATE ucs2_uca1400_nopad_as_cs", "ü"),
    "u34": ("TEXT CHARACTER SET utf32 COLLATE utf32_uca1400_ai_ci", "ü🎉"),
    "u84": ("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_swedish_ai_ci", "ü🎉"),
    "e4": ("ENUM('small','größer') CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci", "größer"),
    "tx": ("MEDIUMTEXT", "long"),
    "b": ("BINARY(4)", "AQIAAA=="),
    "vb": ("VARBINARY(10)", "AQIA"),
    "bl": ("BLOB", "AP8B"),
    "bi": ("BIT(10)", 513),
    "e": ("ENUM('small','größer')", "größer"),
    # Values that are not in UTF-8, or are written otherwise by the catalogue than by the log.
    "e0": ("ENUM('','Y') CHARACTER SET latin1", ""),
    "e1": ("ENUM('é','€') CHARACTER SET latin1", "€"),
    "e2": ("ENUM('a','ü') CHARACTER SET ucs2", "ü"),
    "e3": ("ENUM('a','表') CHARACTER SET cp932", "表"),
    "eb": (r"ENUM('a\\b','it''s\n\r\0\t\Z%_') CHARACTER SET binary", "it's\n\r\0\t\x1a%_"),
    "ew": (r"ENUM('\\','a\\\\b') CHARACTER SET utf16", r"a\\b"),
    "el": (f"ENUM('{'e' * 255}')", "e" * 255),
    "s3": ("SET('ä','日','') CHARACTER SET utf32", "ä,日"),
    "s": ("SET('a','b','c')", "a,c"),
    "s0": ("SET('a','b')", ""),
    "j": ("JSON", '{"a": [1, null]}'),
    "n": ("INT", None),
}
LITERALS = {
    "eb": r"'it''s\n\r\0\t\Z%_'",
    "ew": r"'a\\\\b'",
    "b": "X'01020000'",
    "vb": "X'010200'",
    "bl": "X'00FF01'",
    "bi": "513",
}


def literal(name: str, value: Any) -> str:
    if name in LITERALS:
        return LITERALS[name]
    if isinstance(value, str):
        return f"'{value.replace('T', ' ').rstrip('Z') if name[:2] in ('dt', 'ts') else value}'"
    return "NULL" if value is None else repr(value)
