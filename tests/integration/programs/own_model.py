"""Trainings of a Keras model through the Python interface, and the same update by Keras itself. All in one process.

python own_model.py FOLDER API_PAGE        runs below FOLDER; what was refused in refused.json; Keras' weights in keras.npz
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from distxcept import Run, Trainer
from distxcept.errors import ConfigError

SIZE, CLASSES, RATE = 71, 3, 0.05

CONFIG: dict[str, Any] = {
    "run": {"updates": 3, "log_every": 1, "seed": 3, "telemetry_every": None, "writers": []},
    "model": {"image_size": SIZE},
    # The last update of the epoch is short and has padding: two samples in a virtual batch of four.
    "data": {"train": {"kind": "synthetic", "samples": 18, "classes": CLASSES}, "augment": None},
    "batch": {"global": 8, "virtual": 4},
    "precision": "float64",
    "optimizer": {"learning_rate": RATE, "clip_norm": 1.0, "ema": 0.9, "weight_decay": 1e-4},
    "checkpoint": {"every_minutes": None, "best_metric": None},
}


def build(*, rate: float = 0.3, last: str | None = "softmax"):
    import keras
    from keras import layers

    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(8, 3, strides=4, use_bias=False)(inputs)
    x = y = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.SeparableConv2D(8, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(scale=False, epsilon=1e-5)(x)
    x = layers.Dropout(rate, noise_shape=(None, 1, 1, None))(x)
    x = layers.GlobalAveragePooling2D()(layers.Add()([x, y]))
    x = layers.BatchNormalization()(layers.Dense(12, activation="relu")(x))
    x = layers.Dropout(rate)(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation=last)(x))


def without_dropout():
    return build(rate=0.0)


def train(name: str, model=build, **overrides: Any) -> Run:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return Trainer(CONFIG, {"run.name": name, "run.dir": ".", **dotted}, model=model, quiet=True).train()


def refused(action) -> str:
    try:
        action()
    except ConfigError as error:
        return str(error)
    return "nothing"


def by_keras() -> dict[str, np.ndarray]:
    """One plain step of gradient descent on all images, from the values that `without_dropout` starts with."""
    import keras
    import tensorflow as tf

    from distxcept.model.keras_function import KerasNetwork

    keras.utils.set_random_seed(CONFIG["run"]["seed"])
    values = without_dropout().get_weights()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    model = build(rate=0.0, last=None)
    model.set_weights(values)
    images, labels = np.load("images.npy"), np.load("labels.npy")
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images / 127.5 - 1.0, training=True))
    keras.optimizers.SGD(RATE).apply(
        tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables
    )
    return KerasNetwork(model, image_size=SIZE, precision="float64").values()


def main(folder: str, page: str) -> None:
    os.chdir(folder)
    train("mirrored", engine__devices=2)  # first: the process gets its two devices here
    train("whole", batch__micro=8)
    train("virtual", run__updates=1)
    run = train("virtual")  # goes on, with layers that Keras now calls by other names
    answers = refused(lambda: train("virtual", without_dropout)), refused(lambda: train("virtual", None))
    later = {
        "another": Run(run.name, model=without_dropout),
        "none": Run(run.name),
        "right": Run(run.name, model=build),
    }
    texts = {
        name: refused(lambda one=one: one.probabilities(np.zeros([1, SIZE, SIZE, 3], np.uint8)))
        for name, one in later.items()
    }
    texts |= {"resumed": answers[0], "by config": answers[1], "export": refused(lambda: run.export("keras"))}
    Path("refused.json").write_text(json.dumps(texts))

    images = np.random.default_rng(0).integers(0, 256, [8, SIZE, SIZE, 3], np.uint8)
    np.save("images.npy", images)
    np.save("labels.npy", np.arange(8) % CLASSES)
    pixels = images / 127.5 - 1.0
    np.savez(
        "answers.npz",
        ours=later["right"].probabilities(images),
        keras=run.keras_model()(pixels, training=False),
    )
    data = {"kind": "arrays", "path": "images.npy", "labels": "labels.npy"}
    plain = {
        "optimizer.clip_norm": None,
        "optimizer.ema": None,
        "optimizer.weight_decay": 0.0,
        "optimizer.momentum": 0.0,
    }
    train("once", without_dropout, data__train=data, batch__virtual=8, run__updates=1, **plain)

    (snippet,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", Path(page).read_text(), re.S)
        if "def build" in code
    ]
    exec(compile(snippet.replace('"epochs": 10', '"epochs": 1'), page, "exec"), {})
    np.savez("keras.npz", **by_keras())  # last: it changes Keras' number format


if __name__ == "__main__":
    main(*sys.argv[1:])
