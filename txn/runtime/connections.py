"""By which connections somebody has come, as far as that tells what is read late by one that he has given up.

Whoever opens a newer connection has given up the older ones, until he comes again by one of them: then he is alive, and has two. A late
request counts as an older connection by which he came, and makes no third one seem newer than it is.
"""

from typing import NamedTuple


class Connections(NamedTuple):
    newest: int
    again: int  # by which he came last

    def has_given_up(self, connection: int) -> bool:
        return connection < self.newest and connection != self.again


def heard_over(before: Connections | None, connection: int) -> Connections:
    newest = connection if before is None else max(before.newest, connection)
    return Connections(newest, connection)
