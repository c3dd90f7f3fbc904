"""`python -m fencepost.clients.binlog --source shop --tables 'shop.*' …`: `--help` has the settings.

Exit codes: 0 it was stopped, or has caught up; 2 something no second try helps against, in a sentence; 64 a setting.
"""

import logging
import signal
import sys
from collections.abc import Sequence

import pymysql
from confluent_kafka import KafkaException

from ..transactional.asking_again import who_was_asked
from .database import SourceLost
from .settings import WrongSetting, read_settings
from .source import FINAL, BinlogSource
from .transactions import Fenced

ENDED, WRONG_SETTING = 2, 64  # EX_USAGE


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments)
    except WrongSetting as wrong:
        sys.stderr.write(f"{wrong}\n")
        return WRONG_SETTING
    source = BinlogSource(settings)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: source.stop())
    try:
        source.run()
    except (*FINAL, Fenced, SourceLost, pymysql.MySQLError, KafkaException, TimeoutError) as ended:
        of_kafka = isinstance(ended, KafkaException)
        whom = who_was_asked(ended.args[0], settings.bootstrap, "--bootstrap") if of_kafka else ""
        sys.stderr.write(f"{settings.source} ended: {ended}{whom}\n")
        return ENDED
    return 0


if __name__ == "__main__":
    sys.exit(main())
