"""Peak memory of updates of K micro steps, in a process of its own: argument 1 is K, the answer is JSON on stdout.

The samples of the update are made before the baseline is read: they lie on the host as bytes, and grow with the
number of micro steps by design. Everything else that an update needs, tracing included, counts.
"""

import json
import sys

import numpy as np
import tensorflow as tf

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.engines.devices import prepare_devices
from distxcept.engines.single import SingleEngine
from distxcept.memory.limit import peak_bytes, process_bytes
from distxcept.model.xception import Xception
from distxcept.training.accumulate import Batch
from distxcept.training.objective import Objective
from distxcept.training.update import Update

IMAGE_SIZE, CLASSES, MICRO, UPDATES = 160, 100, 16, 2


def main(micro_steps: int) -> None:
    samples = micro_steps * MICRO
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": samples, "classes": CLASSES}},
            "batch": {"global": samples, "virtual": MICRO},
        }
    )
    plan = plan_batches(samples=samples, global_batch=samples, virtual_batch=MICRO, micro_batch=MICRO)
    engine = SingleEngine(prepare_devices(1, None)[0])
    update = Update(
        config, engine, Xception(classes=CLASSES, width=0.5, middle_blocks=1, dropout=0.5), Objective(CLASSES)
    )
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (micro_steps, MICRO, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    labels = random.integers(0, CLASSES, (micro_steps, MICRO), np.int32)
    mask = np.ones((micro_steps, MICRO), np.float32)
    batch = Batch(*map(tf.constant, (images, labels, mask, np.int32(0), np.zeros(0, np.int32))))
    del images
    baseline = process_bytes("VmRSS")
    outcomes = [update([batch], plan, key=number, rate=0.01) for number in range(UPDATES)]
    gradients = sum(4 * pack.elements for pack in update.state.packs)
    print(
        json.dumps(
            {
                "peak": peak_bytes() - baseline,
                "baseline": baseline,
                "gradients": gradients,
                "inputs": samples * IMAGE_SIZE**2 * 3,
                "applied": [outcome.applied for outcome in outcomes],
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
