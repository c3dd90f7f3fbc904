"""What a database has to log, and how, by what it says of itself. Pure: what it said comes in, a sentence comes out, or nothing.

INVARIANT  a database that leaves changes out of its log, or logs them so that they can't be read, is refused before anything is written.
PREVENTS   a snapshot that is full, and a stream that stands still for ever and looks well.
PROVED BY  tests/binlog/test_binlog_left_out_changes.py::test_a_replica_that_does_not_log_what_it_is_told_is_refused
"""

from collections.abc import Mapping
from typing import Final

from .gtids import MARIADB, MYSQL

# variable -> what it must be, and what it is for.
NEEDED: Final[Mapping[str, tuple[str, str]]] = {
    "log_bin": ("ON", "there is no binary log without it (a restart of the database)"),
    "binlog_format": ("ROW", "else statements are logged, not rows"),
    "binlog_row_image": ("FULL", "else changes are logged without what was there before"),
    "binlog_row_metadata": ("FULL", "else columns are logged without their names"),
    "binlog_checksum": ("CRC32", "else primary keys and the ends of rows can't be read"),
}
NOT_ON: Final[Mapping[str, str]] = {
    "log_bin_compress": "MariaDB's compressed events can't be read",
    "binlog_alter_two_phase": "an ALTER that is logged in two parts, one before it is done, can't be read",
    "binlog_transaction_compression": "MySQL's compressed transactions can't be read",
}
# variable -> what it must be, so that what was told is never lost with the machine's power; and what would be.
SYNCED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "sync_binlog": (("1",), "the binary log"),
    # 3 is MariaDB's: as 1, and once more at the prepare.
    "innodb_flush_log_at_trx_commit": (("1", "3"), "InnoDB's log"),
    "rocksdb_flush_log_at_trx_commit": (("1",), "RocksDB's log"),
}


def refused_variables(where: str, flavor: str, told: Mapping[str, str]) -> str:
    for name in NEEDED:
        wanted, why = NEEDED[name]
        if told.get(name, "").upper() != wanted:
            return (
                f"the database at {where} has {name}={told.get(name, 'nothing')}: {why}. Say {name}={wanted} in its "
                "configuration"
            )
    for name in NOT_ON:
        if told.get(name, "OFF").upper() not in ("OFF", "0"):
            return f"the database at {where} has {name}={told[name]}: {NOT_ON[name]}. Set it to OFF"
    if flavor == MYSQL and told.get("gtid_mode", "OFF").upper() != "ON":
        return (
            f"the database at {where} has gtid_mode={told.get('gtid_mode')}: positions are GTIDs. Set gtid_mode=ON and "
            "enforce_gtid_consistency=ON"
        )
    return ""


def refused_filters(where: str, these_alone: str, but_these: str) -> str:
    for name, schemas in (("binlog-do-db", these_alone), ("binlog-ignore-db", but_these)):
        if schemas:
            return (
                f"the database at {where} has {name}={schemas}: the changes of other databases, or of these, are not in its "
                "binary log. Take the line out of its configuration, and restart it"
            )
    return ""


def logs_what_it_receives(told: Mapping[str, str]) -> bool:
    """The second is MySQL's name for it since 8.0.26."""
    names = ("log_slave_updates", "log_replica_updates")
    return all(told.get(name, "ON").upper() == "ON" for name in names)


def refused_replica(where: str, flavor: str, received: str) -> str:
    """Of one that does not log what it receives."""
    if not received:
        return ""
    option, name, forget = (
        ("log_slave_updates", "gtid_slave_pos=", "SET GLOBAL gtid_slave_pos=''")
        if flavor == MARIADB
        else ("log_replica_updates", "", "RESET REPLICA ALL")
    )
    return (
        f"the database at {where} has {option}=OFF, and is or was a replica ({name}{received}): what it is told "
        f"by its primary is not in its own log. Follow the primary; or say {option}=ON in its configuration and "
        f"restart it, and start with --resnapshot. If it is the primary now, and stays it: {forget}"
    )


def unsynced(where: str, told: Mapping[str, str]) -> str:
    for name in SYNCED:
        allowed, what = SYNCED[name]
        if told.get(name, "1") not in allowed:
            return (
                f"the database at {where} has {name}={told[name]}, and does not sync {what} at each commit: "
                "when its machine loses power, transactions that are in topics already can be gone from it, and others get their "
                "GTIDs, which are then left out"
            )
    return ""
