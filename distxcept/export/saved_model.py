"""A SavedModel that takes the bytes of image files, for TensorFlow Serving and everything else that loads one.

    serving_default   images_bytes: string [n]                     the files as they are
    pixels            images: uint8 [n, size, size, 3]             already cut and scaled

Both give `probabilities` [n, classes], `label` [n] and `confidence` [n] of the most probable class.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from distxcept.config.schema import Evaluate
from distxcept.export.card import CARD, LABELS
from distxcept.export.pixels_graph import squares_of
from distxcept.model.batchnorm import normalize_by_moving
from distxcept.model.network import Network


class Served(tf.Module):
    def __init__(
        self,
        model: Network,
        weights: Mapping[str, np.ndarray],
        class_names: tuple[str, ...],
        image_size: int,
        evaluate: Evaluate,
    ):
        super().__init__(name="distxcept")
        self._model, self._size, self._evaluate = model, image_size, evaluate
        self._names = tf.constant([name.encode("utf-8", "surrogateescape") for name in class_names])
        self.weights = {
            name: tf.Variable(value.astype(np.float32), trainable=False, name=name.replace("/", "_"))
            for name, value in weights.items()
        }
        # An attribute of the module keeps the variables in the file; the keys would clash with paths otherwise.
        self.files = tf.function(
            self._files, input_signature=[tf.TensorSpec([None], tf.string, name="images_bytes")]
        )
        self.pixels = tf.function(
            self._pixels,
            input_signature=[tf.TensorSpec([None, image_size, image_size, 3], tf.uint8, name="images")],
        )

    def _files(self, images_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._pixels(squares_of(images_bytes, self._size, self._evaluate))

    def _pixels(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        weights = {name: tf.convert_to_tensor(variable) for name, variable in self.weights.items()}
        logits = self._model(images, weights, normalize_by_moving, dtype=tf.float32)
        probabilities = tf.nn.softmax(logits)
        best = tf.argmax(probabilities, axis=1)
        return {
            "probabilities": probabilities,
            "label": tf.gather(self._names, best),
            "confidence": tf.reduce_max(probabilities, axis=1),
        }


def write_saved_model(served: Served, path: Path, card: str, labels: str) -> None:
    tf.saved_model.save(
        served, str(path), signatures={"serving_default": served.files, "pixels": served.pixels}
    )
    extra = path / "assets.extra"  # TensorFlow's own place for what it does not read itself
    extra.mkdir()
    (extra / CARD).write_text(card, encoding="utf-8")
    (extra / LABELS).write_text(labels, encoding="utf-8", errors="surrogateescape")
