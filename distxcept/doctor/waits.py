"""How often Python waits for a device while a run trains, and when: counted in a short run on this engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import tensorflow as tf

from distxcept.config.schema import Config
from distxcept.engines import Engine
from distxcept.training.build import build_training
from distxcept.training.events import Observer
from distxcept.training.loop import Loop
from distxcept.training.update import Pending, Update

UPDATES = 8
MIDDLE = range(2, UPDATES - 1)
"""Updates that are counted, from 1: not the first, which is traced, and not the last, on which everything depends."""


@dataclass(frozen=True)
class Waits:
    in_an_update: float
    late: bool
    """The outcome of each of these updates was read when the next one had been started."""


def count_waits(engine: Engine) -> Waits:
    """Eager."""
    happened: list[str] = []
    config = Config.model_validate(
        {
            "run": {"updates": UPDATES, "log_every": 2},
            "model": {"image_size": 71, "width": 0.0625, "middle_blocks": 0},
            "data": {"train": {"kind": "synthetic", "samples": 4 * UPDATES * engine.replicas, "classes": 3}},
            "batch": {"global": 4 * engine.replicas, "virtual": 2, "micro": 2},
            "checkpoint": {"every_minutes": None},
        }
    )
    with TemporaryDirectory() as folder:
        loop = Loop(build_training(config, engine), Path(folder), Observer())
        with _noted(happened):
            loop.run()
    starts = [place for place, event in enumerate(happened) if event == "start"]
    reads = [place for place, event in enumerate(happened) if event == "read"]
    waits = sum(event == "wait" for event in happened[starts[MIDDLE.start] : starts[MIDDLE.stop]])
    late = all(reads[number] > starts[number + 1] for number in MIDDLE)
    return Waits(waits / len(MIDDLE), late)


@contextmanager
def _noted(happened: list[str]) -> Iterator[None]:
    """Appends "start" and "read" for each update, and "wait" whenever Python asks for the value of a tensor."""
    tensor: Any = next(kind for kind in type(tf.constant(0)).__mro__ if "numpy" in vars(kind))

    def noting(event: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            happened.append(event)
            return real(*arguments, **options)

        return call

    with (
        mock.patch.object(Update, "start", noting("start", Update.start)),
        mock.patch.object(Pending, "read", noting("read", Pending.read)),
        mock.patch.object(tensor, "numpy", noting("wait", tensor.numpy)),
    ):
        yield
