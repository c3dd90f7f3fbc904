"""Until when the certificates of a PEM file are good.

INVARIANT  what OpenSSL takes and this can't read has no date; it never keeps a node from its start.
PREVENTS   a cluster whose nodes can't come back to each other from one night on, and nobody was told the day.
PROVED BY  tests/node/test_certificate_dates.py::test_the_dates_are_those_that_openssl_says

Python's `ssl` tells them of certificates that vouch for others, and of a peer's, not of one's own. So the few bytes of
X.509 before the date are stepped over here: RFC 5280, 4.1, in DER (X.690).
"""

import binascii
import calendar
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Final

_PEM: Final = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]+)-----END", re.ASCII
)
SEQUENCE, VERSION, UTC_TIME, GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
LONG_FORM: Final = 0x80
# Serial number, signature and issuer stand before the validity.
BEFORE_VALIDITY: Final = 3


def not_after_s(path: str) -> list[int]:
    """Seconds since the epoch, in the order of the file."""
    found = []
    for match in _PEM.finditer(pathlib.Path(path).read_bytes()):
        try:
            found.append(_not_after_s(binascii.a2b_base64(match[1])))
        except ValueError:
            continue
    return found


def _not_after_s(der: bytes) -> int:
    """ValueError where this is no certificate."""
    certificate = _content(der, SEQUENCE)
    to_sign = _content(certificate, SEQUENCE)
    parts = _elements(to_sign)
    tag, content = next(parts)
    for _ in range(BEFORE_VALIDITY if tag == VERSION else BEFORE_VALIDITY - 1):
        tag, content = next(parts)
    tag, content = next(parts)
    if tag != SEQUENCE:
        raise ValueError("no validity")
    times = _elements(content)
    next(times)  # from when on
    tag, content = next(times)
    if tag not in (UTC_TIME, GENERALIZED_TIME):
        raise ValueError("no date")
    text = content.decode("ascii")
    if tag == UTC_TIME:  # of 1950 to 2049
        text = ("19" if text >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))


def _content(der: bytes, wanted: int) -> bytes:
    tag, content = next(_elements(der))
    if tag != wanted:
        raise ValueError(f"tag {tag} instead of {wanted}")
    return content


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each. ValueError at the end, too: nobody here asks for more than there must be."""
    at = 0
    while len(der) >= at + 2:
        tag, size = der[at], der[at + 1]
        at += 2
        if size >= LONG_FORM:
            more = size - LONG_FORM
            size = int.from_bytes(der[at : at + more], "big")
            at += more
        if at + size > len(der):
            break
        yield tag, der[at : at + size]
        at += size
    raise ValueError("it ends too early")
