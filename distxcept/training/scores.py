"""What an evaluation says beyond loss and accuracy, from the outcome of every sample. Pure; no TensorFlow.

Precision of a class: of the samples that were called so, the part that is. Recall: of those that are, the part that was
called so. F1: their harmonic mean. A class that has none of what the quotient needs has no value (None), and counts as
zero in the macro means if samples of it exist.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALIBRATION_BINS = 15
NORMAL_95 = 1.959963984540054
"""Half the width of the interval that holds 95 % of a normal distribution, in standard deviations."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class SampleOutcomes:
    """One entry for each sample that could be read."""

    indices: NDArray[np.int64]
    """In the source."""
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidences: NDArray[np.float64]
    """Probability of the predicted class."""
    losses: NDArray[np.float64]
    in_top5: NDArray[np.bool_]


@dataclass(frozen=True)
class ClassScore:
    name: str
    samples: int
    precision: float | None
    recall: float | None
    f1: float | None
    recall_interval: Interval | None


@dataclass(frozen=True)
class CalibrationBin:
    """Samples whose confidence lies in one of equally wide ranges."""

    samples: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Scores:
    samples: int
    loss: float
    loss_interval: Interval
    accuracy: float
    accuracy_interval: Interval
    top5_accuracy: float
    top5_interval: Interval
    macro_precision: float
    macro_recall: float
    macro_f1: float
    calibration_error: float
    calibration: tuple[CalibrationBin, ...]
    classes: tuple[ClassScore, ...]
    confusion: NDArray[np.int64]
    """[true class, predicted class]."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, by the names that docs/predict.md explains."""
        return {
            "loss_interval": list(self.loss_interval),
            "accuracy_interval": list(self.accuracy_interval),
            "top5_accuracy_interval": list(self.top5_interval),
            "macro_precision": self.macro_precision,
            "macro_recall": self.macro_recall,
            "macro_f1": self.macro_f1,
            "calibration_error": self.calibration_error,
            "calibration": [vars(one) for one in self.calibration],
            "classes": [vars(one) for one in self.classes],
            "confusion_matrix": self.confusion.tolist(),
        }


def score(outcomes: SampleOutcomes, class_names: tuple[str, ...]) -> Scores:
    """At least one sample is needed."""
    samples = len(outcomes.labels)
    correct = outcomes.predicted == outcomes.labels
    confusion = confusion_matrix(outcomes.labels, outcomes.predicted, len(class_names))
    classes = class_scores(confusion, class_names)
    present = [one for one in classes if one.samples]
    bins = calibration_bins(outcomes.confidences, correct)
    right, right_top5 = int(correct.sum()), int(outcomes.in_top5.sum())
    return Scores(
        samples=samples,
        loss=float(outcomes.losses.mean()),
        loss_interval=mean_interval(outcomes.losses),
        accuracy=right / samples,
        accuracy_interval=proportion_interval(right, samples),
        top5_accuracy=right_top5 / samples,
        top5_interval=proportion_interval(right_top5, samples),
        macro_precision=_mean([one.precision for one in present]),
        macro_recall=_mean([one.recall for one in present]),
        macro_f1=_mean([one.f1 for one in present]),
        calibration_error=sum(one.samples * abs(one.confidence - one.accuracy) for one in bins) / samples,
        calibration=bins,
        classes=classes,
        confusion=confusion,
    )


def confusion_matrix(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int
) -> NDArray[np.int64]:
    cells = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return cells.reshape(classes, classes)


def class_scores(confusion: NDArray[np.int64], class_names: tuple[str, ...]) -> tuple[ClassScore, ...]:
    scores = []
    for number, name in enumerate(class_names):
        right = int(confusion[number, number])
        samples, called = int(confusion[number].sum()), int(confusion[:, number].sum())
        scores.append(
            ClassScore(
                name,
                samples,
                precision=right / called if called else None,
                recall=right / samples if samples else None,
                f1=2 * right / (samples + called) if samples + called else None,
                recall_interval=proportion_interval(right, samples) if samples else None,
            )
        )
    return tuple(scores)


def calibration_bins(
    confidences: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = CALIBRATION_BINS
) -> tuple[CalibrationBin, ...]:
    """Equally wide ranges of confidence, (k/bins, (k+1)/bins]; empty ones are left out."""
    numbers = np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    found = []
    for number in np.unique(numbers):
        inside = numbers == number
        mean, accuracy = float(confidences[inside].mean()), float(correct[inside].mean())
        found.append(CalibrationBin(int(inside.sum()), mean, accuracy))
    return tuple(found)


def proportion_interval(successes: int, trials: int) -> Interval:
    """Wilson's interval: never outside of 0 and 1, and sensible for few samples and for rates of 0 and 1."""
    rate, square = successes / trials, NORMAL_95**2
    centre = rate + square / (2 * trials)
    half = NORMAL_95 * sqrt(rate * (1 - rate) / trials + square / (4 * trials**2))
    scale = 1 + square / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def mean_interval(values: NDArray[np.float64]) -> Interval:
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0
    return mean - NORMAL_95 * error, mean + NORMAL_95 * error


def _mean(values: list[float | None]) -> float:
    return sum(value or 0.0 for value in values) / len(values)
