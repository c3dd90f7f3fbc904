"""HTML that is true to what it is given: all text from outside goes through `text`, and a page needs nothing but itself.

INVARIANT  nothing from a run folder is markup, a script, or turns the direction of what stands around it.
PREVENTS   a topic named `<script>` that runs, and a name that reads backwards.
PROVED BY  tests/chaos/test_report_page.py::test_hostile_names_are_text_and_nothing_else
"""

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"
# What is not to be seen, or moves what stands around it: shown by its number instead.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff\ud800-\udfff]"
)
# A page takes nothing from elsewhere, and a browser is told so.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath "
    "d='M3 2v12M8 2v12M13 2v12M1 6h14M1 10h14' stroke='%234a6fd0' stroke-width='1.6'/%3E%3C/svg%3E"
)


def text(value: object) -> str:
    """As text inside an element or a quoted attribute."""
    return html.escape(visible(str(value)), quote=True)


def visible(said: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", said)


def page(title: str, body: str, *, script: str = "") -> str:
    style = (STATIC / "page.css").read_text()
    code = f"<script>{(STATIC / script).read_text()}</script>" if script else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="{_ICON}">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style></head>\n"
        f"<body>\n{body}\n{code}</body></html>\n"
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    name: str = "",
) -> str:
    """Cells are markup already. `numbers` are the columns that are aligned to the right."""
    heads = "".join(
        f'<th scope="col"{_right(at, numbers)}>{cell}</th>' for at, cell in enumerate(head)
    )
    lines = "\n".join(
        "<tr>"
        + "".join(f"<td{_right(at, numbers)}>{cell}</td>" for at, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    label = f' aria-label="{text(name)}"' if name else ""
    return (
        f'<div class="scroll" tabindex="0" role="region"{label}><table><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _right(at: int, numbers: Sequence[int]) -> str:
    return ' class="n"' if at in numbers else ""


def details(summary: str, inside: str, *, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>\n{inside}</details>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Names are text, what they stand for is markup."""
    rows = "".join(f"<div><dt>{text(name)}</dt><dd>{value}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{rows}</dl>'
