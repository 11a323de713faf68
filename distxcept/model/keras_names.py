"""Which of our layers a layer of a Keras file is.

Keras Applications names most layers as we do. It leaves the four residual convolutions (and their batch norms) to
Keras' counter, which starts anywhere; older files leave even more to it. Their order is always the same.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from distxcept.errors import ConfigError
from distxcept.model.layout import HEAD, Layout

_NUMBERED = re.compile(r"^(conv2d|convolution2d|batch_?normalization|dense)(?:_(\d+))?$")
_OUR_STYLE = re.compile(r"^block\d+_")
_UNNAMED = re.compile(r"^(conv2d|separable_conv2d|batch_normalization|dense)(?:_(\d+))?$")


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its shape is known, its values are not read yet."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


@dataclass(frozen=True)
class StoredLayer:
    """A layer with weights as a Keras file has it."""

    name: str
    tensors: tuple[tuple[str, Stored], ...]
    """Keras' name of each weight, in Keras' order."""


def keras_order(model: Layout) -> list[str]:
    """Names of the layers with weights, in the order of Keras' model: the residual pair ends its block."""
    convolutions = [
        convolution
        for block in model.blocks
        for convolution in [*block.convolutions, *([block.shortcut] if block.shortcut else [])]
    ]
    return [name for c in convolutions for name in (c.name, c.norm)] + [HEAD]


def match_by_name(model: Layout, layers: Sequence[StoredLayer]) -> dict[str, StoredLayer]:
    """By name; numbered layers by their order. A layer that is none of ours is left out."""
    ours = keras_order(model)
    foreign = [layer.name for layer in layers if _OUR_STYLE.match(layer.name) and layer.name not in ours]
    if foreign:
        raise ConfigError(f"it has a layer {foreign[0]}, which this model does not have")
    matched = {layer.name: layer for layer in layers if layer.name in ours}
    shortcuts = [block.shortcut for block in model.blocks if block.shortcut]
    numbered = _by_number(_NUMBERED, {layer.name: layer for layer in layers})
    for kind, names in (("conv", [s.name for s in shortcuts]), ("batch", [s.norm for s in shortcuts])):
        found = [
            layer for prefix, of_prefix in numbered.items() if prefix.startswith(kind) for layer in of_prefix
        ]
        if len(found) not in (0, len(names)):
            raise ConfigError(
                f"it has {len(found)} automatically numbered layers like {found[0].name}, but Xception has "
                f"{len(names)} (the residual ones)"
            )
        matched |= dict(zip(names, found, strict=False))
    dense = numbered.get("dense", [])
    if HEAD not in matched and len(dense) == 1:
        matched[HEAD] = dense[0]
    return matched


def match_by_order(model: Layout, layers: Sequence[StoredLayer]) -> dict[str, StoredLayer]:
    """For files that name no layer of ours: all of them in Keras' order, with or without the classifier."""
    ours = keras_order(model)
    if len(layers) not in (len(ours), len(ours) - 1):
        raise ConfigError(f"it has {len(layers)} layers with weights, but Xception has {len(ours)}")
    return dict(zip(ours, layers, strict=False))


def match_by_class(model: Layout, layers: Mapping[str, StoredLayer]) -> dict[str, StoredLayer]:
    """For files that count the layers of each class (separable_conv2d_3): each class in Keras' order."""
    kinds = {p.name.split("/")[0]: p.kind for p in model.parameters}
    matched: dict[str, StoredLayer] = {}
    for class_name, found in _by_number(_UNNAMED, layers).items():
        names = [name for name in keras_order(model) if _class_of(name, kinds[name]) == class_name]
        if len(found) != len(names):
            raise ConfigError(
                f"it has {len(found)} layers of class {class_name}, but Xception has {len(names)}"
            )
        matched |= dict(zip(names, found, strict=True))
    return matched


def tensors_of(model: Layout, matched: Mapping[str, StoredLayer]) -> dict[str, Stored]:
    """The tensors under our parameter names: by Keras' weight name where it is known, else by their order."""
    tensors: dict[str, Stored] = {}
    for name, layer in matched.items():
        kinds = [p.name.split("/")[1] for p in model.parameters if p.name.split("/")[0] == name]
        given = dict(layer.tensors)
        if set(given) != set(kinds):
            if len(layer.tensors) != len(kinds):
                raise ConfigError(
                    f"its layer {layer.name} has {len(layer.tensors)} weights, but {name} has {len(kinds)}: "
                    f"{', '.join(kinds)}"
                )
            given = dict(zip(kinds, (stored for _, stored in layer.tensors), strict=True))
        tensors |= {f"{name}/{kind}": given[kind] for kind in kinds}
    return tensors


Item = TypeVar("Item")


def _by_number(pattern: re.Pattern[str], named: Mapping[str, Item]) -> dict[str, list[Item]]:
    """Items whose name is `prefix` or `prefix_N`, by prefix, in the order of the numbers."""
    found: dict[str, list[tuple[int, Item]]] = {}
    for name, item in named.items():
        if match := pattern.match(name):
            found.setdefault(match[1], []).append((int(match[2] or 0), item))
    return {
        prefix: [item for _, item in sorted(items, key=lambda pair: pair[0])]
        for prefix, items in found.items()
    }


def _class_of(name: str, last_kind: str) -> str:
    if name == HEAD:
        return "dense"
    if last_kind.startswith("moving"):
        return "batch_normalization"
    return "separable_conv2d" if "sepconv" in name else "conv2d"
