"""TFLite files for phones and small computers: as it is, with float16 weights, or in whole numbers.

int8 takes uint8 pixels and gives float32 probabilities; everything between is 8-bit, with ranges measured on
representative images of the training data.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.data.sources.base import Pixels
from distxcept.errors import ConfigError
from distxcept.model.batchnorm import normalize_by_moving
from distxcept.model.network import Network


def write_tflite(
    model: Network,
    weights: Mapping[str, np.ndarray],
    image_size: int,
    path: Path,
    quantize: str,
    representative: Pixels | None,
) -> None:
    def answer(images: tf.Tensor) -> tf.Tensor:
        """Traced. Weights are constants of the graph: variables would stay variables, without values, in the file."""
        constants = {name: tf.constant(value.astype(np.float32)) for name, value in weights.items()}
        return tf.nn.softmax(model(images, constants, normalize_by_moving, dtype=tf.float32))

    # One image at a time: converters fix the shape best so, and whoever wants more calls again.
    spec = tf.TensorSpec([1, image_size, image_size, 3], tf.float32, name="images")
    concrete = tf.function(answer, autograph=False).get_concrete_function(spec)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
    if quantize == "float16":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    elif quantize == "int8":
        if representative is None or not len(representative):
            raise ConfigError("int8 needs images to measure ranges on; give some with --data FOLDER")
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: _calibration(representative)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = tf.uint8
    path.write_bytes(converter.convert())


def _calibration(images: Pixels) -> Iterator[list[NDArray[np.float32]]]:
    for image in images:
        yield [image[None].astype(np.float32)]
    # All grey levels from 0 to 255, so that uint8 pixels are taken as they are.
    extremes = images[:1].astype(np.float32)
    extremes[:, ::2], extremes[:, 1::2] = 0.0, 255.0
    yield [extremes]


class TfliteModel:
    """A file on the disk, as a phone would run it."""

    def __init__(self, path: Path):
        self._interpreter = tf.lite.Interpreter(model_path=str(path))
        self._interpreter.allocate_tensors()
        (self._input,) = self._interpreter.get_input_details()
        (self._output,) = self._interpreter.get_output_details()

    def probabilities(self, images: Pixels) -> NDArray[np.float32]:
        rows = []
        for image in images:
            self._interpreter.set_tensor(self._input["index"], image[None].astype(self._input["dtype"]))
            self._interpreter.invoke()
            rows.append(self._interpreter.get_tensor(self._output["index"])[0])
        return np.array(rows, np.float32)
