"""The telemetry of a run: which cards to look at, what to compare them with, where to write."""

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from distxcept.data.host import free_memory
from distxcept.memory.memory_plan import read_memory_plan
from distxcept.memory.notices import SETTLING_UPDATES, Judge, Larger
from distxcept.memory.nvml import read_cards
from distxcept.memory.roomier import Roomier
from distxcept.memory.telemetry import Telemetry
from distxcept.report.telemetry_files import TelemetryFiles
from distxcept.training.build import Training
from distxcept.training.own_cards import pids_of_job, places_of_devices


def telemetry_of(training: Training, run_folder: Path, phases: Mapping[str, int] | None = None) -> Telemetry:
    """Eager, when the devices are in use. Starts nothing yet. `phases`: this rank's, where they were measured."""
    config, engine, plan = training.config, training.engine, training.plan
    if config.run.telemetry_every is None:
        return Telemetry(every_seconds=None)
    gpus = [device for device in engine.devices() if device.startswith("GPU")]
    places = places_of_devices(gpus)
    filling = plan.updates_per_epoch if config.data.cache == "memory" else 0
    return Telemetry(
        every_seconds=config.run.telemetry_every,
        judge=Judge(
            own_pids=pids_of_job(engine),
            larger=_larger(training, run_folder),
            host_free_bytes=free_memory,
            settling_updates=max(SETTLING_UPDATES, filling),
        ),
        output=TelemetryFiles(
            run_folder,
            rank=engine.rank,
            ranks=engine.ranks,
            tensorboard="tensorboard" in config.run.writers,
            phases=phases,
        ),
        read_cards=lambda: read_cards(places),
        device_bytes=lambda: tuple(tf.config.experimental.get_memory_info(gpu)["current"] for gpu in gpus),
    )


def _larger(training: Training, run_folder: Path) -> Larger:
    config, situation = training.config, training.situation
    if situation is None:
        return lambda moment, free_bytes: None
    tried = config.batch.micro == "auto" or read_memory_plan(run_folder) is not None
    return Roomier(config, training.plan, training.remat, situation, tried=tried)
