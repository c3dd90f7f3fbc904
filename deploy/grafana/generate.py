"""Writes the dashboards that Grafana loads.

python deploy/grafana/generate.py           write dashboards/*.json
python deploy/grafana/generate.py --check   say which of them are not what this would write, and fail
"""

import json
import sys
from pathlib import Path
from typing import Final

from annotations import ANNOTATIONS
from healthy import HEALTHY
from rendering import rendered
from restart import RESTART
from slow import SLOW
from transactions import TRANSACTIONS

FOLDER: Final = Path(__file__).resolve().parent / "dashboards"
BOARDS: Final = (HEALTHY, SLOW, TRANSACTIONS, RESTART)


def files() -> dict[Path, str]:
    return {
        FOLDER / f"{board.uid}.json": json.dumps(
            rendered(board, ANNOTATIONS), indent=2, ensure_ascii=False
        )
        + "\n"
        for board in BOARDS
    }


def main() -> int:
    wanted = files()
    if "--check" not in sys.argv:
        for path, text in wanted.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    unknown = sorted(set(FOLDER.glob("*.json")) - set(wanted))
    for path in [*stale, *unknown]:
        print(f"{path} is not what deploy/grafana/generate.py writes: run it", file=sys.stderr)
    return 1 if stale or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
