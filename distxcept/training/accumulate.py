"""The sums of one replica over its micro steps: gradients, statistics, counters.

    sums = 0
    for each part of the replica's block:                     a micro step, one at a time; on a CPU one on each core
        fetch the samples of the next one                     from the host to the device, beside the work
        sums += sums of the part                              forward, backward; added in their order
    (a last part that is shorter or holds padding stands outside of the loop)

Nothing is assigned here: packs of weights come in as tensors, sums go out. So a micro step is a pure function. It is
traced once for each form, and every loop of every replica calls that one function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import tensorflow as tf

from distxcept.data.batch import Batch
from distxcept.data.mix import mix
from distxcept.model.batchnorm import VirtualBatchNormalizer
from distxcept.model.network import Network
from distxcept.model.packs import Pack, split_all
from distxcept.model.precision import Precision
from distxcept.training.objective import Objective
from distxcept.training.shared import Shared

MIX_STREAM = 0x6D6978


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
    """A flat vector for each pack of trained weights."""
    statistics: tf.Tensor
    """Σ count·mean and Σ count·variance of each trained batch norm, as the pack of moving statistics has them."""
    counters: tf.Tensor
    """Real samples, loss, correct answers; float64."""


class Form(NamedTuple):
    """How the sums of a block are computed. Each form, and each shape of a batch, has a trace of its own."""

    parts: tuple[int, ...]
    """Sizes of the parts in virtual batches."""
    at_once: int
    """Parts that run side by side on the cores of a CPU."""
    fused: int
    """The first so many virtual batches have real samples only, so that batch norm can use the fused kernel."""
    remat: bool


@dataclass(frozen=True)
class Accumulator:
    model: Network
    objective: Objective
    precision: Precision
    packs: Sequence[Pack]
    """Of the trained weights."""
    moving: Sequence[Pack]
    """Of the moving statistics: none, or one."""
    fixed: Sequence[Pack]
    """Of the other weights: none, or one."""
    frozen_norms: frozenset[str] = frozenset()
    mixup: float = 0.0
    cutmix: float = 0.0
    """Alphas of the two ways to mix samples within a virtual batch; 0 is off."""
    compile_part: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function
    """The engine's: how a micro step is compiled."""

    @cached_property
    def micro_step(self) -> Shared:
        """`_micro_step`, which all replicas share."""
        return Shared(self._micro_step)

    def zeros(self, argument: tf.Tensor) -> Sums:
        """Traced. Zeros that depend on an argument of the traced function.

        Constants of the graph would stay in memory for ever, and the first gradients could not be added to them in place.
        And a sum of constants over the ranks is worked out once, when TensorFlow optimises the graph, and never asked for
        again: this rank would fall out of step with the others.
        """
        dtype, nothing = self.precision.variable, tf.minimum(tf.abs(argument), 0)
        moving = sum(pack.elements for pack in self.moving)
        return Sums(
            [tf.fill([pack.elements], tf.cast(nothing, dtype)) for pack in self.packs],
            tf.fill([moving], tf.cast(nothing, dtype)),
            tf.fill([3], tf.cast(nothing, tf.float64)),
        )

    def block(
        self,
        vectors: Sequence[tf.Tensor],
        batch: Batch,
        key: tf.Tensor,
        scale: tf.Tensor,
        *,
        form: Form,
        early: bool = False,
    ) -> Sums:
        """Traced, replica context. `vectors` are the packs of weights; `key` fixes the randomness of the update; `scale`
        multiplies the gradients only. With `early` each pack of gradients is there as soon as the last micro step has
        computed it, and not only when all of them are."""

        def micro(part: Batch, *, last: bool = False) -> Sums:
            size = part.images.shape[0]
            fused = max(0, form.fused - sum(form.parts[:-1])) if last else min(form.fused, size)
            return self.micro_step(
                vectors, part, key, scale, fused=fused, remat=form.remat, inline=last and early
            )

        if not form.parts:
            return self.zeros(scale)
        if len(form.parts) == 1:
            return micro(batch, last=True)
        size = form.parts[0]
        equal = form.parts.count(size)
        # The parts of a loop are computed alike. Only the last part may hold padding.
        padded = 0 < form.fused < sum(form.parts)
        looped = min(equal, len(form.parts) - 1) if early or padded else equal

        def body(k: tf.Tensor, part: Batch, sums: Sums) -> tuple[tf.Tensor, Batch, Sums]:
            following = batch.take(tf.minimum(k + 1, equal - 1) * size, size)
            return k + 1, following, add(sums, micro(part))

        start = (tf.constant(0), batch.take(tf.constant(0), size), self.zeros(scale))
        _, last, sums = tf.while_loop(lambda k, *_: k < looped, body, start, parallel_iterations=form.at_once)
        if looped == len(form.parts):
            return sums
        if equal == looped:
            last = batch.take(tf.constant(equal * size), form.parts[-1])
        # Without the wait the last part would start while the loop still runs, and memory would hold both.
        return add(sums, micro(last.after(sums.gradients), last=True))

    def split(self, vectors: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Traced. Every weight by name."""
        return split_all([*self.packs, *self.moving, *self.fixed], vectors)

    def loop(self, step, start: tf.Tensor | int, stop: tf.Tensor | int, sums: Sums) -> Sums:
        """Adds `step(k)` for k in [start, stop), strictly one after the other, so that memory holds one of them."""

        def body(k: tf.Tensor, sums: Sums) -> tuple[tf.Tensor, Sums]:
            return k + 1, add(sums, step(k))

        first = tf.convert_to_tensor(start, tf.int32)
        return tf.while_loop(lambda k, _: k < stop, body, (first, sums), parallel_iterations=1)[1]

    def _micro_step(
        self,
        vectors: Sequence[tf.Tensor],
        batch: Batch,
        key: tf.Tensor,
        scale: tf.Tensor,
        *,
        fused: int,
        remat: bool,
    ) -> Sums:
        """Traced, for all replicas. One forward and backward pass."""
        virtual = batch.images.shape[0]
        numbers = tf.cast(batch.first_virtual + tf.range(virtual), tf.int64)
        seeds = tf.stack([tf.fill([virtual], key), numbers], axis=1)
        compute = self.compile_part(self.compute)
        return compute(self.split(vectors), self.draw(batch, seeds), scale, fused=fused, remat=remat)

    def compute(
        self, weights: Mapping[str, tf.Tensor], drawn: Drawn, scale: tf.Tensor, *, fused: int, remat: bool
    ) -> Sums:
        """Traced, for all replicas. Free of randomness, so that it may be compiled by whatever."""
        mask, labels = tf.reshape(drawn.mask, [-1]), tf.reshape(drawn.labels, [-1])
        sources = {p.name: weights[p.name] for pack in self.packs for p in pack.parameters}
        normalizer = VirtualBatchNormalizer(drawn.mask, fused=fused, frozen=self.frozen_norms)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            loss, logits = self.forward(weights, drawn, normalizer, remat=remat)
            target = loss * scale
        gradients = tape.gradient(target, sources)
        missing = [name for name, gradient in gradients.items() if gradient is None]
        if missing:
            raise RuntimeError(f"no gradient reaches {', '.join(missing)}")
        # In int64: a GPU compares int32 on the host, and would wait for a copy in every micro step.
        correct = tf.cast(tf.argmax(logits, axis=1) == tf.cast(labels, tf.int64), tf.float64)
        counters = [tf.reduce_sum(mask), loss, tf.reduce_sum(correct * tf.cast(mask, tf.float64))]
        return Sums(
            [pack.join(gradients) for pack in self.packs],
            self._statistics(normalizer),
            tf.stack([tf.cast(counter, tf.float64) for counter in counters]),
        )

    def _statistics(self, normalizer: VirtualBatchNormalizer) -> tf.Tensor:
        if not self.moving:
            return tf.zeros([0], self.precision.variable)
        (pack,) = self.moving
        return normalizer.moving_sums(pack)

    def forward(
        self,
        weights: Mapping[str, tf.Tensor],
        drawn: Drawn,
        normalizer: VirtualBatchNormalizer,
        *,
        remat: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Traced, for all replicas. The sum of the samples' losses, and the logits."""
        compute = self.precision.compute
        logits = self.model(
            drawn.images, weights, normalizer, dtype=compute, dropout_noise=drawn.noise, remat=remat
        )
        logits = tf.cast(logits, self.precision.variable)
        mask = tf.cast(tf.reshape(drawn.mask, [-1]), logits.dtype)
        return tf.reduce_sum(self.objective.losses(logits, drawn.targets) * mask), logits

    def draw(self, batch: Batch, seeds: tf.Tensor) -> Drawn:
        """Traced, for all replicas. All that is random: MixUp and CutMix if the config says so, dropout's noise."""
        images = tf.reshape(batch.images, [-1, *batch.images.shape[2:]])
        targets = self.objective.targets(tf.reshape(batch.labels, [-1]), self.precision.variable)
        if self.mixup or self.cutmix:
            # Another stream than dropout's, which takes the seeds as they are.
            mixing = tf.bitwise.bitwise_xor(seeds, tf.constant([[MIX_STREAM, 0]], tf.int64))
            images = tf.cast(images, self.precision.compute)
            mask = tf.reshape(batch.weights, [-1])
            images, targets = mix(images, targets, mask, mixing, mixup=self.mixup, cutmix=self.cutmix)
        noise = self.model.dropout_noise(seeds, images.shape[0])
        return Drawn(images, targets, batch.labels, batch.weights, noise)


def add(a: Sums, b: Sums) -> Sums:
    return tf.nest.map_structure(tf.add, a, b)
