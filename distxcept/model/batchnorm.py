"""Batch norm whose statistics belong to the virtual batch.

A normalizer is called once for each batch-norm layer in a forward pass. In training it also gathers, for each layer,
the sums over the virtual batches of count × mean and count × biased variance. The moving statistics take one step an
update from these, after all replicas have added theirs.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from distxcept.model.packs import Pack

EPSILON = 1e-3
SMALLEST_FUSED_EPSILON = 1.001e-5
"""TensorFlow's fused kernel takes this one instead of a smaller one, without a word."""


Activations: TypeAlias = tf.Tensor | list[tf.Tensor]
"""One tensor, or a list of the virtual batches'."""


MOVING = ("moving_mean", "moving_variance")


class Statistics(NamedTuple):
    """Of one layer: sums over virtual batches of equal size, without their factor, or with masks [virtual batches,
    channels], still to be weighted and added."""

    mean: tf.Tensor
    variance: tf.Tensor
    factors: tuple[float, float] = (1.0, 1.0)


class Normalizer(Protocol):
    def __call__(
        self, name: str, x: Activations, weights: Mapping[str, tf.Tensor], epsilon: float = EPSILON
    ) -> tf.Tensor: ...


def normalize_by_moving(
    name: str, x: Activations, weights: Mapping[str, tf.Tensor], epsilon: float = EPSILON
) -> tf.Tensor:
    """Inference: the moving statistics, folded into one multiplication and one addition."""
    x = joined(x)
    scale = weights[f"{name}/gamma"] * tf.math.rsqrt(weights[f"{name}/moving_variance"] + epsilon)
    shift = weights[f"{name}/beta"] - weights[f"{name}/moving_mean"] * scale
    return x * tf.cast(scale, x.dtype) + tf.cast(shift, x.dtype)


class VirtualBatchNormalizer:
    """Training: the statistics of each virtual batch of the micro batch, on its own.

    `mask` is [virtual batches, samples], one for a real sample and zero for padding and unreadable images.
    The first `fused` virtual batches have real samples only, and the fast kernel computes them; that kernel knows
    neither weights nor float64. Layers in `frozen` run as in inference.
    """

    def __init__(self, mask: tf.Tensor, *, fused: int, frozen: Collection[str] = ()):
        self.mask = mask
        self.fused = fused
        self.frozen = frozen
        self.groups, self.group_size = mask.shape
        self.sums: dict[str, Statistics] = {}
        """Of each layer."""

    def without_sums(self) -> "VirtualBatchNormalizer":
        return VirtualBatchNormalizer(self.mask, fused=self.fused, frozen=self.frozen)

    def moving_sums(self, pack: Pack) -> tf.Tensor:
        """Traced. Σ count·mean and Σ count·variance of all layers, as the pack of moving statistics has them."""
        values = {
            f"{name}/{kind}": value
            for name, sums in self.sums.items()
            for kind, value in zip(MOVING, (sums.mean, sums.variance), strict=True)
        }
        if all(len(value.shape) == 2 for value in values.values()):
            parts = [values[parameter.name] for parameter in pack.parameters]
            padding = tf.zeros([self.groups, pack.padding], parts[0].dtype)
            return self._weighted(tf.concat([*parts, padding], axis=1))
        values = {name: self._weighted(v) if len(v.shape) == 2 else v for name, v in values.items()}
        # One product for all layers.
        factors = {
            f"{name}/{kind}": np.full(values[f"{name}/{kind}"].shape, factor)
            for name, sums in self.sums.items()
            for kind, factor in zip(MOVING, sums.factors, strict=True)
        }
        joined = pack.join(values)
        return joined * tf.constant(pack.to_numpy(factors, joined.dtype.as_numpy_dtype))

    def __call__(
        self, name: str, x: Activations, weights: Mapping[str, tf.Tensor], epsilon: float = EPSILON
    ) -> tf.Tensor:
        if name in self.frozen:
            return normalize_by_moving(name, x, weights, epsilon)
        gamma, beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]
        fused = self.fused if epsilon >= SMALLEST_FUSED_EPSILON else 0
        if fused == self.groups:
            y, self.sums[name] = self._fused(self._apart(x), gamma, beta, epsilon)
        elif not fused:
            y, self.sums[name] = self._masked(joined(x), self.mask, gamma, beta, epsilon)
        else:
            y, self.sums[name] = self._mixed(self._apart(x), fused, gamma, beta, epsilon)
        return y

    def _weighted(self, of_groups: tf.Tensor, first: int = 0) -> tf.Tensor:
        """Traced. The sum over the virtual batches from `first` on of count × value."""
        return tf.reduce_sum(of_groups * _count(self.mask[first:], of_groups.dtype), axis=0)

    def _apart(self, x: Activations) -> list[tf.Tensor]:
        return x if isinstance(x, list) else tf.split(x, self.groups) if self.groups > 1 else [x]

    def _mixed(
        self, parts: list[tf.Tensor], fused: int, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
    ) -> tuple[tf.Tensor, Statistics]:
        y, real = self._fused(parts[:fused], gamma, beta, epsilon)
        padded_y, padded = self._masked(joined(parts[fused:]), self.mask[fused:], gamma, beta, epsilon)
        mean = real.mean * real.factors[0] + self._weighted(padded.mean, fused)
        variance = real.variance * real.factors[1] + self._weighted(padded.variance, fused)
        return tf.concat([y, padded_y], axis=0), Statistics(mean, variance)

    def _fused(
        self, parts: list[tf.Tensor], gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
    ) -> tuple[tf.Tensor, Statistics]:
        outputs, means, variances = [], [], []
        for part in parts:
            y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
                part, gamma, beta, epsilon=epsilon, is_training=True
            )
            outputs.append(y)
            means.append(mean)
            variances.append(variance)
        elements = self.group_size * parts[0].shape[1] * parts[0].shape[2]
        # The kernel hands out the variance × N/(N−1); the definition wants the biased one.
        to_biased = (elements - 1) / elements if elements > 1 else 1.0
        factors = (float(self.group_size), self.group_size * to_biased)
        return joined(outputs), Statistics(_sum(means), _sum(variances), factors)

    def _masked(
        self, x: tf.Tensor, mask: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
    ) -> tuple[tf.Tensor, Statistics]:
        dtype = gamma.dtype
        grouped = tf.reshape(tf.cast(x, dtype), [*mask.shape, *x.shape[1:]])
        # A virtual batch without a single real sample has no statistics; dividing by one keeps it finite.
        elements = tf.maximum(_count(mask, dtype), 1.0) * float(x.shape[1] * x.shape[2])
        share = (tf.cast(mask, dtype) / elements)[:, :, None, None, None]
        mean = tf.reduce_sum(grouped * share, axis=[1, 2, 3])
        centred = grouped - mean[:, None, None, None, :]
        variance = tf.reduce_sum(tf.square(centred) * share, axis=[1, 2, 3])
        scale = gamma * tf.math.rsqrt(variance + epsilon)
        y = centred * scale[:, None, None, None, :] + beta
        return tf.cast(tf.reshape(y, x.shape), x.dtype), Statistics(mean, variance)


def _count(mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Traced. Real samples of each virtual batch, [virtual batches, 1]."""
    return tf.cast(tf.reduce_sum(mask, axis=1), dtype)[:, None]


def _sum(tensors: list[tf.Tensor]) -> tf.Tensor:
    return tf.add_n(tensors) if len(tensors) > 1 else tensors[0]


def joined(x: Activations) -> tf.Tensor:
    """One tensor of the virtual batches, whether they stand apart or not."""
    if not isinstance(x, list):
        return x
    return tf.concat(x, axis=0) if len(x) > 1 else x[0]
