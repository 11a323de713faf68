"""The same updates with their parts one after the other and side by side, in one process; JSON on stdout.

For each number of cores: how many parts were at work at once, at most, and a digest of all weights afterwards.
"""

import json
import threading
from unittest import mock

import numpy as np
import tensorflow as tf
from short_xception import short_xception

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.engines.devices import prepare_devices
from distxcept.engines.single import SingleEngine
from distxcept.model.xception import Xception
from distxcept.training.accumulate import Accumulator, Batch
from distxcept.training.objective import Objective
from distxcept.training.update import Update

PARTS, VIRTUAL, SIZE, CLASSES = 6, 8, 71, 5


class Watch:
    """Counts parts between their first and their last operation. What has state would itself keep them apart."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def change(self, by: np.ndarray, _: np.ndarray) -> np.int32:
        with self._lock:
            self.now += int(by)
            self.most = max(self.most, self.now)
        return np.int32(0)

    def after(self, tensors: list[tf.Tensor], by: int) -> tf.Tensor:
        """Zero, when it has counted. Values go in and out: else TensorFlow would work it out beforehand, or leave it out."""
        with tf.control_dependencies(tensors):
            value = tf.reduce_sum(tensors[0])
        zero = tf.numpy_function(self.change, [tf.constant(by), value], tf.int32, stateful=False)
        return tf.ensure_shape(zero, [])

    def counted(self, compute):
        def watched(accumulator, weights, drawn, scale, **static):
            begun = self.after([drawn.images], 1)
            images = drawn.images + tf.cast(begun, drawn.images.dtype)
            sums = compute(accumulator, weights, drawn._replace(images=images), scale, **static)
            ended = self.after(sums.gradients, -1)
            return sums._replace(gradients=[g + tf.cast(ended, g.dtype) for g in sums.gradients])

        return watched


def run(cores: int, device: str) -> dict:
    config = Config.model_validate(
        {
            "model": {"width": 0.125},
            "data": {"train": {"kind": "synthetic", "samples": 8, "classes": CLASSES}},
            "batch": {"global": PARTS * VIRTUAL, "virtual": VIRTUAL},
        }
    )
    plan = plan_batches(
        samples=PARTS * VIRTUAL, global_batch=PARTS * VIRTUAL, virtual_batch=VIRTUAL, micro_batch=cores * VIRTUAL,
        cores=cores,
    )  # fmt: skip
    watch = Watch()
    with short_xception():
        model = Xception.of(config.model, CLASSES, dropout=0.5)
    random = np.random.default_rng(0)
    batch = Batch(
        tf.constant(random.integers(0, 256, (PARTS, VIRTUAL, SIZE, SIZE, 3), np.uint8)),
        tf.constant(random.integers(0, CLASSES, (PARTS, VIRTUAL), np.int32)),
        tf.ones((PARTS, VIRTUAL)),
        tf.constant(0, tf.int32),
        tf.zeros([0], tf.int32),
    )
    with mock.patch.object(Accumulator, "compute", watch.counted(Accumulator.compute)):
        update = Update(config, SingleEngine(device), model, Objective(CLASSES))
        for number in range(3):
            update([batch], plan, key=number, rate=0.01)
    (digest,) = update.state.digests()
    return {"most_at_once": watch.most, "digest": digest.hex(), "parts": plan.parts(PARTS)}


if __name__ == "__main__":
    (device,) = prepare_devices(1, 1)
    print(json.dumps({cores: run(cores, device) for cores in (1, 2, 3)}))
