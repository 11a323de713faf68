"""The sums of one replica over its micro steps: gradients, statistics, counters.

    sums = 0
    for each part of the replica's block:                     a micro step, one at a time; on a CPU one on each core
        fetch the samples of the next one                     from the host to the device, beside the work
        sums += sums of the part                              forward, backward; added in their order
    (the last part stands outside of the loop where it is shorter, or where its gradients shall leave early)

Nothing is assigned here: weights come in as tensors, sums go out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from distxcept.data.mix import mix
from distxcept.model.batchnorm import VirtualBatchNormalizer
from distxcept.model.network import Network
from distxcept.model.precision import Precision
from distxcept.training.objective import Objective

MIX_STREAM = 0x6D6978


class Batch(NamedTuple):
    """Samples of one replica in one update: [virtual batches, samples of one, …]; images on the host where they take
    several micro steps."""

    images: tf.Tensor
    labels: tf.Tensor
    mask: tf.Tensor
    """One for a real sample, zero for padding and unreadable images."""
    first_virtual: tf.Tensor
    """Number within the update of the first virtual batch."""
    lane_bounds: tf.Tensor
    """Ordered reduction: bounds of this replica's lanes within its block; else empty."""

    def take(self, start: tf.Tensor | int, size: int) -> "Batch":
        """Traced. Virtual batches [start, start + size); cut on the host, so that a device gets one micro batch."""
        if size == self.images.shape[0]:
            return self
        with tf.device("CPU:0"):
            parts = [tf.slice(t, [start] + [0] * (len(t.shape) - 1), [size, *t.shape[1:]]) for t in self[:3]]
        images, labels, mask = (tf.identity(part) for part in parts)  # here they move to the device
        return Batch(images, labels, mask, self.first_virtual, self.lane_bounds)


class Drawn(NamedTuple):
    """One micro batch with all that is random about it."""

    images: tf.Tensor
    """[samples, …], mixed."""
    targets: tf.Tensor
    labels: tf.Tensor
    mask: tf.Tensor
    """Both as in `Batch`."""
    noise: Any
    """Of dropout, as the model draws it."""


class Sums(NamedTuple):
    gradients: list[tf.Tensor]
    statistics: tf.Tensor
    """Σ count·mean and Σ count·variance of each trained batch norm, flat."""
    counters: tf.Tensor
    """Real samples, loss, correct answers; float64."""


@dataclass(frozen=True)
class Accumulator:
    model: Network
    objective: Objective
    precision: Precision
    trained: Sequence[str]
    """Names of the weights that get a gradient."""
    norms: Sequence[str]
    """Batch-norm layers that run on batch statistics."""
    frozen_norms: frozenset[str]
    mixup: float = 0.0
    cutmix: float = 0.0
    """Alphas of the two ways to mix samples within a virtual batch; 0 is off."""
    compile_part: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function
    """The engine's: how a micro step is compiled."""

    def zeros(self, weights: Mapping[str, tf.Tensor], argument: tf.Tensor) -> Sums:
        """Zeros that depend on an argument of the traced function.

        Constants of the graph would stay in memory for ever, and the first gradients could not be added to them in place.
        And a sum of constants over the ranks is worked out once, when TensorFlow optimises the graph, and never asked for
        again: this rank would fall out of step with the others.
        """
        dtype, nothing = self.precision.variable, tf.minimum(tf.abs(argument), 0)
        channels = sum(weights[f"{norm}/moving_mean"].shape[0] for norm in self.norms)
        return Sums(
            [tf.fill(weights[name].shape, tf.cast(nothing, dtype)) for name in self.trained],
            tf.fill([2 * channels], tf.cast(nothing, dtype)),
            tf.fill([3], tf.cast(nothing, tf.float64)),
        )

    def block(
        self,
        weights: Mapping[str, tf.Tensor],
        batch: Batch,
        *,
        key: tf.Tensor,
        scale: tf.Tensor,
        parts: Sequence[int],
        at_once: int,
        fused: bool,
        remat: bool,
        peel_last: bool,
    ) -> Sums:
        """Traced, replica context. `parts` are their sizes in virtual batches."""

        def micro(part: Batch, start: tf.Tensor | int, size: int) -> Sums:
            numbers = batch.first_virtual + start + tf.range(size)
            seeds = tf.stack([tf.fill([size], key), tf.cast(numbers, tf.int64)], axis=1)
            return self.micro_step(weights, part, seeds=seeds, scale=scale, fused=fused, remat=remat)

        if not parts:
            return self.zeros(weights, key)
        if len(parts) == 1:
            return micro(batch, 0, parts[0])
        looped = len(parts) - 1 if peel_last or parts[-1] != parts[0] else len(parts)
        size = parts[0]

        alike = parts.count(size)

        def body(k: tf.Tensor, part: Batch, sums: Sums) -> tuple[tf.Tensor, Batch, Sums]:
            following = batch.take(tf.minimum(k + 1, alike - 1) * size, size)
            return k + 1, following, add(sums, micro(part, k * size, size))

        start = (tf.constant(0), batch.take(tf.constant(0), size), self.zeros(weights, key))
        _, part, sums = tf.while_loop(lambda k, *_: k < looped, body, start, parallel_iterations=at_once)
        if looped == len(parts):
            return sums
        # Without this the last part would start while the loop still runs, and memory would hold both.
        with tf.control_dependencies(sums.gradients):
            begun = tf.identity(looped * size)
            last = part if alike > looped else batch.take(begun, parts[-1])
            return add(sums, micro(last, begun, parts[-1]))

    def loop(self, step, start: tf.Tensor | int, stop: tf.Tensor | int, sums: Sums) -> Sums:
        """Adds `step(k)` for k in [start, stop), strictly one after the other, so that memory holds one of them."""

        def body(k: tf.Tensor, sums: Sums) -> tuple[tf.Tensor, Sums]:
            return k + 1, add(sums, step(k))

        first = tf.convert_to_tensor(start, tf.int32)
        return tf.while_loop(lambda k, _: k < stop, body, (first, sums), parallel_iterations=1)[1]

    def micro_step(
        self,
        weights: Mapping[str, tf.Tensor],
        batch: Batch,
        *,
        seeds: tf.Tensor,
        scale: tf.Tensor,
        fused: bool,
        remat: bool,
    ) -> Sums:
        """Traced, replica context. One forward and backward pass; `scale` multiplies the gradients only."""
        compute = self.compile_part(self.compute)
        return compute(weights, self.draw(batch, seeds), scale, fused=fused, remat=remat)

    def compute(
        self, weights: Mapping[str, tf.Tensor], drawn: Drawn, scale: tf.Tensor, *, fused: bool, remat: bool
    ) -> Sums:
        """Traced, replica context. Free of randomness, so that it may be compiled by whatever."""
        mask, labels = tf.reshape(drawn.mask, [-1]), tf.reshape(drawn.labels, [-1])
        sources = [weights[name] for name in self.trained]
        normalizer = VirtualBatchNormalizer(drawn.mask, fused=fused, frozen=self.frozen_norms)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            loss, logits = self.forward(weights, drawn, normalizer, remat=remat)
            target = loss * scale
        gradients = tape.gradient(target, sources)
        missing = [name for name, gradient in zip(self.trained, gradients, strict=True) if gradient is None]
        if missing:
            raise RuntimeError(f"no gradient reaches {', '.join(missing)}")
        correct = tf.cast(tf.argmax(logits, axis=1, output_type=tf.int32) == labels, tf.float64)
        counters = [tf.reduce_sum(mask), loss, tf.reduce_sum(correct * tf.cast(mask, tf.float64))]
        statistics = [tf.reshape(normalizer.sums[norm], [-1]) for norm in self.norms]
        return Sums(
            gradients,
            tf.concat(statistics, axis=0) if statistics else tf.zeros([0], self.precision.variable),
            tf.stack([tf.cast(counter, tf.float64) for counter in counters]),
        )

    def forward(
        self,
        weights: Mapping[str, tf.Tensor],
        drawn: Drawn,
        normalizer: VirtualBatchNormalizer,
        *,
        remat: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Traced, replica context. The sum of the samples' losses, and the logits."""
        compute = self.precision.compute
        logits = self.model(
            drawn.images, weights, normalizer, dtype=compute, dropout_noise=drawn.noise, remat=remat
        )
        logits = tf.cast(logits, self.precision.variable)
        mask = tf.cast(tf.reshape(drawn.mask, [-1]), logits.dtype)
        return tf.reduce_sum(self.objective.losses(logits, drawn.targets) * mask), logits

    def draw(self, batch: Batch, seeds: tf.Tensor) -> Drawn:
        """Traced, replica context. All that is random: MixUp and CutMix if the config says so, dropout's noise."""
        images = tf.reshape(batch.images, [-1, *batch.images.shape[2:]])
        targets = self.objective.targets(tf.reshape(batch.labels, [-1]), self.precision.variable)
        if self.mixup or self.cutmix:
            # Another stream than dropout's, which takes the seeds as they are.
            mixing = tf.bitwise.bitwise_xor(seeds, tf.constant([[MIX_STREAM, 0]], tf.int64))
            images = tf.cast(images, self.precision.compute)
            mask = tf.reshape(batch.mask, [-1])
            images, targets = mix(images, targets, mask, mixing, mixup=self.mixup, cutmix=self.cutmix)
        noise = self.model.dropout_noise(seeds, images.shape[0])
        return Drawn(images, targets, batch.labels, batch.mask, noise)


def add(a: Sums, b: Sums) -> Sums:
    return tf.nest.map_structure(tf.add, a, b)
