"""Confusion matrix, classes, best and worst predictions of a report, from RUN/predictions.json."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from distxcept.report.predictions_file import FILE
from distxcept.report.runs import Entry, Run, read_json

MOST_CLASSES_OF_MATRIX = 40
MOST_CLASSES_OF_TABLE = 200
MOST_CONFUSIONS = 30
_THUMBNAIL = re.compile(r"data:image/jpeg;base64,[A-Za-z0-9+/=]+")


def predictions(run: Run) -> str:
    """Empty where there is no such file, or none that we understand."""
    found = read_json(run.folder / FILE)
    try:
        names = [str(name) for name in found["classes"]]
        confusion = {(int(a), int(b)): int(n) for a, b, n in found["confusion"]}
        if any(not 0 <= k < len(names) for pair in confusion for k in pair):
            return ""
        parts = [
            f"<h2>Predictions</h2><p class='soft'>{int(found['samples'])} validation images, after update "
            f"{int(found['update'])}</p>",
            matrix(names, confusion) if len(names) <= MOST_CLASSES_OF_MATRIX else "",
            _confusions(names, confusion),
            _classes(names, confusion),
            _samples("Most wrong", found["worst"], names),
            _samples("Most surely right", found["best"], names),
        ]
    except (KeyError, TypeError, ValueError, IndexError):
        return ""
    return "".join(parts)


def matrix(names: Sequence[str], confusion: dict[tuple[int, int], int]) -> str:
    """Each row is coloured by its own share: a rare class is read as easily as a frequent one."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for a, name in enumerate(names):
        total = sum(confusion.get((a, b), 0) for b in range(len(names)))
        cells = []
        for b in range(len(names)):
            count = confusion.get((a, b), 0)
            share = count / total if total else 0.0
            hit = ' class="hit"' if a == b else ""
            title = f"{name} called {names[b]}: {count} of {total}"
            cells.append(
                f'<td{hit} title="{escape(title)}" style="background:rgba(var(--heat),{share * 0.6:.3f})">{count or ""}</td>'
            )
        rows.append(f"<tr><th>{escape(name)}</th>{''.join(cells)}</tr>")
    return (
        '<div class="scroll"><table class="confusion"><caption class="soft">rows: what it is; columns: what it was called'
        f"</caption><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _confusions(names: Sequence[str], confusion: dict[tuple[int, int], int]) -> str:
    wrong = sorted(
        ((n, a, b) for (a, b), n in confusion.items() if a != b), key=lambda one: (-one[0], one[1:])
    )
    if not wrong:
        return "<p>No image was confused with another class.</p>"
    rows = "".join(
        f"<tr><td>{escape(names[a])}</td><td>{escape(names[b])}</td><td class='number'>{n}</td></tr>"
        for n, a, b in wrong[:MOST_CONFUSIONS]
    )
    shown = (
        f"the {MOST_CONFUSIONS} most frequent of {len(wrong)} confusions"
        if len(wrong) > MOST_CONFUSIONS
        else "confusions"
    )
    return (
        f"<details{' open' * (len(names) > MOST_CLASSES_OF_MATRIX)}><summary>{shown}</summary><div class='scroll'><table>"
        f"<thead><tr><th>is</th><th>was called</th><th class='number'>images</th></tr></thead>{rows}</table></div></details>"
    )


def class_rows(names: Sequence[str], confusion: dict[tuple[int, int], int]) -> list[dict[str, Any]]:
    """Recall and precision of each class, the worst recall first; classes without images are left out."""
    samples, called = [0] * len(names), [0] * len(names)
    for (a, b), n in confusion.items():
        samples[a] += n
        called[b] += n
    rows = []
    for k, name in enumerate(names):
        if samples[k]:
            right = confusion.get((k, k), 0)
            precision = right / called[k] if called[k] else None
            rows.append(
                {"name": name, "samples": samples[k], "recall": right / samples[k], "precision": precision}
            )
    return sorted(rows, key=lambda row: (row["recall"], row["name"]))


def _classes(names: Sequence[str], confusion: dict[tuple[int, int], int]) -> str:
    rows = class_rows(names, confusion)
    body = "".join(
        f"<tr><td>{escape(row['name'])}</td><td class='number'>{row['samples']}</td>"
        f"<td class='number'>{row['recall']:.1%}</td>"
        f"<td class='number'>{'–' if row['precision'] is None else format(row['precision'], '.1%')}</td></tr>"
        for row in rows[:MOST_CLASSES_OF_TABLE]
    )
    few = f"the {MOST_CLASSES_OF_TABLE} worst of " if len(rows) > MOST_CLASSES_OF_TABLE else ""
    return (
        f"<details><summary>{few}{len(rows)} classes, the worst recall first</summary><div class='scroll'><table><thead><tr>"
        "<th>class</th><th class='number'>images</th><th class='number'>recall</th><th class='number'>precision</th>"
        f"</tr></thead>{body}</table></div></details>"
    )


def _samples(title: str, samples: Sequence[Entry], names: Sequence[str]) -> str:
    if not samples:
        return ""
    return f"<h2>{title}</h2><div class='samples'>{''.join(_figure(one, names) for one in samples)}</div>"


def _figure(sample: Entry, names: Sequence[str]) -> str:
    label, predicted = names[sample["label"]], names[sample["predicted"]]
    picture = sample.get("thumbnail")
    name = escape(str(sample["name"]))
    if isinstance(picture, str) and _THUMBNAIL.fullmatch(picture):
        image = f'<img src="{picture}" alt="{escape(label)}" title="{name}">'
    else:
        image = f'<div class="soft" title="{name}">no picture</div>'
    sure = "" if sample.get("confidence") is None else f" {float(sample['confidence']):.0%}"
    if label == predicted:
        words = f'<span class="right">{escape(label)}{sure}</span>'
    else:
        words = f'<span class="wrong">{escape(predicted)}{sure}</span>, is {escape(label)}'
    return f'<figure class="sample">{image}<figcaption>{words}</figcaption></figure>'
