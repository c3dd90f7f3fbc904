"""What goes wrong on the way: whether another try may help, how long it waits, and when nobody tries any more.

INVARIANT  what fails has a clock that only its own success stops: no other's does.
PREVENTS   a source that begins anew for ever, because the database is heard each time, and the brokers take no commit.
PROVED BY  tests/binlog/test_binlog_troubles.py::test_commits_that_fail_for_good_end_a_source_whose_database_is_well
"""

import enum
from collections.abc import Mapping
from typing import Final

import pymysql
from confluent_kafka import KafkaError, KafkaException

from .database import CannotFollow, SourceLost
from .settings import Settings
from .transactions import Fenced, is_fenced

PAUSE_FIRST_S, PAUSE_MAX_S = 0.2, 5.0
OF_DATABASE: Final = (pymysql.MySQLError, SourceLost)
PASSING: Final = (*OF_DATABASE, KafkaException, TimeoutError)
# MySQL's numbers of errors that no second try helps against: login, rights, syntax.
HOPELESS: Final = (1044, 1045, 1049, 1064, 1142, 1143, 1227, 1698)
ALLOW: Final = (
    "Allow this user the transactional id {transactional_id}, to write, describe and create topics, and to read "
    "{position_topic} and {schema_topic}"
)
LOGIN: Final = "Say who asks with --kafka (sasl.username and sasl.password, or the certificate)"
# The brokers' errors that no second try helps against, and what to do.
REFUSED: Final[Mapping[int, str]] = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "--transaction-timeout-s {timeout_s} is more than they allow: say less, or raise their transaction.max.timeout.ms"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ALLOW,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ALLOW,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ALLOW,
    KafkaError.SASL_AUTHENTICATION_FAILED: LOGIN,
    KafkaError._AUTHENTICATION: LOGIN,
}


# What no client can be made of.
NO_SETTINGS: Final = (KafkaError._INVALID_ARG, KafkaError._CONFLICT)


class Part(enum.Enum):
    """What can fail. A part is well when it has done what it is there for."""

    DATABASE = "an event or a row came"
    BEGINNING = "the brokers told the position"
    COMMITS = "the brokers committed"


class Clocks:
    def __init__(self, give_up_s: float) -> None:
        """0: never."""
        self._give_up_s = give_up_s
        self._failing_since: dict[Part, float] = {}
        self._pause_s = PAUSE_FIRST_S

    def well(self, part: Part) -> None:
        self._failing_since.pop(part, None)

    def failed(self, part: Part, now_s: float) -> float | None:
        """How long to wait before the next try; None when there have been enough."""
        if not self._failing_since:
            self._pause_s = PAUSE_FIRST_S
        since = self._failing_since.setdefault(part, now_s)
        if self._give_up_s and now_s - since > self._give_up_s:
            return None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s


def raise_if_hopeless(trouble: Exception, settings: Settings) -> None:
    if isinstance(trouble, KafkaException):
        error = trouble.args[0]
        if is_fenced(trouble):
            raise Fenced(
                f"another copy of the source {settings.source} has begun, or a transaction was open for longer than "
                f"--transaction-timeout-s {settings.transaction_timeout_s} (a snapshot is one transaction): this one ends. Nothing is "
                "lost: whoever goes on begins behind what was committed"
            ) from trouble
        if error.code() in NO_SETTINGS:
            raise CannotFollow(
                f"librdkafka does not take what it was told with --kafka ({', '.join(sorted(settings.kafka)) or 'nothing'}): "
                f"{error.str()}. Correct that"
            ) from trouble
        if error.code() in REFUSED:
            what_to_do = REFUSED[error.code()].format(
                transactional_id=settings.transactional_id,
                position_topic=settings.position_topic,
                schema_topic=settings.schema_topic_name,
                timeout_s=settings.transaction_timeout_s,
            )
            raise CannotFollow(
                f"the brokers at {settings.bootstrap} refuse: {error.str()}. {what_to_do}"
            ) from trouble
    if isinstance(trouble, pymysql.MySQLError) and trouble.args and trouble.args[0] in HOPELESS:
        raise CannotFollow(
            f"the database at {settings.database} refuses: {trouble.args[1]}"
        ) from trouble
