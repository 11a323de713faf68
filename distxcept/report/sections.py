"""The parts of a report, as HTML. Every text from a run goes through `escape`."""

import shlex
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from distxcept.report.comparison import pair_lines, results
from distxcept.report.curves import Spec
from distxcept.report.prediction_sections import predictions
from distxcept.report.runs import Entry, Run, flatten
from distxcept.report.wording import metric_text, number_text, show_duration

__all__ = ["charts", "comparison", "environment", "head", "plan", "predictions", "timeline"]

MOST_EVENTS = 300
MOST_BAD_IMAGES = 50
ROUTINE = ("saved",)
PLAN_WORDS = {
    "equation": "batch",
    "global_batch": "global batch",
    "virtual_batch": "virtual batch",
    "micro_batch": "micro batch",
    "max_micro_steps": "micro steps of an update",
    "replicas": "replicas",
    "shares": "shares",
    "remat": "rematerialisation",
    "updates_per_epoch": "updates of an epoch",
    "samples": "training images",
}
ENVIRONMENT_WORDS = {
    "distxcept": "distxcept",
    "python": "python",
    "platform": "platform",
    "host": "host",
    "cpus": "cpus",
    "devices": "devices",
    "started": "started",
    "directory": "working directory",
}


def head(run: Run) -> str:
    facts = results(run)
    best_name, _, best_value = metric_text(facts["best_metric"], facts["best"]).rpartition(" ")
    tiles = [
        (best_value, f"best {best_name}, update {facts['best_update']}") if best_name else None,
        (_percent(facts["validation_accuracy"]), "validation top-1, last"),
        (number_text(_short(facts["validation_loss"])), "validation loss, last"),
        (number_text(_short(facts["train_loss"])), "training loss, last"),
        (f"{facts['update']} / {facts['total_updates'] or '?'}", "updates"),
        (number_text(_short(facts["images_per_second"])), "images/s, median"),
        (show_duration(facts["seconds"] or 0), "running"),
        (_gib(facts["peak_memory"]), "peak memory"),
        (str(max(0, run.starts - 1)), "restarts"),
        (str(facts["skipped_updates"] or 0), "skipped updates"),
        (str(facts["bad_images"]), "bad images"),
    ]
    shown = "".join(
        f'<div class="tile"><b>{escape(tile[0])}</b><span>{escape(tile[1])}</span></div>'
        for tile in tiles
        if tile is not None and tile[0] != "–"
    )
    state = facts["state"]
    trouble = (
        f'<p class="state failed">{escape(run.failure)}</p>' if run.failure and state == "failed" else ""
    )
    start = run.started
    about = [start.get("model"), _engine(start), f"{start['samples']} images" if "samples" in start else None]
    return (
        f'<h1>{escape(run.name)} <span class="state {state}">{state}</span></h1>'
        f'<p class="soft">{escape(" · ".join(text for text in about if text))}</p>{trouble}<div class="tiles">{shown}</div>'
    )


def _engine(start: Entry) -> str | None:
    if "engine" not in start:
        return None
    return f"{start['engine']} on {', '.join(map(str, start.get('devices') or []))}"


def charts(title: str, specs: Sequence[Spec]) -> str:
    if not specs:
        return ""
    holders = "".join(f'<div class="card chart" id="{escape(spec["id"])}"></div>' for spec in specs)
    return f'<h2>{escape(title)}</h2><div class="charts">{holders}</div>'


def plan(run: Run) -> str:
    rows = [(words, run.plan[key]) for key, words in PLAN_WORDS.items() if key in run.plan]
    rows += [("memory", run.started["memory"])] if "memory" in run.started else []
    return f"<h2>The plan</h2>{facts_table(rows)}" if rows else ""


def timeline(run: Run) -> str:
    told = [event for event in run.events if event.get("kind") not in ROUTINE]
    saved = len(run.events) - len(told)
    rows = [
        (
            _moment(event.get("time")),
            str(event.get("update", "")),
            _words(event.get("kind", "")),
            _what(event),
        )
        for event in told[-MOST_EVENTS:]
    ]
    left_out = f"the last {MOST_EVENTS} of {len(told)} are shown; " if len(told) > MOST_EVENTS else ""
    parts = [
        "<h2>What happened</h2>",
        table(("when", "update", "what", ""), rows) if rows else "<p>nothing was told</p>",
        f'<p class="soft">{left_out}{saved} snapshot{"s" * (saved != 1)} saved</p>',
    ]
    if run.bad_images:
        bad = [
            (str(one.get("path", "")), str(one.get("reason", ""))) for one in run.bad_images[:MOST_BAD_IMAGES]
        ]
        parts.append(
            f"<details><summary>{len(run.bad_images)} bad images</summary>{table(('image', 'reason'), bad)}</details>"
        )
    return "".join(parts)


def _words(name: Any) -> str:
    return str(name).replace("_", " ")


def _what(event: Entry) -> str:
    if event.get("kind") == "started":
        where = f"{_engine(event) or ''}, {event.get('batch', '')}".strip(", ")
        return f"going on: {where}" if event.get("update") else where
    if event.get("kind") == "ended":
        return f"{event.get('update')} of {event.get('total_updates')} updates"
    return str(event.get("message", ""))


def environment(run: Run) -> str:
    env = run.environment
    command = env.get("command")
    parts = ["<h2>Environment</h2>"]
    if isinstance(command, list):
        parts.append(f"<p>The exact command:</p><pre>{escape(shlex.join(map(str, command)))}</pre>")
    rows = [(words, env[key]) for key, words in ENVIRONMENT_WORDS.items() if key in env]
    if isinstance(env.get("ranks"), int):
        rows.append(("launcher", f"{env.get('launcher')} × {env['ranks']} rank{'s' * (env['ranks'] != 1)}"))
    for group in ("packages", "settings"):
        found = env.get(group)
        rows += [(name, value) for name, value in found.items() if value] if isinstance(found, dict) else []
    parts.append(facts_table(rows))
    settings = "\n".join(f"{key}: {value}" for key, value in flatten(run.config).items())
    if settings:
        parts.append(
            f"<details><summary>config.yaml, resolved</summary><pre>{escape(settings)}</pre></details>"
        )
    return "".join(parts)


def comparison(names: Sequence[str], found: dict[str, Any]) -> str:
    """`found` is what `comparison.compare` returns."""
    fields = [key for key in found["runs"][0] if key != "run"]
    rows = [
        (field.replace("_", " "), *(number_text(one[field]) for one in found["runs"]))
        for field in fields
        if any(one[field] is not None for one in found["runs"])
    ]
    settings = [(key, *map(number_text, values)) for key, values in found["config"].items()]
    parts = ["<h1>Comparison</h1>", table(("", *names), rows)]
    parts.append("<h2>Configs</h2>")
    parts.append(table(("key", *names), settings) if settings else "<p>They are the same.</p>")
    parts.append("<h2>Apart</h2>")
    for pair in found["pairs"]:
        head, *lines = pair_lines(pair)
        parts.append(f"<p>{escape(head)}<br>{'<br>'.join(escape(line.strip()) for line in lines)}</p>")
    return "".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def facts_table(rows: Iterable[tuple[str, Any]]) -> str:
    body = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(_plain(value))}</td></tr>" for name, value in rows
    )
    return f'<div class="scroll"><table>{body}</table></div>'


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else number_text(value)


def _moment(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _short(value: Any) -> float | None:
    """Files may have been edited by hand: what is no number is none."""
    return float(f"{value:.4g}") if isinstance(value, int | float) else None


def _percent(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else "–"


def _gib(size: int | None) -> str:
    return f"{size / 2**30:.2f} GiB" if size else "–"
