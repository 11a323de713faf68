"""Contestants that are not this package: what people write who train Xception with Keras.

    python -m distxcept.prove.race.peers fit [--jit on|off|auto] [--accumulate] SETTING     keras.Model.fit
    python -m distxcept.prove.race.peers loop [--jit on|off] SETTING                        a tf.function of their own

They get their images ready for use, as float32. `--accumulate` lets Keras sum the gradients of the setting's micro steps;
without it every micro step changes the weights. `--precision` and `--tf32` set what the config keys `precision` and
`engine.tf32` set for distxcept.
"""

import argparse
import os
import time
from typing import Any

from distxcept.prove.race.serve import Step, serve
from distxcept.prove.race.setting import Setting

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def keras_xception(setting: Setting) -> Any:
    """Keras' own; of another width, which that does not have, the same layers."""
    import keras

    if setting.width == 1.0:
        return keras.applications.Xception(
            weights=None,
            input_shape=(setting.image_size, setting.image_size, 3),
            classes=setting.classes,
            classifier_activation=None,
        )
    from distxcept.export.keras_model import keras_features
    from distxcept.model.layout import Layout

    images = keras.Input((setting.image_size, setting.image_size, 3))
    features = keras_features(Layout(classes=setting.classes, width=setting.width), images)
    return keras.Model(images, keras.layers.Dense(setting.classes)(features))


def images_and_labels(setting: Setting) -> tuple[Any, Any]:
    import numpy as np

    chance = np.random.default_rng(0)
    shape = (setting.batch, setting.image_size, setting.image_size, 3)
    labels = chance.integers(0, setting.classes, setting.batch, np.int32)
    return chance.uniform(-1, 1, shape).astype(np.float32), labels


def build_fit(setting: Setting, jit: bool | str, accumulate: bool) -> Step:
    import keras
    import tensorflow as tf

    model = keras_xception(setting)
    steps_of_update = setting.micro_steps if accumulate else 1
    model.compile(
        optimizer=keras.optimizers.SGD(
            0.001,
            momentum=0.9,
            gradient_accumulation_steps=steps_of_update if steps_of_update > 1 else None,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=jit,
    )
    data = tf.data.Dataset.from_tensors(images_and_labels(setting)).repeat().prefetch(2)

    class Clock(keras.callbacks.Callback):
        """From the first batch to the last: what fit does before and after an epoch is not held against it."""

        began = ended = 0.0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.began = self.began or time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ended = time.perf_counter()

    def run(steps: int) -> float:
        clock = Clock()
        model.fit(data, steps_per_epoch=steps * setting.micro_steps, verbose=0, callbacks=[clock])
        return clock.ended - clock.began

    return Step(run, images=setting.batch * setting.micro_steps)


def build_loop(setting: Setting, jit: bool = False) -> Step:
    import keras
    import tensorflow as tf

    model = keras_xception(setting)
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    if keras.mixed_precision.global_policy().compute_dtype == "float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)  # as fit does by itself
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images, labels = (tf.constant(array) for array in images_and_labels(setting))

    @tf.function(jit_compile=jit)
    def train_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = loss_of(labels, logits)
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        right = tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        return loss, tf.reduce_sum(tf.cast(right, tf.int32))

    def run(steps: int) -> None:
        for _ in range(steps * setting.micro_steps):
            loss, right = train_step(images, labels)
        float(loss), int(right)

    return Step(run, images=setting.batch * setting.micro_steps)


PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
JIT: dict[str, bool | str] = {"on": True, "off": False, "auto": "auto"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", choices=("fit", "loop"))
    parser.add_argument("--jit", choices=tuple(JIT), default="auto")
    parser.add_argument("--accumulate", action="store_true")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--tf32", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("setting", type=Setting.from_json)
    args = parser.parse_args()

    def build() -> Step:
        set_precision(args.precision, args.tf32)
        if args.peer == "fit":
            return build_fit(args.setting, JIT[args.jit], args.accumulate)
        return build_loop(args.setting, args.jit == "on")

    serve(build)


def set_precision(precision: str, tf32: str) -> None:
    """Eager, before the model is made."""
    import keras
    import tensorflow as tf

    if precision != "float32":
        keras.mixed_precision.set_global_policy(precision)
    if tf32 != "auto":
        tf.config.experimental.enable_tensor_float_32_execution(tf32 == "on")


if __name__ == "__main__":
    main()
