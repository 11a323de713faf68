"""Probabilities of the classes for images without labels, on one device."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.cluster import Placement
from distxcept.config.schema import EngineSection
from distxcept.data.decode import View
from distxcept.data.loose_files import FileBatch, read_batches
from distxcept.data.sources.base import Pixels
from distxcept.engines import Engine, create_engine
from distxcept.errors import ConfigError
from distxcept.model.batchnorm import normalize_by_moving
from distxcept.model.precision import PRECISIONS
from distxcept.training.inference import InferenceWeights
from distxcept.training.trained import Trained


@dataclass(frozen=True)
class Prediction:
    path: str
    labels: tuple[str, ...] = ()
    """The most probable classes, best first; none where the file could not be read."""
    probabilities: tuple[float, ...] = ()
    error: str | None = None


def one_device(config: EngineSection, placement: Placement) -> Engine:
    """The first of the run's devices, whatever engine it trained with."""
    if placement.is_distributed:
        raise ConfigError(
            f"{placement.size} tasks were launched, but this command runs in one; start it alone, without mpirun"
        )
    devices: Any = config.devices[:1] if isinstance(config.devices, (list, tuple)) else "auto"
    return create_engine(config.model_copy(update={"name": "single", "devices": devices}), placement)


class Predictor:
    def __init__(self, trained: Trained, engine: Engine):
        """Eager. Traced at the first call."""
        self.trained = trained
        self._precision = PRECISIONS[trained.config.precision]
        self._model = trained.network
        self._weights = InferenceWeights(engine, self._model, trained.snapshot, self._precision)
        self._engine = engine
        size = trained.config.model.image_size
        self._traced = tf.function(
            self._run,
            input_signature=[tf.TensorSpec([None, size, size, 3], tf.uint8)],
            autograph=False,
            jit_compile=False,
        )

    def probabilities(self, images: Pixels) -> NDArray[np.float32]:
        """Eager. Of uint8 images [n, size, size, 3]."""
        with tf.device(self._engine.devices()[0]):
            return self._traced(tf.convert_to_tensor(images)).numpy()

    def predict_files(self, files: Iterable[Any], *, batch: int, top: int) -> Iterator[Prediction]:
        """One prediction for each file, in their order, as they come."""
        config = self.trained.config
        batches = read_batches(
            files,
            batch=batch,
            image_size=config.model.image_size,
            view=View.of_evaluation(config.data.evaluate),
            max_pixels=config.data.max_pixels,
        )
        for one in batches:
            yield from self._predict_batch(one, top)

    def _predict_batch(self, batch: FileBatch, top: int) -> Iterator[Prediction]:
        good = [k for k in range(len(batch.paths)) if k not in batch.bad]
        images = batch.images[good] if batch.bad else batch.images
        rows = dict(zip(good, self.probabilities(images), strict=True)) if good else {}
        for k, path in enumerate(batch.paths):
            if k in rows:
                yield top_classes(path, rows[k], self.trained.class_names, top)
            else:
                yield Prediction(path, error=batch.bad[k])

    def _run(self, images: tf.Tensor) -> tf.Tensor:
        """Traced."""
        logits = self._model(
            images, self._weights.inference_weights(), normalize_by_moving, dtype=self._precision.compute
        )
        return tf.nn.softmax(tf.cast(logits, tf.float32))


def top_classes(
    path: str, probabilities: NDArray[np.float32], class_names: tuple[str, ...], top: int
) -> Prediction:
    order = np.argsort(-probabilities, kind="stable")[:top]
    return Prediction(
        path,
        tuple(class_names[number] for number in order),
        tuple(float(probabilities[number]) for number in order),
    )
