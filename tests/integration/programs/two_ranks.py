"""What each rank of test_ranks.py runs: argument 1 is a folder, in which it leaves RANK.json.

A Keras 3 model that starts differently on every rank, one broadcast, a few updates whose gradients are reduced
inside a tf.function, and the same updates by one process over all data to compare with. mpi4py beside it.
"""

import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distxcept.cluster import detect
from distxcept.cluster.control import connect

SAMPLES, FEATURES, UPDATES = 12, 5, 3


def main(folder: Path) -> None:
    placement = detect(os.environ)
    control = connect(placement)
    hosts = control.gather({"rank": placement.rank, "host": placement.host or socket.gethostname()})

    import horovod.tensorflow as hvd

    hvd.init()
    report = {
        "placement": [placement.launcher, placement.rank, placement.size],
        "horovod": [hvd.rank(), hvd.size()],
        "mpi_operations": bool(hvd.mpi_enabled()),
        "hosts": hosts,
        **train_together(hvd),
        "agreed": control.broadcast(["from", placement.rank], root=1),
    }
    (folder / f"{placement.rank}.json").write_text(json.dumps(report))
    hvd.shutdown()
    control.barrier(timeout_seconds=30)  # MPI is ours: it lives on after Horovod


def train_together(hvd: Any) -> dict[str, Any]:
    """The model of this rank, trained on its share with the others, and one trained alone on everything."""
    import keras
    import numpy as np
    import tensorflow as tf

    keras.config.set_floatx("float64")
    random = np.random.default_rng(0)
    images = tf.constant(random.normal(size=[SAMPLES, FEATURES]))
    targets = tf.constant(random.normal(size=[SAMPLES, 1]))
    share = slice(hvd.rank() * SAMPLES // hvd.size(), (hvd.rank() + 1) * SAMPLES // hvd.size())
    model = build(seed=1 + hvd.rank())
    before = digest(model)
    hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)
    start = digest(model)
    alone = build(seed=100)
    alone.set_weights(model.get_weights())
    together = train(
        model, images[share], targets[share], lambda tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum)
    )
    reference = train(alone, images, targets, lambda tensors: tensors)
    return {
        "before": before,
        "start": start,
        "end": digest(model),
        "losses": together,
        "reference_losses": reference,
        "difference": max(
            float(np.max(np.abs(ours - theirs)))
            for ours, theirs in zip(model.get_weights(), alone.get_weights(), strict=True)
        ),
    }


def build(seed: int) -> Any:
    import keras

    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input([FEATURES]), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    )


def train(model: Any, images: Any, targets: Any, reduce: Callable[[list[Any]], list[Any]]) -> list[float]:
    """The loss of each update."""
    import keras
    import tensorflow as tf

    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def update() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(images, training=True) - targets)) / SAMPLES
        variables = [variable.value for variable in model.trainable_variables]
        loss, *gradients = reduce([loss, *tape.gradient(loss, variables)])
        optimizer.apply(gradients)
        return loss

    return [float(update()) for _ in range(UPDATES)]


def digest(model: Any) -> str:
    return hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
