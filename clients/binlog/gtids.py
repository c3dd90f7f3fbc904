"""How far a source has come: the position in a binary log as the databases write it, MariaDB's and MySQL's.

INVARIANT  a position that took in a transaction's GTID has that transaction and all it had before, and nothing else.
PREVENTS   a restart that asks for what was written already, or past what was not.
PROVED BY  tests/binlog/test_binlog_gtids.py::test_a_mysql_position_joins_what_is_side_by_side

MariaDB: the last GTID of each replication domain, `0-1-270,5-2-13`. MySQL: sets of numbers by server,
`3e11fa47-…:1-23:25`. Knows no server: text in, text out.
"""

import re
from typing import Final, Protocol

MARIADB, MYSQL = "mariadb", "mysql"
MARIADB_GTID: Final = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
MYSQL_GTID: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(\d+)", re.ASCII)
MYSQL_SET: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})((?::\d+(?:-\d+)?)+)", re.ASCII
)


class WrongPosition(ValueError):
    """No position of this kind of server."""


class Position(Protocol):
    def add(self, gtid: str) -> None:
        """A transaction has been taken in."""

    def has(self, other: str) -> bool:
        """Whether all of another position is in this one."""

    def __str__(self) -> str: ...


def position_of(flavor: str, text: str) -> Position:
    return MysqlPosition(text) if flavor == MYSQL else MariadbPosition(text)


class MariadbPosition:
    def __init__(self, text: str = "") -> None:
        self._last: dict[int, tuple[int, int]] = {}  # domain -> server, number
        for each in _parts(text):
            self._set(each)

    def _set(self, gtid: str) -> tuple[int, int]:
        found = MARIADB_GTID.fullmatch(gtid)
        if found is None:
            raise WrongPosition(f"{gtid!r} is no GTID of MariaDB: they look like 0-1-270")
        domain, server, number = map(int, found.groups())
        self._last[domain] = server, number
        return domain, number

    def add(self, gtid: str) -> None:
        self._set(gtid)

    def has(self, other: str) -> bool:
        theirs = MariadbPosition(other)._last
        return all(
            domain in self._last and self._last[domain][1] >= theirs[domain][1] for domain in theirs
        )

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{self._last[domain][0]}-{self._last[domain][1]}"
            for domain in sorted(self._last)
        )


class MysqlPosition:
    def __init__(self, text: str = "") -> None:
        self._spans: dict[str, list[tuple[int, int]]] = {}  # server -> first and last, ascending
        for each in _parts(text.lower()):
            found = MYSQL_SET.fullmatch(each)
            if found is None:
                raise WrongPosition(f"{each!r} is no GTID set of MySQL: they look like UUID:1-23")
            for span in found[2].split(":")[1:]:
                first, _, last = span.partition("-")
                self._join(found[1], int(first), int(last or first))

    def _join(self, server: str, first: int, last: int) -> None:
        """Spans that overlap or lie side by side become one."""
        joined: list[tuple[int, int]] = []
        for one in sorted([*self._spans.get(server, []), (first, last)]):
            if joined and one[0] <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], one[1])
            else:
                joined.append(one)
        self._spans[server] = joined

    def add(self, gtid: str) -> None:
        found = MYSQL_GTID.fullmatch(gtid.lower())
        if found is None:
            raise WrongPosition(f"{gtid!r} is no GTID of MySQL: they look like UUID:23")
        self._join(found[1], int(found[2]), int(found[2]))

    def has(self, other: str) -> bool:
        theirs = MysqlPosition(other)._spans
        return all(
            any(ours[0] <= first and last <= ours[1] for ours in self._spans.get(server, []))
            for server in theirs
            for first, last in theirs[server]
        )

    def __str__(self) -> str:
        return ",".join(
            server + "".join(f":{a}-{b}" if a < b else f":{a}" for a, b in self._spans[server])
            for server in sorted(self._spans)
        )


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
