"""The night's frame, with programs that do nothing but answer: what they find is kept, and the exit code says it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
NIGHTLY = Path(__file__).resolve().parents[2] / "chaos" / "nightly.sh"
PYTHON = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
  *spark_kill_runs*)
    while [ "$1" != --data ]; do shift; done
    mkdir -p "$2" && touch "$2/log"
    [ "$SPARK" = 0 ] || echo "INVALID seed 7: lost"
    exit "$SPARK" ;;
  *hypothesis-profile*)
    [ -z "$PROPERTIES" ] || { echo "FAILED tests/test_x.py::test_y"; exit "$PROPERTIES"; } ;;
  *pipeline*)
    [ "$PIPELINE" = 0 ] || { mkdir -p "$KEPT"; touch "$KEPT/log"; echo "data and logs are kept in $KEPT"; }
    exit "$PIPELINE" ;;
esac
"""
# Runs until it is asked to end, says how often it was asked, and what it has found.
FENCEPOST = """#!/bin/bash
echo "$@" >>"$CALLS"
case "$*" in *"$LASTS"*) ;; *) exit 0 ;; esac
asked=0
trap 'asked=$((asked + 1))' TERM INT
echo $$ >"$HERE.new" && mv "$HERE.new" "$HERE" # whoever sees it finds it written
for _ in {1..300}; do sleep 0.1; [ $asked = 0 ] || break; done
sleep 1
mkdir -p "$RUNS"
echo "seed 7 failed"
echo "asked $asked" >>"$CALLS"
exit 1
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def night(
    folder: Path, *, spark: int, pipeline: int, properties: str = "", tools: bool = True
) -> tuple[int, str]:
    """Four seconds of it: too short for the simulator."""
    tools_at = folder / "tools"
    tools_at.mkdir()
    for name in ("java", "mariadbd") if tools else ():
        program(tools_at / name, "#!/bin/sh\n")
    path = f"{tools_at}:{os.environ['PATH']}" if tools else _without(tools_at, "java")
    environment = {
        **os.environ,
        "PATH": path,
        "CI": "",
        "FENCEPOST": str(program(folder / "fencepost", "#!/bin/sh\n")),
        "PYTHON": str(program(folder / "python", PYTHON)),
        "CALLS": str(folder / "calls"),
        "KEPT": str(folder / "kept"),
        "SPARK": str(spark),
        "PIPELINE": str(pipeline),
        "PROPERTIES": properties,
    }
    command = ["bash", str(NIGHTLY), "0.001", str(folder / "out")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    return done.returncode, done.stdout


def _without(folder: Path, name: str) -> str:
    """A PATH that has what this machine has, but for one program."""
    for each in reversed(os.environ["PATH"].split(":")):
        for file in Path(each).glob("*"):
            link = folder / file.name
            if file.name != name:
                link.unlink(missing_ok=True)
                link.symlink_to(file)
    return str(folder)


@pytest.mark.slow
def test_a_night_kills_sparks_jobs_and_runs_the_pipeline_with_fresh_seeds(tmp_path: Path) -> None:
    code, _ = night(tmp_path, spark=0, pipeline=0)
    calls = (tmp_path / "calls").read_text()
    assert code == 0
    assert "spark_kill_runs --seeds 1" in calls and "--minutes 0.0" in calls
    assert "examples/pipeline/run.py --seed 1" in calls
    assert not list((tmp_path / "out").glob("spark-*[0-9]"))


@pytest.mark.slow
@pytest.mark.parametrize(("spark", "pipeline", "code"), [(1, 0, 1), (0, 2, 2), (2, 1, 1)])
def test_a_night_keeps_what_sparks_jobs_and_the_pipeline_found(
    tmp_path: Path, spark: int, pipeline: int, code: int
) -> None:
    said = night(tmp_path, spark=spark, pipeline=pipeline)
    assert said[0] == code
    kept = sorted(
        each.name.partition("-")[0]
        for each in (tmp_path / "out").glob("*-*[0-9]")
        if (each / "log").exists()
    )
    assert kept == [name for name, its in (("pipeline", pipeline), ("spark", spark)) if its]
    if spark:
        assert "INVALID seed 7: lost" in said[1]


@pytest.mark.slow
@pytest.mark.parametrize("code", ["1", "2"], ids=["at its end", "when its time is up"])
def test_a_night_keeps_which_property_failed_with_its_seed(tmp_path: Path, code: str) -> None:
    assert night(tmp_path, spark=0, pipeline=0, properties=code)[0] == 1
    (log,) = (tmp_path / "out").glob("failed-*-properties.log")
    assert log.read_text() == "FAILED tests/test_x.py::test_y\n"
    seed = log.name.split("-")[1]
    calls = (tmp_path / "calls").read_text()
    assert f"--hypothesis-profile random --hypothesis-seed {seed} tests" in calls


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
@pytest.mark.parametrize("lasts", ["sim run", "chaos rounds"])
def test_a_night_that_is_ended_ends_what_runs_once_and_keeps_what_it_found(
    tmp_path: Path, lasts: str, how: str
) -> None:
    environment = {
        **os.environ,
        "FENCEPOST": str(program(tmp_path / "fencepost", FENCEPOST)),
        "PYTHON": str(program(tmp_path / "python", PYTHON)),
        "CALLS": str(tmp_path / "calls"),
        "LASTS": lasts,
        "HERE": str(tmp_path / "here"),
        "RUNS": str(tmp_path / "out" / "runs"),
        "SPARK": "0",
        "PIPELINE": "0",
        "PROPERTIES": "",
    }
    hours = "0.1" if lasts == "sim run" else "0.001"
    # Who starts the tests with & has Ctrl-C ignored, by them and by all that they start.
    night = subprocess.Popen(
        ["env", "--default-signal=INT", "bash", str(NIGHTLY), hours, str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pid = 0
    try:
        until((tmp_path / "here").exists)
        pid = int((tmp_path / "here").read_text())
        if how == "Ctrl-C":
            os.killpg(night.pid, signal.SIGINT)
        else:
            night.terminate()
        said = night.communicate(timeout=30)[0]
        left = Path(f"/proc/{pid}").exists()
    finally:
        night.kill()
        night.communicate()
        if pid and Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    assert not left
    assert night.returncode == 1
    calls = (tmp_path / "calls").read_text().splitlines()
    first = next(at for at, call in enumerate(calls) if lasts in call)
    out = tmp_path / "out"
    assert calls[first + 1] == "asked 1"
    assert calls[first + 2 :] == [f"chaos {word} {out / 'runs'}" for word in ("prune", "index")]
    assert "came before the night was over" in said
    if lasts == "sim run":
        assert "seed 7 failed" in next(out.glob("failed-*-all.log")).read_text()


def until(condition) -> None:
    deadline = time.monotonic() + 25
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_night_says_what_it_leaves_out(tmp_path: Path) -> None:
    code, said = night(tmp_path, spark=1, pipeline=1, tools=False)
    assert code == 0
    assert "left out, there is no Java: the pipeline" in said
