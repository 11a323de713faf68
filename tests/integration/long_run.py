"""A run of 10,000 updates, written by the training's own writers: the most that a report has to show."""

import math
from pathlib import Path

import numpy as np

from distxcept.data.sources.base import Sample, Source
from distxcept.memory.nvml import GpuState
from distxcept.memory.sample import Moment
from distxcept.memory.sample import Sample as Look
from distxcept.report.prediction_sections import MOST_CLASSES_OF_MATRIX
from distxcept.report.predictions_file import write_outcomes
from distxcept.report.run_folder import RunFiles
from distxcept.report.runs import Run
from distxcept.report.telemetry_files import TelemetryFiles
from distxcept.training.events import TrainRecord, ValidationRecord
from distxcept.training.scores import SampleOutcomes
from tests.unit.report.run_folders import CONFIG, STARTED, make_run, started

UPDATES = 10_000
UPDATES_PER_EPOCH = 500
VALIDATED = 4_000
LOOKS = 5_000
RANKS = CARDS = 2
WITHOUT_NUMBER = 4_322
"""The update whose loss is no number."""


class Noise(Source):
    """Pictures of noise: no JPEG of their size is larger."""

    def __init__(self, odd_name: str):
        self.class_names = (odd_name, *(f"class {k}" for k in range(1, MOST_CLASSES_OF_MATRIX)))
        self._odd_name = odd_name

    def __len__(self) -> int:
        return VALIDATED

    @property
    def labels(self) -> np.ndarray:
        return np.arange(len(self), dtype=np.int32) % len(self.class_names)

    def name(self, index: int) -> str:
        return f"{self._odd_name}/{index}.jpg"

    def read(self, index: int) -> Sample:
        return Sample(pixels=np.random.default_rng(index).integers(0, 256, (150, 200, 3), np.uint8))

    def digest(self) -> str:
        return "noise"


def make_long_run(folder: Path, odd_name: str = "a name") -> Run:
    """Every update told; validations, a restart, bad images, telemetry of two ranks with two cards each, the largest matrix
    that is shown and all pictures. `odd_name` stands wherever a run has texts of its user's."""
    events = [
        started(total_updates=UPDATES, model="Xception"),
        started(3000, at=STARTED + 3000, total_updates=UPDATES),
        {"kind": "out_of_memory", "time": STARTED + 5000, "update": 5000, "message": odd_name},
        {"kind": "ended", "time": STARTED + UPDATES, "update": UPDATES, "total_updates": UPDATES},
    ]
    config = {**CONFIG, "data": {"train": {"path": odd_name}}}
    make_run(folder, metrics=[], events=events, config=config)
    files = RunFiles(folder)
    for update in range(1, UPDATES + 1):
        files.trained(_trained(update))
        if update % UPDATES_PER_EPOCH == 0:
            files.validated(_validated(update))
    for index in range(100):
        files.bad_image(index, f"{odd_name}/{index}.jpg", "cut off")
    for rank in range(RANKS):
        _write_telemetry(folder, rank)
    source = Noise(odd_name)
    write_outcomes(folder, _outcomes(source), source, UPDATES)
    return Run(folder)


def _trained(update: int) -> TrainRecord:
    loss = math.nan if update == WITHOUT_NUMBER else 2 / math.sqrt(update) + 0.1 * math.sin(update)
    return TrainRecord(
        epoch=(update - 1) // UPDATES_PER_EPOCH,
        update=update,
        samples=32 * update,
        loss=loss,
        accuracy=1 - 1 / math.sqrt(update + 1) + 0.01 * math.cos(update),
        learning_rate=0.1 * (1 + math.cos(math.pi * update / UPDATES)) / 2,
        gradient_norm=1 + 1 / update + 0.1 * math.sin(3 * update),
        images_per_second=100 + 7 * math.sin(update / 5),
        data_wait=0.01 + 0.001 * (update % 7),
        peak_memory=2**30,
        skipped_updates=int(update >= WITHOUT_NUMBER),
    )


def _validated(update: int) -> ValidationRecord:
    accuracy = 1 - 1 / math.sqrt(update)
    return ValidationRecord(
        epoch=(update - 1) // UPDATES_PER_EPOCH,
        update=update,
        samples=VALIDATED,
        loss=1 - accuracy,
        accuracy=accuracy,
        top5_accuracy=(1 + accuracy) / 2,
        best=True,
    )


def _write_telemetry(folder: Path, rank: int) -> None:
    files = TelemetryFiles(folder, rank=rank, ranks=RANKS, tensorboard=False)
    files.open(0)
    for k in range(LOOKS):
        cards = tuple(
            GpuState(
                index=card,
                driver_version="550.54.15",
                name="a card",
                memory_total_bytes=2**34,
                memory_used_bytes=2**33 + k * 2**16 + card,
                utilisation_percent=90 - (k + card) % 9,
                temperature_celsius=60 + k % 5,
            )
            for card in range(CARDS)
        )
        moment = Moment(phase="train", update=2 * k, micro_batch=16)
        look = Look(
            time=STARTED + 5 * k,
            moment=moment,
            data_wait=0.01,
            rss_bytes=2**30 + k * 2**12,
            cpu_share=0.5 + 0.1 * math.sin(k),
            cards=cards,
        )
        files.write(look, [])
    files.close()


def _outcomes(source: Noise) -> SampleOutcomes:
    """One in ten is called by another name."""
    random, labels = np.random.default_rng(1), source.labels.astype(np.int64)
    wrong = random.random(VALIDATED) < 0.1
    predicted = np.where(wrong, random.integers(0, len(source.class_names), VALIDATED), labels)
    return SampleOutcomes(
        indices=np.arange(VALIDATED),
        labels=labels,
        predicted=predicted,
        confidences=random.uniform(0.3, 1, VALIDATED),
        losses=np.where(predicted == labels, 0.1, 3.0) + random.random(VALIDATED),
        in_top5=np.ones(VALIDATED, np.bool_),
    )
