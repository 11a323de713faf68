"""The samples of one replica in one update: one type from the dataset to the traced step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

HOST = "CPU:0"


class Batch(NamedTuple):
    """n virtual batches of v samples. n may be 0, and then this replica has nothing to compute."""

    images: tf.Tensor
    """uint8 [n, v, height, width, 3]; on the host where they take several micro steps. The model scales the values."""
    labels: tf.Tensor
    """int32 [n, v]; 0 where the weight is 0."""
    weights: tf.Tensor
    """float32 [n, v]; 1 for a sample that counts, 0 for padding and for a sample that cannot be used."""
    first_virtual: tf.Tensor
    """Number, within the update, of the first virtual batch."""
    lane_bounds: tf.Tensor
    """Ordered reduction: bounds of this replica's lanes within its virtual batches; else empty."""
    indices: Any = ()
    """int64 [n, v]; index of each sample in its source, -1 for padding. The traced step does not get it."""

    def take(self, start: tf.Tensor | int, size: int) -> "Batch":
        """Traced. Virtual batches [start, start + size); cut on the host, so that a device gets one micro batch."""
        if size == self.images.shape[0]:
            return self
        with tf.device(HOST):
            parts = [tf.slice(t, [start] + [0] * (len(t.shape) - 1), [size, *t.shape[1:]]) for t in self[:3]]
            first = self.first_virtual + start
        images, labels, weights = (tf.identity(part) for part in parts)  # here they move to the device
        return Batch(images, labels, weights, first, self.lane_bounds)

    def after(self, tensors: Sequence[tf.Tensor]) -> "Batch":
        """Traced. The same samples, once these tensors are computed."""
        with tf.control_dependencies(list(tensors)):
            return self._replace(images=tf.identity(self.images))

    def on(self, device: str) -> "Batch":
        """Eager. The images on this device. If it has no room for them they stay on the host: the update can do with
        less memory, this copy cannot."""
        if device == HOST:
            return self
        try:
            with tf.device(device):
                return self._replace(images=tf.identity(self.images))
        except tf.errors.ResourceExhaustedError:
            return self
