"""Exact evaluation: every validation sample counts once, whatever the number of replicas."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from distxcept.batching import plan_batches
from distxcept.cluster.compute import cores_for_parts
from distxcept.config.schema import Config
from distxcept.data.bad_samples import OnBad, bad_samples
from distxcept.data.dataset import Input, Reading
from distxcept.data.host import usable_cores
from distxcept.engines import Engine
from distxcept.engines.devices import has_one_thread_each
from distxcept.model.batchnorm import normalize_by_moving
from distxcept.model.network import Network
from distxcept.model.precision import Precision
from distxcept.training.objective import Objective
from distxcept.training.scores import SampleOutcomes
from distxcept.training.shared import Shared


class HasWeights(Protocol):
    def inference_weights(self) -> dict[str, tf.Tensor]:
        """Traced, replica context."""
        ...


@dataclass(frozen=True)
class Result:
    samples: int
    loss: float
    accuracy: float
    top5_accuracy: float

    @classmethod
    def of_sums(cls, samples: float, loss: float, correct: float, top5: float) -> "Result":
        """Means; no numbers where there was no sample: a loss of zero would be the best of all."""
        if not samples:
            return cls(0, math.nan, math.nan, math.nan)
        return cls(round(samples), loss / samples, correct / samples, top5 / samples)

    def metrics(self) -> dict[str, float]:
        """By the names that the config uses."""
        return {
            "validation_loss": self.loss,
            "validation_accuracy": self.accuracy,
            "validation_top5_accuracy": self.top5_accuracy,
        }


def own_cores(config: Config, engine: Engine) -> int:
    """Those of the CPU, if this process may spread parts of a batch over them."""
    return cores_for_parts(config, engine.name, on_cpu=engine.on_cpu, cores=usable_cores())


def idle_cores(config: Config, engine: Engine) -> int:
    """Cores that only parts of a batch can use: a training has left one thread to each operation of this process."""
    return own_cores(config, engine) if has_one_thread_each() else 1


class Evaluator:
    def __init__(
        self,
        engine: Engine,
        model: Network,
        objective: Objective,
        precision: Precision,
        state: HasWeights,
        *,
        cores: int = 1,
    ):
        """`cores`: of a CPU, each of which computes a part of a batch."""
        self.cores = cores
        self.engine, self.model, self.precision, self.state = engine, model, precision, state
        # The plain loss: class weights and smoothing shape training, not what a result means.
        self.objective = Objective(objective.classes)
        self._logits = Shared(self._compute_logits)
        self._step = engine.compile(self._replica_step)

    def __call__(
        self, reading: Reading, *, batch_per_replica: int, on_bad: OnBad = lambda index, path, reason: None
    ) -> SampleOutcomes:
        """Eager. Every rank has to call it. What came out for each sample, in the order of the source; on every rank
        alike."""
        inputs = self._inputs(reading, batch_per_replica, on_bad)
        parts = [self._step(inputs_of_replicas, ()).numpy() for inputs_of_replicas in inputs]
        table = np.concatenate(parts) if parts else np.zeros([0, 7])
        table = table[table[:, 6] > 0]
        table = table[np.argsort(table[:, 0], kind="stable")]
        indices, labels, predicted = (table[:, column].astype(np.int64) for column in range(3))
        return SampleOutcomes(indices, labels, predicted, table[:, 3], table[:, 4], table[:, 5] > 0)

    def _inputs(
        self, reading: Reading, batch_per_replica: int, on_bad: OnBad
    ) -> Iterator[list[tuple[tf.Tensor, ...]]]:
        """Batches of equal size for the local replicas; every rank gets the same number of them."""
        samples = len(reading.source)
        batch = min(batch_per_replica, -(-samples // self.engine.replicas))
        batch += -batch % min(self.cores, batch)  # padding has weight zero
        plan = plan_batches(
            samples=samples,
            global_batch=batch * self.engine.replicas,
            virtual_batch=batch,
            micro_batch=batch,
            replicas=self.engine.replicas,
        )
        with Input(
            reading,
            plan,
            self.engine.local_replicas,
            updates=plan.updates_per_epoch,
            pad=True,
            devices=self.engine.devices,
        ) as updates:
            for batches in updates:
                updates.prepare()
                for bad in bad_samples(reading, batches):
                    on_bad(*bad)
                yield [(b.images[0], b.labels[0], b.weights[0], b.indices[0]) for b in batches]

    def _replica_step(self, batch, common) -> tf.Tensor:
        """Traced, replica context. A row for each sample of all replicas: index, label, prediction, confidence, loss,
        whether the label is among the first five, weight."""
        images, labels, mask, indices = batch
        weights = {name: tf.identity(weight) for name, weight in self.state.inference_weights().items()}
        logits = self._logits(weights, images)
        columns = (
            indices,
            labels,
            tf.argmax(logits, axis=1),
            tf.reduce_max(tf.nn.softmax(tf.cast(logits, tf.float64)), axis=1),
            self._losses(logits, labels),
            self._in_top5(logits, labels),
            mask,
        )
        rows = tf.stack([tf.cast(column, tf.float64) for column in columns], axis=1)
        return self.engine.gather([rows])[0]

    def _compute_logits(self, weights: dict[str, tf.Tensor], images: tf.Tensor) -> tf.Tensor:
        """Traced, for all replicas."""

        def forward(part: tf.Tensor) -> tf.Tensor:
            logits = self.model(part, weights, normalize_by_moving, dtype=self.precision.compute)
            return tf.cast(logits, self.precision.variable)

        parts = max(n for n in range(1, self.cores + 1) if images.shape[0] % n == 0)
        if parts == 1:
            return forward(images)
        split = tf.reshape(images, [parts, -1, *images.shape[1:]])
        signature = tf.TensorSpec([images.shape[0] // parts, self.objective.classes], self.precision.variable)
        logits = tf.map_fn(forward, split, parallel_iterations=parts, fn_output_signature=signature)
        return tf.reshape(logits, [images.shape[0], -1])

    def _losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        targets = self.objective.targets(labels, logits.dtype)
        return tf.cast(self.objective.losses(logits, targets), tf.float64)

    def _in_top5(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        among = min(5, self.objective.classes)
        return tf.cast(tf.math.in_top_k(labels, tf.cast(logits, tf.float32), among), tf.float64)
