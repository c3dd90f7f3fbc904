"""What of a statement is told to others. No database is asked."""

import pytest
from fencepost.clients.binlog.secrets_in_statements import without_secrets
from fencepost.clients.binlog.statements import ANSI_QUOTES, NO_BACKSLASH_ESCAPES


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            "CREATE TABLE t (id INT) ENGINE=FEDERATED CONNECTION='mysql://root:secret@h/db/t'",
            "CREATE TABLE t (id INT) ENGINE=FEDERATED CONNECTION='…'",
        ),
        ("ALTER TABLE t CONNECTION 'se' 'cret' COMMENT='c'", "ALTER TABLE t CONNECTION '…' '…' COMMENT='c'"),
        ("ALTER TABLE t /*!50100 CONNECTION='secret' */", "ALTER TABLE t /*!50100 CONNECTION='…' */"),
        ("ALTER TABLE t -- password is secret\n ADD n INT", "ALTER TABLE t /* … */\n ADD n INT"),
        (
            """CREATE TABLE t (id INT) ENGINE=SPIDER COMMENT='wrapper "mysql", password "secret"'""",
            "CREATE TABLE t (id INT) ENGINE=SPIDER COMMENT='…'",
        ),
        (
            "CREATE PROCEDURE p() CREATE USER 'u'@'%' IDENTIFIED BY 'secret'",
            "CREATE PROCEDURE p() CREATE USER 'u'@'%' IDENTIFIED BY '…'",
        ),
        (
            "CREATE PROCEDURE p() CREATE USER u IDENTIFIED VIA a USING 'secret' OR b USING PASSWORD('secret'), v",
            "CREATE PROCEDURE p() CREATE USER u IDENTIFIED VIA a USING '…' OR b USING PASSWORD('…'), v",
        ),
        (
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SET PASSWORD FOR 'u'@'h' = PASSWORD('secret')",
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SET PASSWORD FOR 'u'@'h' = PASSWORD('…')",
        ),
        (
            "CREATE PROCEDURE p() CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD = _utf8'secret', MASTER_PORT=1",
            "CREATE PROCEDURE p() CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD = _utf8'…', MASTER_PORT=1",
        ),
        (
            "CREATE PROCEDURE p() PREPARE s FROM 'ALTER USER u IDENTIFIED BY ''secret'''",
            "CREATE PROCEDURE p() PREPARE s FROM '…'",
        ),
        (
            "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW UPDATE u SET `Password` = 0x736563726574, n = 'a'",
            "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW UPDATE u SET `Password` = …, n = 'a'",
        ),
        (
            "CREATE TABLE t (password VARCHAR(9) NOT NULL DEFAULT 'secret', e ENUM('a', 'b') DEFAULT 'a')",
            "CREATE TABLE t (password VARCHAR(9) NOT NULL DEFAULT '…', e ENUM('a', 'b') DEFAULT 'a')",
        ),
    ],
)  # fmt: skip
def test_a_text_that_may_be_a_password_is_told_to_nobody(sql: str, told: str) -> None:
    assert without_secrets(sql) == told


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (id INT, e ENUM('a', 'it''s', \"b\") DEFAULT 'a' COMMENT 'c') COMMENT='d'",
        "CREATE TABLE t (password_kind ENUM('a', 'b'), KEY (password_kind)) COMMENT='c'",
        "CREATE TABLE t (connection VARCHAR(9) COMMENT 'c', link VARCHAR(9) DEFAULT 'http://h/a')",
        "ALTER TABLE `it's` ADD n INT /* 'why */ COMMENT 'c' -- it's so",
    ],
)
def test_other_texts_are_told_as_they_were_said(sql: str) -> None:
    assert without_secrets(sql) == sql


@pytest.mark.parametrize(
    ("mode", "sql", "told"),
    [
        (ANSI_QUOTES, """SET "password" = 'secret', "n" = 'a'""", """SET "password" = '…', "n" = 'a'"""),
        (NO_BACKSLASH_ESCAPES, r"CONNECTION='secret\' COMMENT='c'", "CONNECTION='…' COMMENT='c'"),
        (0, r"CONNECTION='se\'cret' COMMENT='c'", "CONNECTION='…' COMMENT='c'"),
    ],
)  # fmt: skip
def test_where_a_text_ends_its_session_says(mode: int, sql: str, told: str) -> None:
    assert without_secrets(sql, mode) == told
