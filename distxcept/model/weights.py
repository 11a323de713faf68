"""Weights to start from: the `model.weights` key. They go by name into a model that our code has built.

    imagenet                        Keras Applications' own file, which Keras downloads and checks
    *.safetensors, snapshot, run    our own tensors; the moving average of the weights where there is one
    *.weights.h5, *.h5, *.keras     Keras' files of its Xception

Shapes are checked before values are read. Only the classifier may differ: with other classes, it starts anew.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from distxcept.errors import ConfigError, first_line
from distxcept.model.keras_names import Stored, StoredLayer, match_by_name, tensors_of
from distxcept.model.layout import HEAD, Layout

FORMATS = ".safetensors, a snapshot or run folder, .weights.h5, .h5 or .keras"
IMAGENET_CLASSES = 1000

_LOGGER = logging.getLogger(__name__)

Notice = Callable[[str], None]


def load_weights(
    spec: str | None, model: Layout, *, notice: Notice = _LOGGER.warning
) -> dict[str, np.ndarray]:
    """Values by parameter name, complete but perhaps for the classifier; `notice` gets what the user should know."""
    if spec is None:
        return {}
    if spec == "imagenet":
        return _take(model, _imagenet(model), "imagenet", notice)
    path = Path(spec).expanduser()
    if not path.exists():
        raise ConfigError(f"model.weights is {spec}, which does not exist; give {FORMATS}, or imagenet")
    if path.is_dir():
        path = _tensors_in(path)
        notice(f"model.weights: taking {path}")
    with _open(path, model) as stored:
        return _take(model, stored, str(path), notice)


@contextmanager
def _open(path: Path, model: Layout) -> Iterator[Mapping[str, Stored]]:
    if path.suffix == ".safetensors":
        with _own_tensors(path) as stored:
            yield stored
    elif path.suffix in (".h5", ".hdf5", ".keras"):
        from distxcept.model.keras_file import keras_tensors

        with keras_tensors(path, model) as stored:
            yield stored
    else:
        raise ConfigError(f"model.weights is {path}, which is none of {FORMATS}")


def _tensors_in(folder: Path) -> Path:
    """The tensors of a snapshot folder; of a run's snapshots the best, or the newest where none is named best."""
    checkpoints = folder / "checkpoints" if (folder / "checkpoints").is_dir() else folder
    found = sorted(
        checkpoints.glob("update-*/*.safetensors"), key=lambda p: (len(p.parent.name), p.parent.name)
    )
    try:
        best = str(json.loads((checkpoints / "best.json").read_text(encoding="utf-8"))["snapshot"])
    except (OSError, ValueError, KeyError, TypeError):
        best = ""
    candidates = sorted(folder.glob("*.safetensors")) or [p for p in found if p.parent.name == best] or found
    if not candidates:
        raise ConfigError(
            f"model.weights is the folder {folder}, but there is no snapshot in it; give {FORMATS}"
        )
    return candidates[-1]


@contextmanager
def _own_tensors(path: Path) -> Iterator[dict[str, Stored]]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(safe_open(path, framework="numpy"))
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"model.weights: {path} cannot be read ({error}); is it a whole safetensors file?"
            ) from error
        keys = set(file.keys())
        other = ("ema/", "slots/", "counters/")
        stored = {}
        for name in {key.removeprefix("weights/") for key in keys if not key.startswith(other)}:
            # What the run would export: the moving average, where it has one.
            key = next(k for k in (f"ema/{name}", f"weights/{name}", name) if k in keys)
            stored[name] = Stored(tuple(file.get_slice(key).get_shape()), partial(file.get_tensor, key))
        yield stored


def _imagenet(model: Layout) -> dict[str, Stored]:
    import keras

    try:
        # Keras reports its download on stdout, which belongs to data.
        with redirect_stdout(sys.stderr):
            source = keras.applications.Xception(
                weights="imagenet", include_top=model.classes == IMAGENET_CLASSES
            )
    # Keras raises a bare Exception when a download fails.
    except Exception as error:
        reason = first_line(error)
        raise ConfigError(
            f"model.weights is imagenet, but Keras could not get the file ({reason}); without a network, give a file "
            "instead, model.weights=PATH, with the .h5 file of Keras Applications' Xception, downloaded elsewhere"
        ) from error
    layers = [
        StoredLayer(
            layer.name, tuple((w.name, Stored(tuple(w.shape), partial(np.asarray, w))) for w in layer.weights)
        )
        for layer in source.layers
        if layer.weights
    ]
    return tensors_of(model, match_by_name(model, layers))


def _take(model: Layout, stored: Mapping[str, Stored], source: str, notice: Notice) -> dict[str, np.ndarray]:
    """Checks everything against the model, then reads."""
    remedy = "give weights of the same architecture and model.width, or set model.weights=null"
    head = [p for p in model.parameters if model.block_of(p.name) == HEAD]
    wanted = [p for p in model.parameters if model.block_of(p.name) != HEAD]
    unknown = sorted(set(stored) - {p.name for p in model.parameters})
    if unknown:
        raise ConfigError(
            f"model.weights: {source} has {unknown[0]}, which this model does not have; {remedy}"
        )
    if _head_fits(model, stored, source, notice):
        wanted += head
    for parameter in wanted:
        if parameter.name not in stored:
            raise ConfigError(f"model.weights: {source} has no {parameter.name} {parameter.shape}; {remedy}")
        shape = stored[parameter.name].shape
        if shape != parameter.shape:
            raise ConfigError(
                f"model.weights: {parameter.name} is {shape} in {source}, but {parameter.shape} in this model; {remedy}"
            )
    return {parameter.name: _read(parameter.name, stored[parameter.name], source) for parameter in wanted}


def _read(name: str, stored: Stored, source: str) -> np.ndarray:
    try:
        value = stored.read()
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise ConfigError(
            f"model.weights: {name} in {source} cannot be read ({error}); give another file"
        ) from error
    if not np.all(np.isfinite(value)):
        raise ConfigError(f"model.weights: {name} in {source} is not finite; give another file")
    return value


def _head_fits(model: Layout, stored: Mapping[str, Stored], source: str, notice: Notice) -> bool:
    """Whether to take the classifier too. One with other classes cannot serve, one of another width is an error."""
    kernel, bias = stored.get(f"{HEAD}/kernel"), stored.get(f"{HEAD}/bias")
    if kernel is None or bias is None:
        notice(f"model.weights: {source} has no classifier; {HEAD} starts from random values")
        return False
    same_features = kernel.shape[:1] == (model.features,) and kernel.shape[1:] == bias.shape
    if same_features and bias.shape != (model.classes,):
        notice(
            f"model.weights: {source} tells {bias.shape[0]} classes apart and this model {model.classes}; "
            f"{HEAD} starts from random values"
        )
        return False
    return True
