"""One self-contained HTML file of a run, or of several beside each other. It needs no network, and no TensorFlow to make.

Everything that comes from a run, file names and messages too, is escaped; a policy in the page's head allows exactly
our own script and forbids any connection.
"""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from distxcept import __version__
from distxcept.errors import DistxceptError
from distxcept.report import sections
from distxcept.report.curves import Spec, comparison_curves, device_curves, run_curves
from distxcept.report.runs import Run

FILE = "report.html"


def run_page(run: Run) -> str:
    training = run_curves(run)
    devices = device_curves(run.telemetry, run.events)
    parts = [
        sections.head(run),
        sections.charts("Curves", training),
        sections.charts("Devices", devices),
        sections.plan(run),
        sections.predictions(run),
        sections.timeline(run),
        sections.environment(run),
    ]
    return page(f"{run.name} · distxcept", "".join(parts), [*training, *devices])


def comparison_page(runs: Sequence[Run], found: dict[str, Any]) -> str:
    names = [str(run.folder) for run in runs]
    specs = comparison_curves(list(zip(names, runs, strict=True)))
    body = sections.comparison(names, found) + sections.charts("Curves", specs)
    return page("comparison · distxcept", body, specs)


def write_report(run: Run, path: Path | None = None) -> Path:
    """RUN/report.html, or elsewhere."""
    return write_page(path or run.folder / FILE, run_page(run))


def write_comparison(path: str, runs: Sequence[Run], found: dict[str, Any]) -> Path:
    return write_page(Path(path), comparison_page(runs, found))


def write_page(path: Path, text: str) -> Path:
    """Whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        scratch.write_text(text, encoding="utf-8", errors="replace")
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise DistxceptError(f"{path} cannot be written: {error.strerror}") from error
    return path


def page(title: str, body: str, specs: Sequence[Spec] = ()) -> str:
    """A whole self-contained page around a body whose texts are escaped already."""
    style, script = _asset("page.css"), _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="distxcept {escape(__version__)}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{_inline_json(specs)}</script>
<script>{script}</script>
</body>
</html>
"""


def _inline_json(value: Any) -> str:
    """Inside a script element only `</script` and `<!--` could end it early: neither is left."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return resources.files("distxcept.report").joinpath("assets", name).read_text(encoding="utf-8")
