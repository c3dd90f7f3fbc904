"""A real MariaDB of one's own: a folder, a port, a process that is nobody's service and ends with the one that started it.

    with Mariadb(folder / "database") as database:
        connection = pymysql.connect(**database.login)

Debian's package `mariadb-server` has the programs. A root user's server runs as the user `mysql` that it makes. What is
committed survives a SIGKILL, and is logged as rows with their columns' names, as `fencepost.clients.binlog` needs it.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .processes import Process, free_port

START_S = 60.0
USER = "mysql"
PROGRAMS = ("mariadbd", "mariadb-install-db")
SETTINGS = (
    "log-bin=binlog",
    "binlog-format=ROW",
    "binlog-row-image=FULL",
    "binlog-row-metadata=FULL",
    "server-id=1",
    "gtid-strict-mode=ON",
    "sync-binlog=1",
    "innodb-flush-log-at-trx-commit=1",
    "innodb-buffer-pool-size=24M",
    "innodb-log-file-size=8M",
    "performance-schema=OFF",
    "skip-name-resolve",
    "character-set-server=utf8mb4",
    "loose-feedback=OFF",
    "skip-slave-start",
)


def program(name: str) -> str | None:
    """Debian puts servers where only root looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/local/bin")


def missing() -> str | None:
    """The program that is not there."""
    return next((name for name in PROGRAMS if program(name) is None), None)


class Mariadb:
    def __init__(self, folder: Path, *, settings: Sequence[str] = ()) -> None:
        """`settings` are mariadbd's, without the hyphens."""
        self.folder = folder
        self.port = free_port()
        self._data = folder / "data"
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            # Not the server's own --user: changing it would take away that the process ends with its parent.
            ids = (f"--reuid={USER}", f"--regid={USER}", "--init-groups")
            self._as_user = ["setpriv", *ids, "--pdeathsig=KILL", "--"]
        options = [f"--{each}" for each in (*SETTINGS, *settings)]
        where = [f"--datadir={self._data}", f"--socket={folder / 'socket'}", f"--port={self.port}"]
        command = [
            program("mariadbd") or "mariadbd",
            "--no-defaults",
            *where,
            "--bind-address=127.0.0.1",
        ]
        self.process = Process([*self._as_user, *command, *options], log=folder / "log")

    @property
    def login(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "user": "root", "password": ""}

    def initialise(self) -> None:
        self.folder.mkdir(parents=True)
        if self._as_user:
            shutil.chown(self.folder, USER, USER)
        command = [program("mariadb-install-db") or "mariadb-install-db", "--no-defaults"]
        done = subprocess.run(
            [
                *self._as_user,
                *command,
                f"--datadir={self._data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                "--innodb-log-file-size=8M",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"mariadb-install-db failed:\n{done.stdout}{done.stderr}"

    def start(self) -> None:
        if not self._data.exists():
            self.initialise()
        self.process.start()
        self.process.wait_port(self.port, START_S)

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> int:
        return self.process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
