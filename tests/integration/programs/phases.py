"""Peak memory by phase for two micro batches, in a process of its own; the answer is JSON on stdout."""

import json

import numpy as np
import tensorflow as tf
from short_xception import short_xception

from distxcept.config.schema import Config
from distxcept.engines.devices import prepare_devices
from distxcept.engines.single import SingleEngine
from distxcept.training.build import build_training
from distxcept.training.memory_phases import describe_phases, measure_phases

found, device = [], prepare_devices(1, 1)[0]
# Rewriting graphs for speed costs more than such small steps can win.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
for micro in (8, 32):
    config = Config.model_validate(
        {
            "model": {"image_size": 96, "width": 0.25},
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 3}},
            "batch": {"global": 32, "virtual": 4, "micro": micro},
            "optimizer": {"name": "adam", "ema": 0.9},
            "engine": {"threads": 1},  # no parts: a micro step is one batch
        }
    )
    with short_xception():
        training = build_training(config, SingleEngine(device))
    before = training.update.state.read()
    phases = measure_phases(training)
    after = training.update.state.read()
    same = all(np.array_equal(before[name], after[name]) for name in before)
    found.append({**phases, "same": same, "text": describe_phases(phases)})
print(json.dumps(found))
