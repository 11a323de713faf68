"""Where a run stands, beside its tensors: plain numbers that a snapshot keeps as JSON. Pure."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from distxcept.config.schema import EarlyStopping, Metric, OptimizerSection, larger_is_better


@dataclass
class Watch:
    """Notices when a metric has stopped getting better."""

    best: float | None = None
    waited: int = 0
    """Evaluations since the best one."""

    def better(self, value: float, metric: Metric, min_delta: float = 0.0) -> bool:
        """What is no number (an evaluation that overflowed, or had no image to read) is never better."""
        none_yet = self.best is None or math.isnan(self.best)
        gain = 0.0 if self.best is None else (value - self.best) * (1 if larger_is_better(metric) else -1)
        if not math.isnan(value) and (none_yet or gain > min_delta):
            self.best, self.waited = value, 0
            return True
        self.waited += 1
        return False


@dataclass
class Progress:
    update: int = 0
    """Updates that are done; also the number of the next one."""
    samples: int = 0
    skipped_updates: int = 0
    nonfinite_in_a_row: int = 0
    bad_in_epoch: int = 0
    rate_factor: float = 1.0
    """What reduce-on-plateau has made of the learning rate."""
    finished: bool = False
    """Early stopping has ended the run."""
    best: Watch = field(default_factory=Watch)
    plateau: Watch = field(default_factory=Watch)
    stopping: Watch = field(default_factory=Watch)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Progress":
        watches = {name: Watch(**saved[name]) for name in ("best", "plateau", "stopping")}
        return cls(**{**saved, **watches})

    def reduce_on_plateau(self, optimizer: OptimizerSection, metrics: dict[str, float], rate: float) -> bool:
        """True if the learning rate, now `rate`, has been lowered after an evaluation."""
        plateau = optimizer.plateau
        if plateau is None:
            return False
        self.plateau.better(metrics[plateau.metric], plateau.metric)
        if self.plateau.waited < plateau.patience or rate * plateau.factor < plateau.min_learning_rate:
            return False
        self.rate_factor *= plateau.factor
        self.plateau.waited = 0
        return True

    def stop_early(self, stopping: EarlyStopping | None, metrics: dict[str, float]) -> bool:
        if stopping is None:
            return False
        self.stopping.better(metrics[stopping.metric], stopping.metric, stopping.min_delta)
        self.finished = self.stopping.waited >= stopping.patience
        return self.finished
