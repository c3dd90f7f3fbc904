"""What a word of the command line may be: addresses, numbers, names. Nothing heavy is imported.

INVARIANT  what is not allowed is refused here, by its value and with what is allowed, before anything is asked or done.
PREVENTS   a port that is dialled modulo 65536; a traceback of whoever packs the number into its bytes.
PROVED BY  tests/node/test_cli_words.py::test_a_word_that_can_not_be_is_refused_with_what_is_allowed
"""

import argparse
import re
from typing import Final

from fencepost.cluster.base.host_names import PORT_MAX

CLIENT_PORT: Final = 9092  # where none is named
NODE_MAX: Final = 2**31 - 1
PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
LABEL_MAX: Final = 63  # of a host's name, between two dots
# HOST:PORT, or [IPv6]:PORT; the port may be left out.
_PLACE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:/?#@\[\]]+))(?::([0-9]+))?")


class Failed(Exception):
    """What could not be done, in a sentence that a person can act on."""


class NotUnderstood(Failed):
    """A word of the command line that can't be: as argparse refuses one, nothing was asked or done."""


def address(
    text: str, option: str, default_port: int | None, example: str = "127.0.0.1:9092"
) -> tuple[str, int]:
    """Host and port; an IPv6 address stands in brackets, and loses them here."""
    found = _PLACE.fullmatch(text.strip())
    if found is None or (found[3] is None and default_port is None):
        port = example.rpartition(":")[2]
        raise NotUnderstood(
            f"{option} {text!r}: say HOST:PORT, for example {example} or [::1]:{port}"
        )
    host = found[1] or found[2]
    if found[1] is None and not all(
        0 < len(each) <= LABEL_MAX for each in host.removesuffix(".").split(".")
    ):
        raise NotUnderstood(f"{option} {text!r}: {host} is no name of a host: say HOST:PORT")
    number = default_port if found[3] is None else int(found[3][:9])
    assert number is not None
    if not 1 <= number <= PORT_MAX:
        raise NotUnderstood(f"{option} {text!r}: a port is a number from 1 to {PORT_MAX}")
    return host, number


def whole(option: str, value: int, least: int, most: int, besides: str = "") -> int:
    """`besides`: what else may be said."""
    if not least <= value <= most:
        raise NotUnderstood(f"{option} {value}: say a whole number from {least} to {most}{besides}")
    return value


def number(text: str) -> int:
    """Of a word, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def amount(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def check_partition(partition: int | None) -> None:
    if partition is not None:
        whole("--partition", partition, 0, PARTITION_MAX)


def named(what: str, *names: str) -> None:
    if not all(names):
        raise NotUnderstood(f"{what} can't be empty")


def is_number(text: str) -> bool:
    """Of the digits 0 to 9: other alphabets' are none to `int`, or stand for something else."""
    return text.isascii() and text.isdecimal()
