"""What the pipeline hands over: the samples of one update, for each replica of this process."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

HOST = "CPU:0"


@dataclass(frozen=True)
class ReplicaBatch:
    """What one replica computes in one update: n virtual batches of v samples. n may be 0."""

    images: tf.Tensor
    """uint8 [n, v, height, width, 3], on the host or on the replica's device; normalisation happens there."""
    labels: tf.Tensor
    """int32 [n, v]; 0 where the weight is 0."""
    weights: tf.Tensor
    """float32 [n, v]; 0 for padding and for images that could not be read, else 1."""
    indices: tf.Tensor
    """int64 [n, v]; sample index in the source, -1 for padding."""
    first_virtual: int
    """Number, within the update, of the first virtual batch."""


@dataclass(frozen=True)
class UpdateBatch:
    epoch: int
    update: int
    """Counted within the epoch."""
    replicas: list[ReplicaBatch]
    """One for each local replica."""
    real_samples: int
    """Samples that the update has over all replicas, bad ones included."""
    wait_seconds: float = 0.0
    """How long the caller waited for it."""


@dataclass
class Slots:
    """The arrays of one replica while threads fill them."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int32]
    weights: NDArray[np.float32]
    indices: NDArray[np.int64]
    first_virtual: int


def to_tensors(slots: Slots, device: str) -> ReplicaBatch:
    """The filled arrays, images on this device."""
    with tf.device(HOST):
        images = (
            # In place, without a copy: nobody writes to these arrays any more.
            tf.experimental.dlpack.from_dlpack(slots.images.__dlpack__())
            if slots.images.size
            else tf.convert_to_tensor(slots.images)
        )
        labels, weights, indices = (
            tf.convert_to_tensor(part) for part in (slots.labels, slots.weights, slots.indices)
        )
    # A device without room for it is the update's matter, which can do with less.
    with suppress(tf.errors.ResourceExhaustedError), tf.device(device):
        images = tf.identity(images) if device != HOST else images
    return ReplicaBatch(images, labels, weights, indices, slots.first_virtual)
