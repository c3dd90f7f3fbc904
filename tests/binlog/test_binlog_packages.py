"""The oldest packages that may be installed are those that a source works with: an index may have no newer ones."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("extra", ["binlog", "test"])
@pytest.mark.parametrize(
    ("package", "oldest"),
    [
        ("mysql-replication", "1.0.16"),  # 1.0.15 does not say what checksums a file has
        ("pymysql[rsa]", "1.2"),  # 1.1 logs in without TLS where TLS was asked for
    ],
)
def test_no_older_package_than_one_that_works_is_installed(
    extra: str, package: str, oldest: str
) -> None:
    wanted = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][extra]
    (found,) = (each for each in wanted if each.startswith(package))
    assert re.match(rf"{re.escape(package)}>={re.escape(oldest)},<\d", found)
