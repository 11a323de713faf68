"""One candidate plan tried for real, in a process of its own: it may die of want of memory, and the run goes on.

    python -m distxcept.training.trial PID_OF_PARENT < REQUEST.json      one line of JSON on stdout

Random images stand for the data; everything else is the update of the config, on one device, as one replica
has it. Two updates: the first is traced and shows whether it fits, the second is timed.
Where the run has updates with padding, one of them comes first.
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

LONGEST_MICRO_STEPS = 2
"""Micro steps of a trial: with two there is everything that more would hold in memory."""

MEMORY_RAN_OUT = "memory ran out"
"""Said of a candidate that fails, in the log of a run that goes on: no last words of a process (last_words.py)."""

UPDATES_AHEAD = 2
"""Samples of the next updates that a run on a CPU holds in the same memory."""


@dataclass(frozen=True)
class Request:
    config: dict[str, Any]
    """The resolved config, with the candidate's micro batch."""
    classes: int
    remat: bool
    virtual_batches: int
    """Of the replica in a full update, at least 1."""
    padded: bool
    """Updates with padding occur; their batch norm needs more memory."""
    device: str
    threads: int | None
    limit_bytes: int | None
    cores: int
    """Of a CPU, for the parts of a micro step."""


@dataclass(frozen=True)
class Trial:
    fits: bool
    peak_bytes: int | None = None
    """Of the device; on a CPU the most that the process held."""
    seconds: float | None = None
    """Of one whole update of the replica."""
    reason: str = ""


def run_trial(request: Request) -> Trial:
    from distxcept.cluster.tensorflow_import import import_tensorflow

    import_tensorflow()
    import numpy as np
    import tensorflow as tf

    from distxcept.batching import plan_batches
    from distxcept.config.schema import Config
    from distxcept.data.batch import Batch
    from distxcept.engines.devices import one_thread_each, prepare_devices
    from distxcept.engines.numerics import set_numerics
    from distxcept.engines.single import SingleEngine
    from distxcept.memory.budget import BESIDE_BYTES
    from distxcept.memory.limit import limit_process
    from distxcept.model.xception import Xception
    from distxcept.training.objective import Objective
    from distxcept.training.peak import Peak
    from distxcept.training.update import Update

    config = Config.model_validate(request.config)
    set_numerics(config.engine)
    on_cpu = request.device.startswith("CPU")
    (device,) = prepare_devices([request.device], request.threads, limit=lambda cards: request.limit_bytes)
    assert isinstance(config.batch.micro, int)
    virtual, at_once = config.batch.virtual, config.batch.micro // config.batch.virtual
    steps = -(-request.virtual_batches // at_once)
    tried = min(request.virtual_batches, at_once * LONGEST_MICRO_STEPS)
    plan = plan_batches(
        samples=tried * virtual, global_batch=tried * virtual, virtual_batch=virtual,
        micro_batch=min(at_once, tried) * virtual, cores=request.cores,
    )  # fmt: skip
    if plan.core_each:
        one_thread_each()
    model = Xception.of(config.model, request.classes, dropout=config.model.dropout, on_cpu=on_cpu)
    engine = SingleEngine(device, jit=config.engine.compiles)
    update = Update(config, engine, model, Objective(request.classes, config.model.label_smoothing))
    random, size = np.random.default_rng(0), config.model.image_size
    full = Batch(
        random.integers(0, 256, (tried, virtual, size, size, 3), np.uint8),
        random.integers(0, request.classes, (tried, virtual), np.int32),
        np.ones((tried, virtual), np.float32),
        tf.constant(0, tf.int32),
        tf.zeros([0], tf.int32),
    )
    updates = [full, full]
    if request.padded and virtual > 1:  # a run holds the graphs of both forms
        mask = full.weights.copy()
        mask[-1, -1] = 0.0
        updates.insert(0, full._replace(weights=mask))
    if on_cpu and request.limit_bytes is not None:
        inputs = request.virtual_batches * virtual * size**2 * 3 * UPDATES_AHEAD
        limit_process(request.limit_bytes - inputs - BESIDE_BYTES)
    seconds = 0.0
    for number, batch in enumerate(updates):
        began = time.monotonic()
        outcome = update([batch], plan, key=number, rate=0.0, remat=request.remat)
        seconds = time.monotonic() - began
        if outcome.out_of_memory:
            return Trial(False, reason=MEMORY_RAN_OUT)
    peak = Peak(device).read()
    return Trial(True, peak, seconds * steps / max(1, len(plan.micro_steps(tried))))


if __name__ == "__main__":
    from distxcept.cluster.tether import die_with_parent

    die_with_parent(int(sys.argv[1]))  # nobody would read its answer, and it holds the memory of a whole run
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    print(json.dumps(asdict(run_trial(Request(**json.load(sys.stdin))))))
