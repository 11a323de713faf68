"""The scores of an evaluation as text: summary, classes, and what is taken for what. Pure."""

from collections.abc import Iterator

import numpy as np

from distxcept.report.plain_text import plain_line, shortened
from distxcept.training.scores import Interval, Scores

MATRIX_CLASSES = 12
"""A larger confusion matrix does not fit on a screen: then only the largest confusions are told."""
TOLD_CONFUSIONS = 10
NAME_WIDTH = 24


def scores_text(scores: Scores) -> str:
    return "\n".join([*_summary(scores), "", *_classes(scores), "", *_confusions(scores)])


def _summary(scores: Scores) -> Iterator[str]:
    yield (
        f"loss {scores.loss:.4f} ({scores.loss_interval[0]:.4f} to {scores.loss_interval[1]:.4f}) · "
        f"top-1 {scores.accuracy:.2%} ({_range(scores.accuracy_interval)}) · "
        f"top-5 {scores.top5_accuracy:.2%} ({_range(scores.top5_interval)})"
    )
    yield (
        f"mean of the classes: precision {scores.macro_precision:.2%} · recall {scores.macro_recall:.2%} · "
        f"F1 {scores.macro_f1:.2%}"
    )
    yield f"calibration error {scores.calibration_error:.2%} (how far confidence lies from the share of right answers)"


def _classes(scores: Scores) -> Iterator[str]:
    width = _width(scores)
    yield f"{'class':{width}}  images  precision  recall  (95 % interval)    F1"
    for one in scores.classes:
        interval = _range(one.recall_interval) if one.recall_interval else "–"
        yield (
            f"{_name(one.name):{width}}  {one.samples:6}  {_share(one.precision):>9}  {_share(one.recall):>6}  "
            f"{interval:15}  {_share(one.f1):>6}"
        )


def _confusions(scores: Scores) -> Iterator[str]:
    if len(scores.classes) <= MATRIX_CLASSES:
        yield from _matrix(scores)
        return
    wrong = scores.confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(wrong, axis=None, kind="stable")[::-1][:TOLD_CONFUSIONS]
    yield "largest confusions (all of them: --json)"
    for true, predicted in zip(*np.unravel_index(order, wrong.shape), strict=True):
        if wrong[true, predicted]:
            names = f"{_name(scores.classes[true].name)} → {_name(scores.classes[predicted].name)}"
            yield f"{wrong[true, predicted]:6}  {names}"


def _matrix(scores: Scores) -> Iterator[str]:
    width, cell = _width(scores), max(5, len(str(scores.confusion.max())) + 1)
    heads = "".join(f"{f'({number})':>{cell}}" for number in range(len(scores.classes)))
    yield f"{'true class ↓   called →':{width + 5}}{heads}"
    for number, one in enumerate(scores.classes):
        row = "".join(f"{count:{cell}}" for count in scores.confusion[number])
        yield f"{f'({number})':4} {_name(one.name):{width}}{row}"


def _width(scores: Scores) -> int:
    return max(18, *(len(_name(one.name)) for one in scores.classes))


def _name(name: str) -> str:
    return shortened(plain_line(name), NAME_WIDTH)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _range(interval: Interval) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"
