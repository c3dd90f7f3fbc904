"""A small run, made up: a minute of writes with two faults, one gap and, if wished for, something lost."""

import json
import random
from pathlib import Path

HOSTILE = '<script>alert("x")</script>"\'&\u202egnp.\u2066\ud800\x00'


def run_json(**changes) -> dict:
    said = {
        "name": "queue-processes-kill",
        "workload": "queue",
        "target": "processes",
        "nodes": 3,
        "seed": 7,
        "faults": ["kill", "cut"],
        "command": "fencepost chaos run --workload queue --target processes --faults kill,cut --seconds 60 --seed 7",
        "began": "2026-11-21T16:00:00+00:00",
        "seconds": 60.0,
        "versions": {"fencepost": "0.1.0", "commit": "d96f4ae", "python": "3.11.7"},
        "machine": {"cores": "2", "memory": "24 GiB"},
        "verdict": "valid",
        "why": "no checker has found anything",
        "counts": {"faults": 2},
        "recovery_ms": {"p50": 412.0, "p99": 3100.0, "max": 3100.0},
    }
    return said | changes


def operation(number: int, ended_s: float, kind: str = "ok", **changes) -> dict:
    key = f"t{number % 4}-{number % 2}"
    op = {"f": "txn", "type": kind, "process": f"{number % 5}", "number": number}
    op |= {
        "sends": [[key, number, number if kind == "ok" else None, 0]],
        "polls": [[key, number - 4, number - 4, 1, 0]],
    }
    return (
        op
        | {"began_s": round(ended_s - 0.01, 4), "ended_s": round(ended_s, 4), "why": ""}
        | changes
    )


def history(seconds: float = 60.0, rate: int = 20, seed: int = 3) -> list[dict]:
    """Nothing is acknowledged between 20.0 and 24.5 s; what is tried then, nobody knows."""
    rng = random.Random(seed)
    found = []
    for number in range(int(seconds * rate)):
        at = number / rate
        if 20.0 <= at < 24.5:
            if number % 10 == 0:
                found.append(operation(number, at, "info", why="timed out"))
            continue
        latency = rng.lognormvariate(2.0, 0.6) / 1000
        found.append(operation(number, at, began_s=round(max(0.0, at - latency), 5)))
    return found


FAULTS = [
    {
        "at_s": 10.0,
        "until_s": None,
        "id": "a",
        "fault": "kill",
        "target": "leaders",
        "nodes": [1],
        "what": "kill: node 1",
    },
    {
        "at_s": 10.0,
        "until_s": 13.5,
        "id": "a",
        "fault": "kill",
        "target": "leaders",
        "nodes": [1],
        "what": "kill: node 1",
    },
    {
        "at_s": 20.0,
        "until_s": None,
        "id": "b",
        "fault": "cut",
        "target": "majority",
        "nodes": [2, 3],
        "what": "cut: 2, 3",
    },
    {
        "at_s": 20.0,
        "until_s": 24.0,
        "id": "b",
        "fault": "cut",
        "target": "majority",
        "nodes": [2, 3],
        "what": "cut: 2, 3",
    },
]


def seen(seconds: float = 60.0) -> list[dict]:
    found = []
    for at in range(int(seconds)):
        leader = 2 if 11 <= at < 30 else 1
        in_sync = [2, 3] if 10 <= at < 14 else [1, 2, 3]
        leaders = {
            f"t{n}-{p}": -1 if at == 10 and n == 0 else leader for n in range(4) for p in range(2)
        }
        isr = dict.fromkeys(leaders, in_sync)
        found.append(
            {
                "at_s": float(at),
                "leaders": leaders,
                "isr": isr,
                "controller": 2,
                "acked": 20 * at,
                "bytes": 0,
            }
        )
    return found


def write(folder: Path, run: dict | None, **files: list[dict]) -> Path:
    """Files by name: history, faults, seen, anomalies."""
    folder.mkdir(parents=True, exist_ok=True)
    if run is not None:
        (folder / "run.json").write_text(json.dumps(run))
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def good_run(folder: Path, **changes) -> Path:
    return write(
        folder, run_json(**changes), history=history(), faults=FAULTS, seen=seen(), anomalies=[]
    )


def bad_run(folder: Path, **changes) -> Path:
    lines = history()
    lost = {
        "name": "lost-write",
        "key": "t1-1",
        "what": "value 5 was acknowledged at offset 5 and never read",
        "operations": [6, 10],
    }
    run = run_json(verdict="invalid", why="something was lost", **changes)
    return write(folder, run, history=lines, faults=FAULTS, seen=seen(), anomalies=[lost])
