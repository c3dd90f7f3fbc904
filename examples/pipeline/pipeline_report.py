"""What a run has to say: lines for a terminal, and one page with a plot that needs nothing else."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 960, 340, 50
LABEL, LABEL_ROWS = 13, 3  # neighbours are not written over each other
COLOURS = {"database": "#555555", "orders": "#2563a8", "revenue": "#2f855a", "alerts": "#b7791f"}
FAULT = "#c53030"
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left}svg text{font:12px sans-serif}
.valid{color:#2f855a}.wrong{color:#c53030}"""


def exit_code(verdicts: Sequence[str]) -> int:
    """What is wrong weighs more than what is unknown."""
    return 1 if "WRONG" in verdicts else 2 if "UNKNOWN" in verdicts else 0


@dataclass
class Report:
    seed: int
    seconds: float
    began: float = 0.0  # time.time when customers began to order
    took_s: float = 0.0
    faults: list[tuple[float, str]] = field(default_factory=list)  # seconds since then, what
    times: dict[str, list[float]] = field(
        default_factory=dict
    )  # name -> when its records were written
    asked: tuple[str, ...] = ()  # the kinds of faults that this run is for
    left_out: int = 0  # faults for which Spark was too slow
    starts: dict[str, int] = field(default_factory=dict)  # of the source, of the job
    wrong: list[str] = field(default_factory=list)
    command: str = ""

    @property
    def verdict(self) -> str:
        """Equal topics prove nothing of faults that never fell."""
        if self.wrong:
            return "WRONG"
        return "UNKNOWN" if self.not_met else "EQUAL"

    @property
    def not_met(self) -> list[str]:
        """What this run was for, and did not meet."""
        fell = {what.partition(" ")[0] for _, what in self.faults}
        found = [f"no {kind} was killed" for kind in self.asked if kind not in fell]
        if self.left_out:
            found.append(f"{self.left_out} faults were left out: Spark was too slow")
        return found

    @property
    def ordered_s(self) -> float:
        """Faults that waited for Spark make it longer than was asked for."""
        return max([self.seconds, *(each - self.began for each in self.times.get("database", []))])

    def lines(self) -> list[str]:
        counts = ", ".join(f"{len(self.times[name])} {name}" for name in self.times)
        kinds = [what.partition(" ")[0] for _, what in self.faults]
        killed = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds)))
        starts = ", ".join(f"the {name} {self.starts[name]} times" for name in self.starts)
        said = f"{counts}; killed: {killed or 'nothing'}; started: {starts}; {self.took_s:.0f} s"
        return [
            f"{self.verdict} seed {self.seed}: {said}",
            *(f"  {each}" for each in [*self.wrong, *self.not_met]),
        ]

    def write_page(self, path: Path) -> None:
        lines = [*(self.wrong or ["what the topics hold is what SQL says"]), *self.not_met]
        said = "<br>".join(html.escape(each) for each in lines)
        faults = "".join(
            f"<tr><td>{at_s:.1f} s</td><td>{html.escape(what)}</td></tr>"
            for at_s, what in self.faults
        )
        counts = "".join(
            f"<tr><td style='color:{COLOURS[name]}'>■ {name}</td><td>{len(self.times[name])}</td></tr>"
            for name in self.times
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"<!doctype html><meta charset='utf-8'><title>Pipeline, seed {self.seed}</title><style>{STYLE}</style>"
            f"<h1 class='{'valid' if self.verdict == 'EQUAL' else 'wrong'}'>{self.verdict}</h1><p>{said}.</p>"
            f"<p><code>{html.escape(self.command)}</code>: orders for {self.ordered_s:.0f} s, {self.took_s:.0f} s in all.</p>"
            f"{self.plot()}<table>{counts}</table><h2>Killed</h2><table>{faults or '<tr><td>nothing</td></tr>'}</table>"
        )

    def plot(self) -> str:
        """Records over time, each line on a scale of its own; what was killed stands upright."""
        times = [each - self.began for name in self.times for each in self.times[name]]
        last = max([1.0, *times, *(at for at, _ in self.faults)])

        def x(at_s: float) -> float:
            """What was there before anybody ordered stands at the beginning."""
            return MARGIN + max(at_s, 0.0) / last * (WIDTH - 2 * MARGIN)

        parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='records over time'>"]
        for row, (at_s, what) in enumerate(self.faults):
            kind, label_y = html.escape(what.partition(" ")[0]), LABEL * (row % LABEL_ROWS + 1)
            parts.append(
                f"<line x1='{x(at_s):.1f}' x2='{x(at_s):.1f}' y1='{label_y}' y2='{HEIGHT - 30}' stroke='{FAULT}' "
                f"stroke-dasharray='3 3'><title>{html.escape(what)}</title></line>"
                f"<text x='{x(at_s) + 3:.1f}' y='{label_y}' fill='{FAULT}'>{kind}</text>"
            )
        for name in self.times:
            points = _points([each - self.began for each in self.times[name]], x)
            parts.append(
                f"<polyline fill='none' stroke='{COLOURS[name]}' stroke-width='2' points='{points}'/>"
            )
        ticks = max(1, round(last / 10))
        parts += [
            f"<text x='{x(tick):.1f}' y='{HEIGHT - 12}'>{tick} s</text>"
            for tick in range(0, int(last) + 1, ticks)
        ]
        return "".join([*parts, "</svg>"])


def _points(times: Sequence[float], x: object) -> str:
    assert callable(x)
    ordered = sorted(times)
    steps = max(1, len(ordered) // 400)
    chosen = [*range(0, len(ordered), steps), len(ordered) - 1] if ordered else []
    height = HEIGHT - 30 - LABEL * (LABEL_ROWS + 1)
    return " ".join(
        f"{x(ordered[n]):.1f},{HEIGHT - 30 - (n + 1) / len(ordered) * height:.1f}" for n in chosen
    )
