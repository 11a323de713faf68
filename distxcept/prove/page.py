"""A report of `distxcept prove` for people: the table of the terminal, and prove.html."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distxcept.prove.rows import MEANING, Report, Row, counts
from distxcept.report.html import page

STYLES = {
    "held": "green",
    "broken": "bold red",
    "failed": "bold red",
    "measured": "",
    "skipped": "bright_black",
}
STATES = {"held": "done", "broken": "failed", "failed": "failed", "measured": "", "skipped": "soft"}
"""Classes of the page's style sheet."""
NOTE_LENGTH = 300
"""Of the terminal's table; prove.json and prove.html have all of a note."""


def summary(report: Report) -> str:
    number = counts(report.rows)
    parts = [f"{number[status]} {status}" for status in MEANING if number[status]]
    state = {
        "held": "every guarantee that was checked holds",
        "broken": "not every guarantee holds",
        "interrupted": "interrupted: the rest was not checked",
    }[report.verdict]
    if report.verdict == "held" and not number["held"]:
        state = "no guarantee was checked"
    if report.verdict == "broken" and not number["broken"]:
        state = "not every guarantee could be checked"
    return f"{state} ({', '.join(parts)}; {sum(report.seconds.values()) and report.about.get('total_seconds', 0):.0f} s)"


def show(report: Report, console: Console) -> None:
    """Messages go elsewhere: this is the result, without the areas in which the doctor found nothing."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in ("", "what", "figure", "note"):
        table.add_column(name, overflow="fold")
    for section, rows in groupby(report.rows, key=lambda row: row.section):
        table.add_row("", Text(section, style="bold"), "", "")
        for row in (one for one in rows if one.note != "ok"):
            table.add_row(
                Text(row.status, style=STYLES[row.status]), row.what, row.figures, Text(_short(row.note))
            )
    console.print(table)
    for row in report.broken:
        console.print(Text(f"{row.status}: {row}", style=STYLES[row.status]), soft_wrap=True)
    console.print(Text(summary(report), style="bold red" if report.broken else "bold green"), soft_wrap=True)


def _short(note: str) -> str:
    return note if len(note) <= NOTE_LENGTH else f"{note[:NOTE_LENGTH]}…"


def html(report: Report) -> str:
    """One small file without any connection, to be attached to an issue."""
    facts = ((escape(name), escape(_text(value))) for name, value in report.about.items())
    about = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts)
    state = "failed" if report.broken else "stopped" if report.interrupted else "done"
    head = (
        f'<h1>distxcept prove <span class="state {state}">{escape(report.verdict)}</span></h1>'
        f"<p>{escape(summary(report))}</p>"
        f'<div class="scroll"><table>{about}</table></div>'
    )
    broken = f"<h2>Not held</h2>{_table(report.broken)}" if report.broken else ""
    sections = "".join(
        f"<h2>{escape(section)}</h2>{_table(list(rows))}"
        for section, rows in groupby(report.rows, key=lambda row: row.section)
    )
    legend = "".join(
        f"<p class=soft>{escape(status)}: {escape(text)}</p>" for status, text in MEANING.items()
    )
    return page("distxcept prove", head + broken + sections + f"<h2>Words</h2>{legend}")


def _table(rows: Sequence[Row]) -> str:
    body = "".join(
        f'<tr><td><span class="state {STATES[row.status]}">{row.status}</span></td><td><code>{escape(row.id)}</code></td>'
        f"<td>{escape(row.what)}</td><td>{escape(row.figures)}</td><td>{escape(row.note)}</td></tr>"
        for row in rows
    )
    return (
        '<div class="scroll"><table><tr><th></th><th>id</th><th>what</th><th>figure</th><th>note</th></tr>'
        f"{body}</table></div>"
    )


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items() if one not in (None, "", []))
    return ", ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
