"""What a position is kept with: whose it is, and of which tables the rows are in the topics.

INVARIANT  a source that promises what is there, then what changes (`--snapshot initial`), goes on from no position behind which
           there are rows that nobody has read.
PREVENTS   old rows of a table that are in no topic, and nobody says so: `--snapshot never` took wider patterns, or let a RENAME
           pass, and was left out again.
PROVED BY  tests/binlog/test_binlog_kept_place.py
"""

import json

from .database import CannotFollow
from .gtids import MYSQL, Position, WrongPosition, position_of
from .patterns import widened
from .settings import INITIAL, NEVER, Settings


def as_kept(position: Position, flavor: str, settings: Settings) -> str:
    told = {
        "source": settings.source,
        "flavor": flavor,
        "gtid": str(position),
        "tables": settings.tables,
        # Patterns of which every row is told. None where only what changes is: a table that was renamed may lack all others.
        "read": settings.tables if settings.snapshot == INITIAL else [],
    }
    return json.dumps(told)


def position_in(kept: str, flavor: str, settings: Settings) -> Position | None:
    """None where it says nothing: older builds kept that of a MySQL that had logged no transaction, and never went on from there.
    CannotFollow where it is no position of this source and its tables. WrongPosition: it can't be read."""
    try:
        told = json.loads(kept)
        before, position = told["flavor"], position_of(told["flavor"], told["gtid"])
        # Older builds did not say what was read, and before that, what was followed: nothing is known of that.
        followed = [str(each) for each in told.get("tables", settings.tables)]
        read = [str(each) for each in told.get("read", followed)]
    except (ValueError, KeyError, TypeError, AttributeError) as trouble:
        raise WrongPosition(
            f"the position that {settings.position_topic} has for {settings.source} can't be read ({trouble}): it is {kept[:200]!r}. "
            "Start with --resnapshot, or name the topic that has the right one (--position-topic)"
        ) from trouble
    if before != flavor:
        raise CannotFollow(
            f"{settings.source} has followed a database of the kind {before} so far, and {settings.database} is of the "
            f"kind {flavor}: give the new one another --source, or start with --resnapshot"
        )
    if flavor == MYSQL and not str(position):
        return None
    if settings.snapshot == INITIAL:
        _refuse_unread(read, followed, settings)
    return position


def _refuse_unread(read: list[str], followed: list[str], settings: Settings) -> None:
    if not read:
        raise CannotFollow(
            f"{settings.source} has gone on with --snapshot {NEVER}, so that rows of {','.join(settings.tables)} may be in no topic: "
            f"start with --resnapshot, which reads all tables anew; or say --snapshot {NEVER} again, to have only what changes"
        )
    more = widened(read, settings.tables)
    if more:
        raise CannotFollow(
            f"{settings.source} has followed --tables {','.join(followed)} so far, and {','.join(more)} may match other tables, "
            "whose rows it never read: start with --resnapshot, which reads all tables anew; or follow the others with another "
            f"--source; or say --snapshot {NEVER}, to have only what changes in all of them from now on, until a --resnapshot"
        )
