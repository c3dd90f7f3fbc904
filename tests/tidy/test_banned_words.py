"""Words that may stand only in their one home, each with what to write instead."""

import ast
import re

import pytest
from tree import ROOT, Source, imports_of, parse, sources

# Folders that run beside a node, not inside one: they may touch the world.
OUTSIDE_THE_NODE = (
    "chaos/campaigns",
    "chaos/faults",
    "chaos/harness",
    "chaos/report",
    "chaos/runs",
    "chaos/workloads",
    "chaos/checkers",
    "clients",
    "node/cli",
)
HOMES = ("cluster/base", "chaos/sim", "node/process.py", "node/config.py", *OUTSIDE_THE_NODE)

# Calls that reach the world -> what to use instead. Matched on the dotted name as written.
WORLD: dict[str, str] = {
    "time.time": "env.clock.now_ms()",
    "time.time_ns": "env.clock.now_ms()",
    "time.monotonic": "env.clock.steady()",
    "time.perf_counter": "env.clock.steady()",
    "time.sleep": "env.clock.sleep()",
    "asyncio.sleep": "env.clock.sleep()",
    "asyncio.start_server": "env.net.listen()",
    "asyncio.open_connection": "env.net.connect()",
    "asyncio.create_task": "a TaskGroup or env.tasks.spawn()",
    "asyncio.ensure_future": "a TaskGroup or env.tasks.spawn()",
    "loop.create_task": "a TaskGroup or env.tasks.spawn()",
    "datetime.now": "env.clock.now_ms()",
    "datetime.utcnow": "env.clock.now_ms()",
    "uuid.uuid4": "a UUID made from env.rng",
    "uuid4": "a UUID made from env.rng",
    "open": "env.disk.open()",
    "os.open": "env.disk.open()",
    "os.urandom": "env.rng",
    "os.replace": "env.disk.rename()",
    "os.rename": "env.disk.rename()",
    "os.remove": "env.disk.remove()",
    "os.unlink": "env.disk.remove()",
    "os.fsync": "env.disk.sync()",
    "os.listdir": "env.disk.list()",
}
MODULES: dict[str, str] = {
    "socket": "env.net",
    "random": "env.rng",
    "secrets": "env.rng",
    "pathlib": "strings and env.disk",
    "shutil": "env.disk",
    "tempfile": "env.disk",
    "subprocess": "nothing: a node starts no processes",
    "threading": "env.disk.run()",
    "concurrent": "env.disk.run()",
    "mmap": "env.disk",
    "logging": "env.log",
}
IMPURE = {"asyncio", "socket", "time", "random", "os", "logging", "threading", "uvloop"}


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return "?"


def world_violations(source: Source) -> list[str]:
    if str(source.path).startswith(HOMES):
        return []
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            instead = WORLD.get(name) or WORLD.get(".".join(name.split(".")[-2:]))
            if instead:
                found.append(f"{source.path}:{node.lineno} {name}: use {instead}")
    for line, name in imports_of(source):
        instead = MODULES.get(name.split(".")[0])
        # `random.Random` is a type that signatures need; rolling the module's own dice is the fault.
        if instead and name != "random.Random" and not _only_typed(source, name):
            found.append(f"{source.path}:{line} {name}: use {instead}")
    return found


def _only_typed(source: Source, name: str) -> bool:
    """`import random` is fine where only `random.Random` is named, in annotations."""
    if name != "random":
        return False
    uses = re.findall(r"\brandom\.(\w+)", source.text)
    return bool(uses) and set(uses) == {"Random"}


@pytest.mark.parametrize("source", sources(), ids=lambda s: str(s.path))
def test_only_env_touches_the_world(source: Source) -> None:
    assert world_violations(source) == []


@pytest.mark.parametrize(
    "source",
    [s for s in sources() if s.path.name.endswith("machine.py")],
    ids=lambda s: str(s.path),
)
def test_machines_are_pure(source: Source) -> None:
    assert impurities(source) == []


def impurities(source: Source) -> list[str]:
    found = [
        f"{source.path}:{line} imports {name}"
        for line, name in imports_of(source)
        if name.split(".")[0] in IMPURE
    ]
    waits = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    return found + [
        f"{source.path}:{node.lineno} awaits"
        for node in ast.walk(source.tree)
        if isinstance(node, waits)
    ]


@pytest.mark.parametrize("source", sources(), ids=lambda s: str(s.path))
def test_nothing_is_swallowed_or_left_for_later(source: Source) -> None:
    found = []
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME)\b|NotImplementedError", line):
            found.append(f"{source.path}:{number} {line.strip()}")
        if re.search(r"except (Exception|BaseException)\b", line) and "noqa: BLE001 - " not in line:
            found.append(
                f"{source.path}:{number} catches everything without a reason: {line.strip()}"
            )
    assert found == []


def test_the_rules_see_what_they_forbid() -> None:
    bad = parse("replication/x.py", "import time\nasync def f():\n    await asyncio.sleep(1)\n")
    assert world_violations(bad) == ["replication/x.py:3 asyncio.sleep: use env.clock.sleep()"]
    assert world_violations(parse("txn/x.py", "import random\nrandom.random()\n"))
    assert world_violations(parse("txn/x.py", "f = open('x')\n"))
    assert impurities(bad) == [
        "replication/x.py:1 imports time",
        "replication/x.py:2 awaits",
        "replication/x.py:3 awaits",
    ]


# --- tests ----------------------------------------------------------------------------------------


def clocks_of_all(text: str) -> list[str]:
    """Where a test sets the clock of the whole process: other threads' waits end at once, and move it."""
    return re.findall(
        r"setattr\(\s*(?:[\w.]*\btime, |\"[\w.]*\btime\.)\"?(?:sleep|monotonic)", text
    )


def test_no_test_sets_the_clock_of_other_threads() -> None:
    tests = (ROOT / "tests").rglob("*.py")
    found = [path.name for path in tests if clocks_of_all(path.read_text())]
    assert found == [], "use tests/support/module_clock.py"


@pytest.mark.parametrize(
    "patched", ['cluster.time, "sleep"', '"a.b.time.monotonic"', '\n    time, "sleep"']
)
def test_a_clock_that_is_set_for_all_is_seen(patched: str) -> None:
    assert clocks_of_all(f"    monkeypatch.setattr({patched}, sleep)")
