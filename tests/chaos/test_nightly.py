"""The night's frame, with programs that do nothing but answer: what they find is kept, and the exit code says it."""

import os
import subprocess
from pathlib import Path

import pytest

NIGHTLY = Path(__file__).resolve().parents[2] / "chaos" / "nightly.sh"
PYTHON = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
  *spark_kill_runs*)
    while [ "$1" != --data ]; do shift; done
    mkdir -p "$2" && touch "$2/log"
    [ "$SPARK" = 0 ] || echo "INVALID seed 7: lost"
    exit "$SPARK" ;;
  *pipeline*)
    [ "$PIPELINE" = 0 ] || { mkdir -p "$KEPT"; touch "$KEPT/log"; echo "data and logs are kept in $KEPT"; }
    exit "$PIPELINE" ;;
esac
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def night(folder: Path, *, spark: int, pipeline: int, tools: bool = True) -> tuple[int, str]:
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
    }
    command = ["bash", str(NIGHTLY), "0.001", str(folder / "out")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=50
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
def test_a_night_says_what_it_leaves_out(tmp_path: Path) -> None:
    code, said = night(tmp_path, spark=1, pipeline=1, tools=False)
    assert code == 0
    assert "left out, there is no Java: the pipeline" in said
