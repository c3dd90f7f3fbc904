"""Programs in other languages that run many scenarios in one process, and how a test asks for one of them.

A program is compiled once a session, into `.cache`, under the hash of its sources. It is started once, with the
names of the scenarios that were selected, and prints a JSON line for each; a test then looks up its own line.
All programs begin with the brokers, since a scenario mostly waits, and so it does beside the other suites; while leaders
die each begins when its first test comes, and has the brokers for itself.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from brokers import IN_CHAOS, NOTICED_S, calm, died, logged
from support.kafka_peer import CACHE, VERSION, NotFetched, alone, jars, java
from support.needs import give_up, missing

HERE = Path(__file__).parent
RUN_TIMEOUT_S = 900 if IN_CHAOS else 300
BUILD_TIMEOUT_S = 600
LOG_TAIL = 4_000
TRIES = 3
UNUSED_S = (
    3_600  # a build that nobody ran for so long is removed; another session may be at it before
)


_RUNNING: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True, slots=True)
class Outcome:
    ok: bool
    error: str | None
    gave_up: bool = False  # the client gave up a request whose broker died or moved


def scenarios(names: Iterable[str], *, at_rest: Collection[str] = ()) -> list[object]:
    """For `parametrize`; those `at_rest` say what does not hold while leaders die."""
    return [pytest.param(name, marks=calm) if name in at_rest else name for name in names]


@dataclass(frozen=True, slots=True)
class Language:
    need: str
    fixture: str  # which the tests of its scenarios use
    command: Callable[[], tuple[list[str], dict[str, str]]]  # and its environment; builds it first


class Programs:
    """The runs of a session, by their language."""

    def __init__(self, items: Sequence[pytest.Item], bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.selected = {name: _selected(items, one.fixture) for name, one in LANGUAGES.items()}
        self.pool = ThreadPoolExecutor(len(LANGUAGES), thread_name_prefix="client-program")
        self.runs: dict[str, Future[dict[str, Outcome]]] = {}

    def begin(self, name: str) -> Future[dict[str, Outcome]]:
        if name not in self.runs:
            self.runs[name] = self.pool.submit(self._run, LANGUAGES[name], self.selected[name])
        return self.runs[name]

    def _run(self, language: Language, names: Sequence[str]) -> dict[str, Outcome]:
        command, environment = language.command()
        return run([*command, self.bootstrap], names, environment)

    def outcomes(self, name: str) -> dict[str, Outcome]:
        """A program that can't be had skips here, in the test's own thread."""
        return self.begin(name).result()


@contextmanager
def programs(items: Sequence[pytest.Item], bootstrap: str) -> Iterator[Programs]:
    made = Programs(items, bootstrap)
    try:
        for name, language in LANGUAGES.items():
            if made.selected[name] and not IN_CHAOS and missing(language.need) is None:
                made.begin(name)
        yield made
    finally:  # an interrupted session waits for none of them
        made.pool.shutdown(wait=False, cancel_futures=True)
        for child in list(_RUNNING):
            child.kill()


def _selected(items: Sequence[pytest.Item], fixture: str) -> list[str]:
    """The scenarios whose tests run in this session, in order: those that use `fixture` and are not skipped."""
    return [
        item.callspec.params["scenario"]
        for item in items
        if fixture in getattr(item, "fixturenames", ())
        and hasattr(item, "callspec")
        and not any(mark.args[0] for mark in item.iter_markers("skipif"))
    ]


def run(
    command: Sequence[str], names: Sequence[str], environment: Mapping[str, str] | None = None
) -> dict[str, Outcome]:
    """What became of each scenario.

    While leaders die, one whose client gave up a request with its broker is asked again (`conftest.py`).
    """
    outcomes = _run_once(command, names, environment)
    for _ in range(TRIES - 1 if IN_CHAOS else 0):
        gave_up = [name for name in names if outcomes[name].gave_up]
        if gave_up:
            outcomes |= _run_once(command, gave_up, environment)
    return outcomes


def _run_once(
    command: Sequence[str], names: Sequence[str], environment: Mapping[str, str] | None
) -> dict[str, Outcome]:
    """One that the program said nothing of has failed with its stderr."""
    child = subprocess.Popen(
        [*command, *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | dict(environment or {}),
    )
    _RUNNING.add(child)
    try:
        stdout, stderr = child.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        child.kill()
        child.wait()
        _RUNNING.discard(child)
    silence = f"no result; exit code {child.returncode}\n{stdout[-500:]}{stderr[-LOG_TAIL:]}"
    outcomes = {name: Outcome(ok=False, error=silence) for name in names}
    for line in stdout.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            outcomes[said["name"]] = Outcome(said["ok"], said["error"], _gave_up(said))
    return outcomes


def _gave_up(said: Mapping[str, Any]) -> bool:
    """A request whose broker was dead just then, or whose coordinator moved (which a broker said itself)."""
    lost = said.get("gave_up")
    return bool(lost) and (
        lost["broker"] is None or died(lost["broker"], lost["at"] - NOTICED_S, lost["at"])
    )


def verify(outcomes: Mapping[str, Outcome], scenario: str) -> None:
    outcome = outcomes[scenario]
    assert outcome.ok, "\n".join([str(outcome.error), *logged(scenario)])


def _build(name: str, sources: Sequence[Path], salt: str, build: Callable[[Path], None]) -> Path:
    """A folder with what `build` made of these sources; made once. A failed build leaves nothing."""
    digest = hashlib.sha256(salt.encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    with alone(name):
        made = CACHE / f"{name}-{digest.hexdigest()[:16]}"
        if not made.exists():
            unfinished = made.with_name(f"{made.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            build(unfinished)
            unfinished.rename(made)
        os.utime(made)
        _remove_unused(name)
    return made


def _remove_unused(name: str) -> None:
    """Builds of sources as they once were."""
    for old in CACHE.glob(f"{name}-*"):
        if old.is_dir() and time.time() - old.stat().st_mtime > UNUSED_S:
            shutil.rmtree(old, ignore_errors=True)


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )


def _fetch(command: Sequence[str], folder: Path) -> None:
    """What needs a registry: without a network the tests are skipped by name, and fail under CI=true."""
    done = _run(command, folder)
    if done.returncode != 0:
        give_up(f"`{' '.join(command)}` could not fetch: {(done.stdout + done.stderr)[-1500:]}")


def _compile(command: Sequence[str], folder: Path) -> None:
    done = _run(command, folder)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def java_program() -> list[str]:
    libraries = _libraries("kafka")
    return java("Scenarios", classes=_java_classes(HERE / "java", libraries))


def streams_program(*arguments: str, jvm: Sequence[str]) -> list[str]:
    """Kafka Streams has jars of its own."""
    libraries = _libraries("kafka-streams")
    classes = _java_classes(HERE / "streams", libraries)
    return java("WordCount", *arguments, jvm=jvm, classes=classes, libraries=libraries)


def _libraries(of: str) -> Path:
    try:
        return jars(of)
    except NotFetched as error:
        give_up(str(error))


def _java_classes(folder: Path, libraries: Path) -> Path:
    sources = sorted(folder.glob("*.java"))
    lint = ["-Xlint:all,-serial,-try,-deprecation", "-Werror"]
    command = ["javac", *lint, "-cp", f"{libraries}/*", "-d", ".", *map(str, sources)]
    return _build(f"clients-{folder.name}", sources, VERSION, lambda into: _compile(command, into))


def node_program() -> tuple[list[str], dict[str, str]]:
    """The command, and where it finds its modules: `npm ci` fills a folder of the cache once."""
    folder = HERE / "node"
    sources = [folder / "package.json", folder / "package-lock.json"]

    def install(into: Path) -> None:
        for source in sources:
            shutil.copy(source, into)
        _fetch(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], into)

    modules = _build("clients-node", sources, "", install) / "node_modules"
    return ["node", str(folder / "main.js")], {"NODE_PATH": str(modules)}


def go_program() -> list[str]:
    folder = HERE / "go"
    sources = sorted([*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"])

    def compile_into(into: Path) -> None:
        _fetch(["go", "mod", "download"], folder)
        _compile(["go", "build", "-o", str(into / "scenarios"), "."], folder)

    return [str(_build("clients-go", sources, "", compile_into) / "scenarios")]


LANGUAGES = {
    "java": Language("java", "java_scenario", lambda: (java_program(), {})),
    "kafkajs": Language("node", "kafkajs_scenario", node_program),
    "franz": Language("go", "franz_scenario", lambda: (go_program(), {})),
}
