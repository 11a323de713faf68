"""What the loop says of itself: to the observer, on the chief alone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distxcept.cluster.compute import runs_on_gpu
from distxcept.config.size import show_size
from distxcept.memory.candidates import candidate
from distxcept.memory.memory_plan import MemoryPlan
from distxcept.training.build import Training
from distxcept.training.events import Observer, Observers
from distxcept.training.progress import Progress


class Tell(Observers):
    """The observer on the chief, nobody elsewhere; every event gets the number of updates that are done."""

    def __init__(self, observer: Observer, *, chief: bool, updates_done: Callable[[], int]):
        super().__init__([observer] if chief else [])
        self._updates_done = updates_done

    def happened(self, kind: str, message: str, **details: Any) -> None:
        super().happened(kind, message, **{"update": self._updates_done(), **details})


def start_facts(training: Training, progress: Progress, run_folder: Path) -> dict[str, Any]:
    """What is trained, on what, and how: for the panel at the start and the first line of events.jsonl."""
    engine, plan, validation = training.engine, training.plan, training.validation
    config = training.config
    memory = str(MemoryPlan(plan.micro_batch, training.remat))
    if training.situation is not None:
        estimated = candidate(config, plan, training.remat, training.situation).needed_bytes
        memory += f", by the estimate {show_size(estimated)} beside TensorFlow itself"
    if config.memory.limit is not None:
        memory += f"; at most {config.memory.limit} a device"
    return {
        "model": f"{training.network.title}, {config.model.image_size} px; {config.precision}, "
        f"{config.optimizer.name}" + (f", frozen up to {config.model.freeze}" if config.model.freeze else ""),
        "total_updates": training.total_updates,
        "updates_per_epoch": plan.updates_per_epoch,
        "update": progress.update,
        "resume": config.run.resume,
        "samples": plan.samples,
        "classes": len(training.train.class_names),
        "validation_samples": len(validation) if validation else 0,
        "engine": engine.name,
        "replicas": engine.replicas,
        "devices": engine.devices(),
        "gpu_looked_for": runs_on_gpu(config, os.environ, gpus=1),
        "batch": plan.equation(),
        "memory": memory,
        "samples_done": progress.samples,
        "run_folder": str(run_folder),
    }


def end_facts(training: Training, progress: Progress, run_folder: Path) -> dict[str, Any]:
    return {
        "update": progress.update,
        "total_updates": training.total_updates,
        "samples": progress.samples,
        "best": progress.best.best,
        "best_metric": training.config.checkpoint.best_metric,
        "skipped_updates": progress.skipped_updates,
        "run_folder": str(run_folder),
    }
