"""The telemetry of a run: which cards to look at, what to compare them with, where to write."""

from pathlib import Path
from typing import cast

import tensorflow as tf

from distxcept.data.host import free_memory
from distxcept.memory.candidates import Situation
from distxcept.memory.estimate import EngineName
from distxcept.memory.memory_plan import read_memory_plan
from distxcept.memory.notices import SETTLING_UPDATES, Judge
from distxcept.memory.nvml import read_cards
from distxcept.memory.roomier import Roomier
from distxcept.memory.sample import Moment
from distxcept.memory.telemetry import Telemetry
from distxcept.model.layout import Layout
from distxcept.report.telemetry_files import TelemetryFiles
from distxcept.training.build import Training
from distxcept.training.own_cards import numbers_of_cards, pids_of_job


def nothing_larger(moment: Moment, free_bytes: int) -> None:
    """What another model would need is not known."""


def telemetry_of(training: Training, run_folder: Path) -> Telemetry:
    """Eager, when the devices are in use. Starts nothing yet."""
    config, engine, plan = training.config, training.engine, training.plan
    if config.run.telemetry_every is None:
        return Telemetry(every_seconds=None)
    gpus = [device for device in engine.devices() if device.startswith("GPU")]
    cards = numbers_of_cards(gpus)
    layout = training.network
    roomier = (
        Roomier(
            config,
            plan,
            training.remat,
            Situation(
                layout=layout,
                device="gpu" if gpus else "cpu",
                engine=cast(EngineName, engine.name),
                masked=bool(plan.samples % plan.global_batch) and config.data.remainder == "keep",
            ),
            tried=config.batch.micro == "auto" or read_memory_plan(run_folder) is not None,
        )
        if isinstance(layout, Layout)
        else nothing_larger
    )
    filling = plan.updates_per_epoch if config.data.cache == "memory" else 0
    return Telemetry(
        every_seconds=config.run.telemetry_every,
        judge=Judge(
            own_pids=pids_of_job(engine),
            larger=roomier,
            host_free_bytes=free_memory,
            settling_updates=max(SETTLING_UPDATES, filling),
        ),
        output=TelemetryFiles(
            run_folder,
            rank=engine.rank,
            ranks=engine.ranks,
            tensorboard="tensorboard" in config.run.writers,
        ),
        read_cards=lambda: read_cards(cards),
        device_bytes=lambda: tuple(tf.config.experimental.get_memory_info(gpu)["current"] for gpu in gpus),
    )
