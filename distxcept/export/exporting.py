"""From a trained model to a checked file: build, write aside, load again, compare, and only then give it its name."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distxcept.data.sources import Source, open_folder, open_split
from distxcept.data.sources.base import Pixels
from distxcept.errors import ConfigError, DistxceptError
from distxcept.export.card import (
    CARD,
    LABELS,
    card_text,
    embed,
    labels_text,
    make_card,
    packed_size_of,
    sha256_of_export,
    size_of,
)
from distxcept.export.comparing import (
    CheckImages,
    Comparison,
    Model,
    compare,
    made_up_images,
    read_squares,
)
from distxcept.export.order import Order
from distxcept.training.predict import Predictor
from distxcept.training.trained import Trained

CALIBRATION_IMAGES = 200
MADE_UP_IMAGES = 8
BATCH = 16
INPUTS: dict[str, dict[str, Any]] = {
    "keras": {"images": "float32 [n, size, size, 3], RGB from 0 to 255"},
    "savedmodel": {
        "serving_default": {"images_bytes": "string [n], image files"},
        "pixels": {"images": "uint8 [n, size, size, 3]"},
    },
    "tflite": {"images": "float32 [1, size, size, 3], RGB from 0 to 255"},
    "int8": {"images": "uint8 [1, size, size, 3], RGB"},
    "onnx": {"images": "float32 [n, size, size, 3], RGB from 0 to 255"},
}


class ExportError(DistxceptError):
    """The exported file does not do what the model does."""


@dataclass(frozen=True)
class Exported:
    path: Path
    size_bytes: int
    comparison: Comparison
    zero_share: float
    """Of the kernels' weights; pruning makes it large."""
    packed_bytes: int | None
    """Of a pruned model: what zip makes of it."""
    warning: str | None


def export(
    predictor: Predictor,
    order: Order,
    path: Path,
    *,
    data: Source | None,
    training_data: Source | None,
    force: bool = False,
) -> Exported:
    """Eager. ExportError, with nothing left behind, where the export does not give the model's answers.

    `data` is what both models are compared on, `training_data` what int8 takes its ranges from; without data the
    comparison is made on made-up images and tells no accuracy.
    """
    _check_target(order, path, force)
    check = _check_images(predictor.trained, order, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        aside = Path(scratch) / path.name
        load = _WRITERS[order.form](predictor, order, aside, training_data or data)
        before = _in_batches(predictor.probabilities, check.images)
        after = _in_batches(load(), check.images)
        comparison = compare(before, after, check.labels)
        problem = comparison.problem(order.arithmetic)
        if problem:
            raise ExportError(f"the {order.form} export is not kept: {problem}; please report this")
        card = _card(
            predictor.trained, order, comparison=comparison.to_json(), sha256=sha256_of_export(aside)
        )
        os.replace(_written(Path(scratch) / "card", card), path.with_name(f"{path.name}.json"))
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(aside, path)
    zeros = _zero_share(predictor.trained)
    packed = packed_size_of(path) if zeros > 0.01 else None
    return Exported(path, size_of(path), comparison, zeros, packed, comparison.warning())


def _check_target(order: Order, path: Path, force: bool) -> None:
    """Nothing is replaced unasked, and a folder only if it is a SavedModel: it may be somebody's home."""
    if order.form == "keras" and path.suffix != ".keras":
        raise ConfigError(f"{path}: the name of a Keras file has to end in .keras")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already; give another --output, or --force to replace it")
    if path.is_dir() and not (order.form == "savedmodel" and (path / "saved_model.pb").is_file()):
        raise ConfigError(f"{path} is a folder, and no SavedModel: it is not replaced; give another --output")
    if path.is_file() and order.form == "savedmodel":
        raise ConfigError(f"{path} is a file, and a SavedModel is a folder; give another --output")


def export_path(trained: Trained, order: Order, output: str | os.PathLike[str] | None) -> Path:
    if output is not None:
        return Path(output)
    if trained.run_folder is None:
        raise ConfigError(
            f"{trained.snapshot.path} does not lie in a run folder; say with --output where to write"
        )
    return trained.run_folder / "export" / order.file_name()


def export_data(
    trained: Trained, order: Order, folder: str | None, notice: Callable[[str], None] = lambda message: None
) -> tuple[Source | None, Source | None]:
    """What to compare on, and what int8 takes its ranges from. The data of a run may be gone: then less is checked."""
    names = trained.class_names

    def opened(split: str) -> Source | None:
        try:
            return open_split(trained.config.data, split, names)
        except (DistxceptError, OSError) as error:
            notice(f"no {split} data to check with: {error}")
            return None

    check = opened("validation") if folder is None else open_folder(folder, names)
    # Training data may be large, and is opened only where it is needed.
    train = opened("train") if check is None or order.quantized == "int8" else None
    return check or train, train if order.quantized == "int8" else None


def _check_images(trained: Trained, order: Order, data: Source | None) -> CheckImages:
    size = trained.config.model.image_size
    if data is None:
        return made_up_images(MADE_UP_IMAGES, size)
    found = read_squares(data, order.images, trained.config)
    return found if len(found.images) else made_up_images(MADE_UP_IMAGES, size)


def _in_batches(model: Model, images: Pixels) -> np.ndarray:
    parts = [model(images[k : k + BATCH]) for k in range(0, len(images), BATCH)]
    return np.concatenate(parts)


def _card(trained: Trained, order: Order, **details: Any) -> str:
    inputs = INPUTS["int8" if order.quantized == "int8" else order.form]
    return card_text(make_card(trained, order.form, inputs, quantization=order.quantized, **details))


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _zero_share(trained: Trained) -> float:
    weights = trained.weights()
    kernels = [weights[p.name] for p in trained.layout.parameters if p.decays]
    return sum(int(np.sum(kernel == 0)) for kernel in kernels) / sum(kernel.size for kernel in kernels)


# Each writes the file and returns how to load it again as a function from pixels to probabilities.
Load = Callable[[], Model]


def _keras(predictor: Predictor, order: Order, path: Path, calibration: Source | None) -> Load:
    import keras

    _keras_model(predictor.trained).save(path)
    embed(path, {CARD: _card(predictor.trained, order), LABELS: labels_text(predictor.trained)})

    def load() -> Model:
        # safe_mode: only Keras' own layers, no code from the file.
        model = keras.models.load_model(path, compile=False, safe_mode=True)
        return lambda images: model.predict_on_batch(images.astype(np.float32))

    return load


def _saved_model(predictor: Predictor, order: Order, path: Path, calibration: Source | None) -> Load:
    import tensorflow as tf

    from distxcept.export.saved_model import Served, write_saved_model

    trained = predictor.trained
    size, evaluate = trained.config.model.image_size, trained.config.data.evaluate
    served = Served(trained.network, trained.weights(), trained.class_names, size, evaluate)
    write_saved_model(served, path, _card(trained, order), labels_text(trained))

    def load() -> Model:
        loaded = tf.saved_model.load(str(path))
        pixels, files = loaded.signatures["pixels"], loaded.signatures["serving_default"]

        def run(images: Pixels) -> np.ndarray:
            answers = pixels(images=tf.constant(images))["probabilities"].numpy()
            # Images of the model's size pass the decoder unchanged if nothing is lost in their encoding: as PNG.
            encoded = tf.stack([tf.io.encode_png(image) for image in images])
            from_files = files(images_bytes=encoded)["probabilities"].numpy()
            if float(np.max(np.abs(answers - from_files))) > 1e-4:
                raise ExportError("the savedmodel export is not kept: its signatures give different answers")
            return answers

        return run

    return load


def _tflite(predictor: Predictor, order: Order, path: Path, calibration: Source | None) -> Load:
    from distxcept.export.tflite import TfliteModel, write_tflite

    trained, representative = predictor.trained, None
    size = trained.config.model.image_size
    if order.quantized == "int8" and calibration is not None:
        representative = read_squares(calibration, CALIBRATION_IMAGES, trained.config).images
    write_tflite(trained.network, trained.weights(), size, path, order.quantized, representative)
    embed(path, {CARD: _card(trained, order), LABELS: labels_text(trained)})
    return lambda: TfliteModel(path).probabilities


def _onnx(predictor: Predictor, order: Order, path: Path, calibration: Source | None) -> Load:
    from distxcept.export.onnx_file import OnnxModel, write_onnx

    trained = predictor.trained
    metadata = {CARD: _card(trained, order), LABELS: json.dumps(trained.class_names)}
    write_onnx(trained.layout, trained.config.model.image_size, trained.weights(), path, metadata)
    return lambda: OnnxModel(path).probabilities


def _keras_model(trained: Trained) -> Any:
    from distxcept.export.keras_model import build_keras_model

    return build_keras_model(trained.layout, trained.config.model.image_size, trained.weights())


_WRITERS: dict[str, Callable[[Predictor, Order, Path, Source | None], Load]] = {
    "keras": _keras,
    "savedmodel": _saved_model,
    "tflite": _tflite,
    "onnx": _onnx,
}
