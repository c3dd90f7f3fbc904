"""Who may import whom (style §3.2), and which outside package stays in which folder."""

import tomllib

import pytest
from tree import FOLDERS, ROOT, Source, imports_of, parse, sources

ALLOWED: dict[str, set[str]] = {
    "cluster": set(),
    "replication": {"cluster"},
    "txn": {"cluster", "replication"},
    "node": {"cluster", "replication", "txn"},
    "clients": set(),
    "chaos": {"cluster", "replication", "txn", "node", "clients"},
}
# Rows for folders within folders: (importer, what it must not import).
FORBIDDEN: tuple[tuple[str, str], ...] = (
    ("cluster/base", "fencepost.cluster.wire"),
    ("cluster/base", "fencepost.cluster.metadata"),
    ("cluster/base", "fencepost.cluster.quorum"),
    ("cluster/base", "fencepost.cluster.controller"),
    ("cluster/wire", "fencepost.cluster.metadata"),
    ("cluster/wire", "fencepost.cluster.quorum"),
    ("cluster/wire", "fencepost.cluster.controller"),
    ("cluster/metadata", "fencepost.cluster.quorum"),
    ("cluster/metadata", "fencepost.cluster.controller"),
    ("cluster/quorum", "fencepost.cluster.controller"),
    ("replication", "fencepost.cluster.controller"),
    ("replication", "fencepost.cluster.quorum"),
    ("txn", "fencepost.cluster.controller"),
    ("txn", "fencepost.cluster.quorum"),
    ("node/cli", "fencepost.replication"),
    ("node/cli", "fencepost.txn"),
    ("chaos/checkers", "fencepost.cluster"),
    ("chaos/checkers", "fencepost.replication"),
    ("chaos/checkers", "fencepost.txn"),
    ("chaos/checkers", "fencepost.node"),
    ("chaos/checkers", "fencepost.clients"),
)
OUTSIDE: dict[str, tuple[str, ...]] = {
    "pysyncobj": ("cluster/quorum",),
    "aiohttp": ("node/console", "cluster/base/real_http.py"),
    "prometheus_client": ("node/metrics",),
    "uvloop": ("node/process.py",),
    "opentelemetry": ("node/tracing/otel.py",),
    "requests": ("node/tracing/otel.py",),
    "crc32c": ("cluster",),
    "cramjam": ("cluster/wire",),
    "pyspark": ("clients/spark", "chaos/harness/spark_job.py", "chaos/harness/spark_strikes.py"),
    "pymysql": ("clients/binlog",),
    "pymysqlreplication": ("clients/binlog",),
    "docker": ("chaos/harness",),
    "confluent_kafka": ("clients", "chaos", "node/cli"),
}


def violations(source: Source) -> list[str]:
    found = []
    where = str(source.path)
    for line, name in imports_of(source):
        parts = name.split(".")
        if parts[0] in FOLDERS or parts[0] == "tests":
            found.append(f"{where}:{line} imports {name} by its folder, not as fencepost.{name}")
        ours = parts[0] == "fencepost" and len(parts) > 1 and parts[1] != source.top
        if ours and parts[1] not in ALLOWED[source.top]:
            found.append(f"{where}:{line} {source.top} must not import {name}")
        for importer, forbidden in FORBIDDEN:
            if where.startswith(importer + "/") and f"{name}.".startswith(forbidden + "."):
                found.append(f"{where}:{line} {importer} must not import {forbidden}")
        homes = OUTSIDE.get(parts[0])
        if homes and not where.startswith(homes):
            found.append(f"{where}:{line} {parts[0]} stays in {', '.join(homes)}")
    return found


@pytest.mark.parametrize("source", sources(), ids=lambda s: str(s.path))
def test_imports_go_down(source: Source) -> None:
    assert violations(source) == []


def test_an_upward_import_is_seen() -> None:
    upward = parse("replication/log/x.py", "from fencepost.node.broker import Broker\n")
    assert violations(upward) == [
        "replication/log/x.py:1 replication must not import fencepost.node.broker.Broker"
    ]
    assert violations(parse("cluster/wire/x.py", "from ..quorum import journal\n"))
    assert violations(parse("txn/x.py", "import pysyncobj\n"))


def test_every_package_is_installed() -> None:
    """The wheel holds what the checkout holds: an editable install would hide a package left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    there = {
        "fencepost." + ".".join(source.package)
        for source in sources()
        if source.path.name == "__init__.py"
    }
    assert listed == there
    for source in sources():
        init = ROOT.joinpath(*source.package) / "__init__.py"
        assert init.exists(), f"{source.path} is in a folder without __init__.py"
