"""The learning rate of an update: a pure function of the update's number, never of micro steps."""

import hashlib
import math
from bisect import bisect_right

from distxcept.config.schema import (
    CosineSchedule,
    ExponentialSchedule,
    OptimizerSection,
    Schedule,
    StepSchedule,
)


def update_key(seed: int, update: int) -> int:
    """Fixes the dropout of one update, whoever computes it."""
    digest = hashlib.sha256(f"update/{seed}/{update}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def learning_rate(
    config: OptimizerSection, *, update: int, updates_per_epoch: int, total_updates: int, global_batch: int
) -> float:
    """Rate of the update number `update`, counted from 0 over the whole run."""
    base = config.learning_rate
    if config.base_batch is not None:
        base *= global_batch / config.base_batch
    warmup = config.warmup_updates
    if update < warmup:
        return base * (update + 1) / warmup
    return base * _factor(config.schedule, update, updates_per_epoch, total_updates, warmup)


def warmup_notice(config: OptimizerSection, total_updates: int) -> str | None:
    """What to say of a run that ends before its warm-up does."""
    warmup = config.warmup_updates
    if not warmup or warmup < total_updates:
        return None
    return (
        f"the warm-up of {warmup} updates is not over when the run ends after {total_updates}; set optimizer.warmup_updates "
        f"lower, such as {total_updates // 10}, or train longer"
    )


def _factor(
    schedule: Schedule, update: int, updates_per_epoch: int, total_updates: int, warmup: int
) -> float:
    epochs = update / updates_per_epoch
    match schedule:
        case ExponentialSchedule():
            decays = epochs / schedule.every_epochs
            # 0.3 / 0.1 is a little below 3, and the step of that update must not wait for the next.
            return schedule.decay ** (math.floor(decays + 1e-9) if schedule.staircase else decays)
        case StepSchedule():
            return schedule.factor ** bisect_right(schedule.at_epochs, epochs)
        case CosineSchedule():
            progress = min(1.0, (update - warmup) / max(1, total_updates - 1 - warmup))
            return schedule.final + (1.0 - schedule.final) * 0.5 * (1.0 + math.cos(math.pi * progress))
        case _:
            return 1.0
