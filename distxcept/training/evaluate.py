"""Exact evaluation: every validation sample counts once, whatever the number of replicas."""

from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from distxcept.batching import plan_batches
from distxcept.data.pipeline import updates
from distxcept.data.sources import Source
from distxcept.engines import Engine
from distxcept.model.batchnorm import normalize_by_moving
from distxcept.model.precision import Precision
from distxcept.model.xception import Xception
from distxcept.training.objective import Objective


class HasWeights(Protocol):
    def inference_weights(self) -> dict[str, tf.Variable]: ...


@dataclass(frozen=True)
class Result:
    samples: int
    loss: float
    accuracy: float
    top5_accuracy: float

    def metrics(self) -> dict[str, float]:
        """By the names that the config uses."""
        return {
            "validation_loss": self.loss,
            "validation_accuracy": self.accuracy,
            "validation_top5_accuracy": self.top5_accuracy,
        }


class Evaluator:
    def __init__(
        self, engine: Engine, model: Xception, objective: Objective, precision: Precision, state: HasWeights
    ):
        self.engine, self.model, self.precision, self.state = engine, model, precision, state
        # The plain loss: class weights and smoothing shape training, not what a result means.
        self.objective = Objective(objective.classes)
        self._step = engine.compile(self._replica_step)

    def __call__(self, source: Source, *, image_size: int, batch_per_replica: int, **reading: Any) -> Result:
        """Eager. Every rank has to call it. `reading` goes to the pipeline as it is."""
        batch = min(batch_per_replica, -(-len(source) // self.engine.replicas))
        plan = plan_batches(
            samples=len(source),
            global_batch=batch * self.engine.replicas,
            virtual_batch=batch,
            micro_batch=batch,
            replicas=self.engine.replicas,
        )
        local = self.engine.local_replicas
        totals = [0.0, 0.0, 0.0, 0.0]
        with updates(
            source,
            plan,
            replicas=local,
            image_size=image_size,
            seed=None,
            epochs=1,
            devices=self.engine.devices,
            **reading,
        ) as batches:
            for update in batches:
                inputs = [_pad(replica, batch) for replica in update.replicas]
                sums = self._step(inputs, ()).numpy().tolist()
                totals = [total + part for total, part in zip(totals, sums, strict=True)]
        samples, loss, correct, top5 = totals
        real = max(samples, 1.0)
        return Result(round(samples), loss / real, correct / real, top5 / real)

    def _replica_step(self, batch, common) -> tf.Tensor:
        """Traced, replica context. Samples, loss, right answers and right among the first five, over all replicas."""
        images, labels, mask = batch
        weights = {name: tf.convert_to_tensor(v) for name, v in self.state.inference_weights().items()}
        logits = self.model(images, weights, normalize_by_moving, dtype=self.precision.compute)
        logits = tf.cast(logits, self.precision.variable)
        losses = tf.cast(
            self.objective.losses(logits, self.objective.targets(labels, logits.dtype)), tf.float64
        )
        correct = tf.cast(tf.argmax(logits, axis=1, output_type=tf.int32) == labels, tf.float64)
        among = min(5, self.objective.classes)
        top5 = tf.cast(tf.math.in_top_k(labels, tf.cast(logits, tf.float32), among), tf.float64)
        mask = tf.cast(mask, tf.float64)
        sums = tf.stack([tf.reduce_sum(part * mask) for part in (tf.ones_like(mask), losses, correct, top5)])
        return self.engine.sum([], [sums])[1][0]


def _pad(replica, batch: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """One batch of fixed size; a replica that got none computes on zeros of weight zero, to stay in step."""
    if replica.images.shape[0]:
        return replica.images[0], replica.labels[0], replica.weights[0]
    shape = replica.images.shape[2:]
    return tf.zeros([batch, *shape], tf.uint8), tf.zeros([batch], tf.int32), tf.zeros([batch], tf.float32)
