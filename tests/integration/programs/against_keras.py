"""Trains the same small network on the same data by `keras.Model.fit` and by our update; writes what came out.

    python against_keras.py RESULT.npz

One process for all of it: two logical CPUs, float64, graph mode. `RESULT.npz` has the weights after each training
under `CASE/WHO/PARAMETER`, and `CASE/WHO/error` where it ended with one.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from unittest import mock

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from keras_twin import build_twin, weights_of
from short_xception import short_xception

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.engines import Engine
from distxcept.engines.mirrored import MirroredEngine
from distxcept.engines.single import SingleEngine
from distxcept.model.freezing import trained_norms, trained_parameters
from distxcept.model.initial import initial_value
from distxcept.model.xception import Xception
from distxcept.training import update as update_module
from distxcept.training.accumulate import Batch
from distxcept.training.agreement import check_equal
from distxcept.training.objective import Objective
from distxcept.training.update import Update

SIZE, CLASSES, UPDATES = 71, 5, 3
# Keras rounds most constants to float32 even in float64, so all that both are given are exact there.
RATE, MOMENTUM, CLIP_NORM = 2.0**-4, 0.875, 2.0**-4
with short_xception():
    MODEL = Xception(classes=CLASSES, width=0.0625)
DEVICES = ["CPU:0", "CPU:1"]


@dataclass(frozen=True)
class Case:
    """One training, told in our words and in Keras' words."""

    name: str
    optimizer: dict
    keras_optimizer: dict
    batch: int = 12
    virtual: int = 4
    freeze: str | None = "backbone"
    norms_frozen: bool = True
    """Batch norms run as in inference and keep their parameters; freezing the backbone implies it."""
    who: tuple[str, ...] = ("ours", "ours in micro steps", "keras")
    accumulation: int | None = None
    images: np.ndarray = field(init=False)
    labels: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(11)
        number = UPDATES * self.batch
        object.__setattr__(self, "images", random.integers(0, 256, (number, SIZE, SIZE, 3), dtype=np.uint8))
        object.__setattr__(self, "labels", random.integers(0, CLASSES, number).astype(np.int32))


SGD = dict(name="sgd", momentum=MOMENTUM)
KERAS_SGD = dict(momentum=MOMENTUM)
CASES = [
    Case(
        "kernels",
        dict(SGD, nesterov=True, clip_norm=CLIP_NORM),
        dict(KERAS_SGD, nesterov=True, global_clipnorm=CLIP_NORM),
        freeze=None,
    ),
    Case("everything", SGD, KERAS_SGD, freeze=None, norms_frozen=False, virtual=12, who=("ours", "keras")),
    Case(
        "thirteen",
        SGD,
        KERAS_SGD,
        batch=13,
        virtual=1,
        who=("ours", "ours in micro steps", "ours mirrored", "keras", "keras mirrored"),
    ),
    Case(
        "clipping",
        dict(SGD, clip_norm=CLIP_NORM),
        dict(KERAS_SGD, global_clipnorm=CLIP_NORM),
        who=("ours", "ours mirrored", "keras", "keras mirrored"),
    ),
    Case(
        "accumulation",
        SGD,
        KERAS_SGD,
        accumulation=2,
        who=("ours", "ours mirrored in micro steps", "keras", "keras mirrored"),
    ),
]


def start_weights() -> dict[str, np.ndarray]:
    """No moving statistic at its initial value, so that inference mode is another thing than training mode."""
    random = np.random.default_rng(5)
    values = {p.name: initial_value(p, 0, np.float64) for p in MODEL.parameters}
    for p in MODEL.parameters:
        if p.kind in ("gamma", "moving_variance"):
            values[p.name] = random.uniform(0.5, 1.0, p.shape)
        elif p.kind in ("beta", "moving_mean", "bias"):
            values[p.name] = random.normal(0.0, 0.1, p.shape)
    return values


def train_ours(case: Case, who: str) -> dict[str, np.ndarray]:
    engine: Engine = MirroredEngine(DEVICES) if "mirrored" in who else SingleEngine("CPU:0")
    config = Config.model_validate(
        dict(
            data=dict(train=dict(kind="synthetic", samples=len(case.labels), classes=CLASSES)),
            model=dict(image_size=SIZE, width=MODEL.width, dropout=0.0, freeze=case.freeze),
            batch={"global": case.batch, "virtual": case.virtual},
            precision="float64",
            optimizer=dict(learning_rate=RATE, **case.optimizer),
        )
    )
    plan = plan_batches(
        samples=len(case.labels),
        global_batch=case.batch,
        virtual_batch=case.virtual,
        micro_batch=case.virtual if "micro steps" in who else case.batch,
        replicas=engine.replicas,
    )
    with kernels_only() if case.norms_frozen and case.freeze is None else nullcontext():
        update = Update(config, engine, MODEL, Objective(CLASSES), start_weights())
    for number in range(UPDATES):
        blocks = plan.blocks(plan.virtual_per_update)
        batches = [batch_of(case, plan.virtual_batch, number, blocks[k]) for k in engine.local_replicas]
        update(batches, plan, key=number, rate=RATE)
    assert check_equal(update.state, "after training") is None
    values = update.state.read()
    return {p.name: values[f"weights/{p.name}"] for p in MODEL.parameters}


def batch_of(case: Case, virtual: int, update: int, block: range) -> Batch:
    start = update * case.batch
    rows = slice(start + block.start * virtual, start + block.stop * virtual)
    with tf.device("CPU:0"):
        return Batch(
            tf.constant(case.images[rows].reshape(len(block), virtual, SIZE, SIZE, 3)),
            tf.constant(case.labels[rows].reshape(len(block), virtual)),
            tf.ones([len(block), virtual]),
            tf.constant(block.start, tf.int32),
            tf.zeros([0], tf.int32),
        )


@contextmanager
def kernels_only() -> Iterator[None]:
    """Keras' `trainable=False` on every batch norm; our config freezes whole blocks only."""

    def kernels(model, freeze):
        return [p for p in trained_parameters(model, freeze) if p.kind not in ("gamma", "beta")]

    def norms(model, freeze):
        """Those that are trained, and with `freeze=None`, as the update asks, all that there are."""
        return trained_norms(model, None) if asked.pop() else []

    asked = [True, False]
    with mock.patch.multiple(update_module, trained_parameters=kernels, trained_norms=norms):
        yield


def train_keras(case: Case, who: str) -> dict[str, np.ndarray]:
    strategy = tf.distribute.MirroredStrategy(DEVICES) if "mirrored" in who else tf.distribute.get_strategy()
    accumulation = case.accumulation
    with strategy.scope():
        twin = build_twin(MODEL, SIZE, start_weights())
        for layer in twin.layers:
            is_norm = isinstance(layer, keras.layers.BatchNormalization)
            layer.trainable = (layer.name == "predictions" or case.freeze is None) and not (
                is_norm and case.norms_frozen
            )
        twin.compile(
            optimizer=keras.optimizers.SGD(
                RATE, gradient_accumulation_steps=accumulation, **case.keras_optimizer
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
    images = case.images.astype(np.float64) / 127.5 - 1.0
    batch = case.batch // (accumulation or 1)
    twin.fit(images, case.labels, batch_size=batch, epochs=1, shuffle=False, verbose=0)
    return weights_of(twin)


def main(path: str) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(DEVICES))
    keras.config.set_floatx("float64")
    # Rewriting graphs for speed costs more than such small trainings can win.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    results = {f"start/{name}": value for name, value in start_weights().items()}
    for case in CASES:
        for who in case.who:
            train = train_keras if who.startswith("keras") else train_ours
            try:
                found = train(case, who)
            except Exception as error:
                # What stock Keras answers is what this program is to find out; ours has no business to fail.
                if not who.startswith("keras"):
                    raise
                results[f"{case.name}/{who}/error"] = np.array(f"{type(error).__name__}: {error}")
            else:
                results |= {f"{case.name}/{who}/{name}": value for name, value in found.items()}
            print(case.name, who, flush=True)
    np.savez(path, **results)


if __name__ == "__main__":
    main(sys.argv[1])
