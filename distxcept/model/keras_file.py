"""Layers and weights in Keras' files, read as plain arrays: nothing in the file is ever executed or followed.

    legacy .h5         [model_weights/]LAYER/…/WEIGHT        order in the attributes layer_names and weight_names
    .weights.h5        …/layers/CLASS_N/vars/I               the layer's name is an attribute, in newer files
    .keras             a zip archive with a .weights.h5 in it

The file may come from anywhere. Only hard links are walked, only so many objects, and a tensor is read after its shape was
found to be the model's: a file cannot name other files, nor make us allocate more than the model needs.
"""

import math
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import h5py
import numpy as np

from distxcept.errors import ConfigError, first_line
from distxcept.model.keras_names import (
    Stored,
    StoredLayer,
    keras_order,
    match_by_class,
    match_by_name,
    match_by_order,
    tensors_of,
)
from distxcept.model.layout import Layout

ARCHIVED = "model.weights.h5"
MAX_OBJECTS = 50_000
MAX_DEPTH = 16
MAX_ATTRIBUTE_BYTES = 1 << 20
MAX_ARCHIVED_BYTES_PER_PARAMETER = 64
"""Weights and the slots of any optimizer in float64, and then some."""
_FILTERS = {None, "gzip", "lzf"}


@contextmanager
def keras_tensors(path: Path, model: Layout) -> Iterator[dict[str, Stored]]:
    """The tensors of the file under our parameter names; readable while the context is open."""
    with ExitStack() as stack:
        try:
            plain = stack.enter_context(_plain_file(path, model))
            root = stack.enter_context(h5py.File(plain, "r"))
            tensors = tensors_of(model, _match(model, root))
        except ConfigError as error:
            raise ConfigError(f"model.weights: {path}: {error}") from error
        # h5py raises whatever the damaged structure leads to.
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
            reason = first_line(error)
            raise ConfigError(
                f"model.weights: {path} cannot be read as a Keras file ({reason}); save it again with Keras"
            ) from error
        yield tensors


@contextmanager
def _plain_file(path: Path, model: Layout) -> Iterator[Path | IO[bytes]]:
    """The HDF5 file itself, taken out of the archive where there is one."""
    if path.suffix != ".keras":
        yield path
        return
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryFile() as plain:
        names = archive.namelist()
        if ARCHIVED not in names:
            raise ConfigError(
                f"it holds {', '.join(names[:5])}, but no {ARCHIVED}; save it again with Keras 3"
            )
        size = archive.getinfo(ARCHIVED).file_size
        limit = (1 << 26) + MAX_ARCHIVED_BYTES_PER_PARAMETER * sum(
            math.prod(p.shape) for p in model.parameters
        )
        if size > limit:
            raise ConfigError(f"its {ARCHIVED} has {size} bytes, but this model needs at most {limit}")
        with archive.open(ARCHIVED) as packed:
            # An archive may lie about sizes: never more than was declared.
            while size > 0 and (part := packed.read(min(size, 1 << 20))):
                plain.write(part)
                size -= len(part)
        plain.seek(0)
        yield plain


def _match(model: Layout, root: h5py.File) -> dict[str, StoredLayer]:
    datasets, groups = _walk(root)
    numbered = {path: dataset for path, dataset in datasets.items() if _is_numbered_variable(path)}
    if numbered:
        return _match_numbered(model, numbered, groups)
    top = "model_weights/" if "model_weights" in groups else ""
    layers, nested = _legacy_layers(datasets, groups, top)
    named = any(layer.name in keras_order(model)[:-1] for layer in layers)
    return match_by_name(model, layers) if named or nested else match_by_order(model, layers)


def _walk(root: h5py.File) -> tuple[dict[str, h5py.Dataset], dict[str, h5py.Group]]:
    """All datasets and groups by path. Hard links may form a ring, so both depth and number are limited."""
    datasets: dict[str, h5py.Dataset] = {}
    groups: dict[str, h5py.Group] = {"": root}
    waiting = deque([("", root, 0)])
    while waiting:
        prefix, group, depth = waiting.popleft()
        for name in group:
            link = group.get(name, getclass=True, getlink=True)
            path = f"{prefix}{name}"
            if link is not h5py.HardLink:
                raise ConfigError(f"{path} is a link to elsewhere, and links are not followed; save it anew")
            if len(datasets) + len(groups) >= MAX_OBJECTS or depth >= MAX_DEPTH:
                raise ConfigError(
                    f"it has more than {MAX_OBJECTS} objects or {MAX_DEPTH} levels, no Xception has"
                )
            item = group[name]
            if isinstance(item, h5py.Dataset):
                datasets[path] = item
            elif isinstance(item, h5py.Group):
                groups[path] = item
                waiting.append((f"{path}/", item, depth + 1))
    return datasets, groups


def _is_numbered_variable(path: str) -> bool:
    parts = path.split("/")
    return len(parts) >= 3 and parts[-2] == "vars" and parts[-1].isdigit()


def _match_numbered(
    model: Layout, datasets: dict[str, h5py.Dataset], groups: dict[str, h5py.Group]
) -> dict[str, StoredLayer]:
    """Keras 3: layers by the name kept as an attribute; without names by class and number."""
    variables: dict[str, list[tuple[int, h5py.Dataset]]] = {}
    for path, dataset in datasets.items():
        folder, number = path.rsplit("/", 1)
        variables.setdefault(folder, []).append((int(number), dataset))
    named, unnamed = [], {}
    for folder, numbered in variables.items():
        ordered = [dataset for _, dataset in sorted(numbered, key=lambda pair: pair[0])]
        tensors = tuple((str(k), _stored(dataset)) for k, dataset in enumerate(ordered))
        class_name = folder.split("/")[-2]
        names = _names(groups[folder], "name")
        if names:
            named.append(StoredLayer(names[0], tensors))
        elif class_name in unnamed:
            raise ConfigError(
                f"it has two layers {class_name} and no layer names; save it anew with a newer Keras"
            )
        else:
            unnamed[class_name] = StoredLayer(class_name, tensors)
    return match_by_name(model, named) if named else match_by_class(model, unnamed)


def _legacy_layers(
    datasets: dict[str, h5py.Dataset], groups: dict[str, h5py.Group], top: str
) -> tuple[list[StoredLayer], bool]:
    """Layers in the file's order, and whether some stand inside of a layer that is a model itself."""
    layers: list[StoredLayer] = []
    nested = False
    for folder in _names(groups[top.rstrip("/")], "layer_names"):
        weights = _names(groups[f"{top}{folder}"], "weight_names") if f"{top}{folder}" in groups else []
        by_parent: dict[str, list[tuple[str, Stored]]] = {}
        for weight in weights:
            dataset = datasets.get(f"{top}{folder}/{weight}")
            if dataset is None:
                raise ConfigError(f"its layer {folder} lists a weight {weight} that is not there")
            parent, _, variable = f"{folder}/{weight}".rpartition("/")
            by_parent.setdefault(parent.rpartition("/")[2], []).append(
                (variable.partition(":")[0], _stored(dataset))
            )
        if len(by_parent) > 1:
            nested = True
            layers += [StoredLayer(name, tuple(tensors)) for name, tensors in by_parent.items()]
        else:
            layers += [StoredLayer(folder, tuple(tensors)) for tensors in by_parent.values()]
    if not layers:
        raise ConfigError("it has no layers with weights")
    return layers, nested


def _names(group: h5py.Group, attribute: str) -> list[str]:
    """A text or list of texts. Keras cuts a long list into attribute0, attribute1 and so on."""
    found: list[str] = []
    keys = [attribute] if attribute in group.attrs else []
    while not keys or keys[-1] != attribute:
        key = f"{attribute}{len(keys)}"
        if key not in group.attrs:
            break
        keys.append(key)
    for key in keys:
        identifier = group.attrs.get_id(key)
        if math.prod(identifier.shape) * identifier.dtype.itemsize > MAX_ATTRIBUTE_BYTES:
            raise ConfigError(f"its attribute {key} is larger than any list of layers")
        value = np.atleast_1d(np.asarray(group.attrs[key], dtype=object))
        found += [item.decode() if isinstance(item, bytes) else str(item) for item in value.tolist()]
    return found


def _stored(dataset: h5py.Dataset) -> Stored:
    shape = tuple(dataset.shape or ())

    def read() -> np.ndarray:
        if dataset.external or dataset.is_virtual:
            raise ValueError(f"{dataset.name} keeps its values in another file; save it anew")
        if dataset.dtype.kind != "f" or dataset.compression not in _FILTERS:
            raise ValueError(f"{dataset.name} holds {dataset.dtype}, not plain floating-point numbers")
        return dataset[()]

    return Stored(shape, read)
