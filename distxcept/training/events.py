"""What the loop tells the outside. Writers and the terminal implement this; training knows none of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distxcept.batching import BatchPlan

if TYPE_CHECKING:
    from distxcept.data.sources import Source
    from distxcept.training.scores import SampleOutcomes


@dataclass(frozen=True, kw_only=True)
class TrainRecord:
    """Means over the updates since the last record."""

    epoch: int
    update: int
    """Updates of the run that are done."""
    samples: int
    """Real samples of the run that are done."""
    loss: float
    accuracy: float
    learning_rate: float
    gradient_norm: float
    images_per_second: float
    data_wait: float
    """Share of the time spent waiting for data."""
    peak_memory: int
    """Bytes; of the device where it tells, else of this process."""
    skipped_updates: int
    """Non-finite updates of the run so far."""


@dataclass(frozen=True, kw_only=True)
class ValidationRecord:
    epoch: int
    update: int
    samples: int
    loss: float
    accuracy: float
    top5_accuracy: float
    best: bool


class Observer:
    """Every method does nothing, so that an observer overrides what it needs. Called on the chief only."""

    def begins_anew(self) -> None:
        """`run.resume=never`: what stands in the run folder is of another training. No rank has written into it yet."""

    def started(self, start: dict[str, Any]) -> None: ...

    def planned(self, plan: BatchPlan, *, remat: bool) -> None:
        """The memory plan changed in the middle of the run."""

    def updated(self, update: int, loss: float, accuracy: float) -> None:
        """After every update."""

    def trained(self, record: TrainRecord) -> None:
        """Every `run.log_every` updates, and at the end of an epoch."""

    def validated(self, record: ValidationRecord) -> None: ...

    def predicted(self, outcomes: "SampleOutcomes", source: "Source", update: int) -> None:
        """What came out for each validation sample, after an evaluation."""

    def happened(self, kind: str, message: str, **details: Any) -> None:
        """Something that a person may want to know: resumed, saved, skipped, bad images, stopped …"""

    def bad_image(self, index: int, path: str, reason: str) -> None: ...

    def ended(self, summary: dict[str, Any]) -> None: ...


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, observers: list[Observer]):
        self._observers = observers

    def begins_anew(self) -> None:
        for observer in self._observers:
            observer.begins_anew()

    def started(self, start: dict[str, Any]) -> None:
        for observer in self._observers:
            observer.started(start)

    def planned(self, plan: BatchPlan, *, remat: bool) -> None:
        for observer in self._observers:
            observer.planned(plan, remat=remat)

    def updated(self, update: int, loss: float, accuracy: float) -> None:
        for observer in self._observers:
            observer.updated(update, loss, accuracy)

    def trained(self, record: TrainRecord) -> None:
        for observer in self._observers:
            observer.trained(record)

    def validated(self, record: ValidationRecord) -> None:
        for observer in self._observers:
            observer.validated(record)

    def predicted(self, outcomes: "SampleOutcomes", source: "Source", update: int) -> None:
        for observer in self._observers:
            observer.predicted(outcomes, source, update)

    def happened(self, kind: str, message: str, **details: Any) -> None:
        for observer in self._observers:
            observer.happened(kind, message, **details)

    def bad_image(self, index: int, path: str, reason: str) -> None:
        for observer in self._observers:
            observer.bad_image(index, path, reason)

    def ended(self, summary: dict[str, Any]) -> None:
        for observer in self._observers:
            observer.ended(summary)
