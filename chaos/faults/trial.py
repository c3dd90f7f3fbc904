"""A small load under a schedule of faults, to see what each of them does: idempotent producers, and all is read at the end.

    python -m fencepost.chaos.faults.trial --faults power --seconds 30 --seed 7 [--target kafka] [--data DIR]

Exit code 0 says VALID, 1 a broken promise, 2 that nothing could be said. `fencepost chaos run` has the loads that judge more.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.transactional.kept_topics import make_topic

from ..checkers.verdict import judge
from ..workloads.idempotent_stream import IdempotentStream, Plan
from .kinds import FAULTS, NONE
from .schedule import Schedule
from .systems import OLDER, SYSTEMS, System, system_of
from .targets import Asking
from .upgrade_faults import excuse

TOPIC: Final = "trial"
COPIES_MAX: Final = 3
IN_SYNC_S: Final = 60.0
CLIENT: Final = {"socket.timeout.ms": 4_000, "topic.metadata.refresh.interval.ms": 1_000}


def run(chosen: argparse.Namespace, folder: Path) -> int:
    faults = chosen.faults.split(",")
    system = system_of(
        chosen.target,
        folder,
        nodes=chosen.nodes,
        settings=chosen.set,
        older=chosen.older,
        faults=faults,
    )
    with system:
        create_topic(system, chosen.partitions)
        stream = IdempotentStream(
            Plan(
                bootstrap=system.bootstrap,
                topic=TOPIC,
                partitions=chosen.partitions,
                producers=chosen.producers,
                records_per_second=chosen.rate,
                seed=chosen.seed,
                client=CLIENT,
            ),
            excuse=lambda: excuse(system),
        )
        asked = Asking(system, topics=[TOPIC])
        began = time.monotonic()
        schedule = Schedule(
            system,
            faults,
            chosen.seed,
            chosen.seconds,
            asked,
            lambda line: _say(line, stream),
            at_once=chosen.at_once,
        )
        stream.start()
        try:
            with schedule:
                schedule.wait()
                time.sleep(max(0.0, began + chosen.seconds - time.monotonic()))
        finally:
            stream.stop()
        try:
            print(f"all replicas in sync after {asked.wait_in_sync(IN_SYNC_S):.1f} s")
        except TimeoutError as late:
            schedule.trouble.append(str(late))
        stream.read_all()
        codes = system.stop()
    for sentence in [*schedule.stage.seen, *stream.excused, *schedule.exits, *schedule.left_out]:
        print(f"  {sentence}")
    print(f"faults {dict(schedule.counts)}, left out {len(schedule.left_out)}; stops {codes}")
    verdict = judge(stream.history)
    print("\n".join(["", *schedule.trouble, str(verdict)]))
    if not verdict.valid:
        return 1
    return 2 if schedule.trouble else 0


def _say(line: dict[str, Any], stream: IdempotentStream) -> None:
    end = "" if line["until_s"] is None else " healed"
    print(
        f"{line['until_s'] or line['at_s']:7.2f} s {line['fault']}{end}: {line['what']} "
        f"[{stream.acknowledged} acknowledged]",
        flush=True,
    )


def create_topic(system: System, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    topic = NewTopic(
        TOPIC,
        partitions,
        min(COPIES_MAX, len(system.nodes)),
        config={"segment.bytes": "1048576"},
    )
    assert make_topic(admin, topic), f"{TOPIC} was there before"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="faults on real brokers under a small load.")
    made.add_argument("--target", choices=SYSTEMS, default="processes")
    made.add_argument("--faults", default="kill,pause,cut", help=f"of {', '.join([*FAULTS, NONE])}")
    made.add_argument("--seconds", type=float, default=30.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--nodes", type=int, default=3)
    made.add_argument("--at-once", type=int, default=1)
    made.add_argument("--partitions", type=int, default=6)
    made.add_argument("--producers", type=int, default=3)
    made.add_argument("--rate", type=int, default=200, help="a second and producer")
    made.add_argument("--older", default=OLDER, metavar="REV|DIR", help="for `upgrade`")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    made.add_argument("--data", type=Path, help="default: a new folder, kept if the run was bad")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    folder = chosen.data or Path(tempfile.mkdtemp(prefix="fencepost-trial-"))
    code = run(chosen, folder)
    if code:
        print(f"data and logs are in {folder}")
    elif chosen.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
