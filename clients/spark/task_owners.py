"""Which query has a group with `transactions=task`: a record for each that ever had it, in the decision topic.

INVARIANT  a task of a query that another one has followed in its group writes nothing.
PREVENTS   two queries, of which one was meant to follow the other, that go on side by side and write what they read twice.
PROVED BY  tests/spark/test_spark_takeover.py::test_the_older_query_is_refused_where_each_task_commits_for_itself

 1. A query without a record is new: its tasks write one, numbered one above all others', in the transaction of their first rows.
 2. The highest number has the group. Whoever has another one was followed, and ends.
Each query has a key of its own: a task that was slow to claim the group can't hide who came after it. A task that is at work
when the group is taken over commits once more: it looks when it begins.
"""

import json
import re
from typing import Final

from ..transactional.names import SEPARATOR

QUERY: Final = re.compile(r"q[0-9a-f]{8}", re.ASCII)  # behind the group; a task's key goes on


class TaskOwners:
    """Of one group, as one task of `query` finds them."""

    def __init__(self, group: str, query: str) -> None:
        self.beginning = f"{group}{SEPARATOR}".encode()  # says in which partition they are, too
        self._query = query
        self._taken: dict[str, int] = {}

    def look_at(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None or not key.startswith(self.beginning):
            return
        query = key.removeprefix(self.beginning).decode(errors="replace")
        if QUERY.fullmatch(query):
            self._taken[query] = int(json.loads(value)["taken"])

    def newer(self, *, has_written: bool) -> str:
        """Who has followed this query, if somebody has. One that wrote before there were such records was here first."""
        if not self._taken or (self._query not in self._taken and not has_written):
            return ""
        last = max(sorted(self._taken), key=lambda query: self._taken[query])
        return "" if last == self._query else last

    def claims(self) -> list[tuple[bytes, bytes]]:
        """A record, while this query has none."""
        if self._query in self._taken:
            return []
        taken = max(self._taken.values(), default=0) + 1
        return [(self.beginning + self._query.encode(), json.dumps({"taken": taken}).encode())]
