"""One MariaDB and one node for all of these suites: each takes longer to start than most tests take."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
import pytest
from fencepost.chaos.harness import mariadb
from fencepost.chaos.harness.mariadb import Mariadb
from fencepost.clients.binlog import Settings
from followed import Followed
from made_up import MadeUp, made_up_for
from support.fencepost_process import fencepost
from support.needs import give_up

HERE = Path(__file__).parent
_number = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several waits of half a minute, and a start of each server."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(150))


@pytest.fixture(scope="session")
def database() -> Iterator[Mariadb]:
    program = mariadb.missing()
    if program is not None:
        give_up(f"needs MariaDB: there is no `{program}` (Debian's package mariadb-server)")
    # Not pytest's folder: a root user's server runs as another one, who may not go in there.
    folder = Path(tempfile.mkdtemp(prefix="fencepost-binlog-"))
    os.chmod(folder, 0o755)
    try:
        with Mariadb(folder / "database") as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with fencepost(environment={"FENCEPOST_NUM_PARTITIONS": "2"}) as node:
        yield node.bootstrap


@pytest.fixture
def sql(database: Mariadb) -> Iterator[Any]:
    """Says statements: `sql("INSERT …", value)`; gives rows."""
    with pymysql.connect(**database.login, charset="utf8mb4", autocommit=True) as connection:

        def say(statement: str, *values: Any) -> Any:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall()

        yield say


@pytest.fixture
def schema(request: pytest.FixtureRequest, sql: Callable[..., Any]) -> str:
    """A database that no other test uses, in use by `sql`."""
    test = re.sub(r"[^a-z0-9]+", "_", request.node.name.removeprefix("test_").lower())[:40]
    name = f"{test.strip('_')}_{next(_number)}"
    sql(f"CREATE DATABASE {name}")
    sql(f"USE {name}")
    return name


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    """No MariaDB and no node."""
    return made_up_for(monkeypatch)


@pytest.fixture
def followed(database: Mariadb, bootstrap: str, schema: str) -> Followed:
    settings = Settings(
        source=schema,
        bootstrap=bootstrap,
        port=database.port,
        tables=(f"{schema}.*",),
        topic="{schema}.{table}",
        stop_when_caught_up=True,
        linger_ms=10,
    )
    return Followed(settings)
