"""A Keras model in words that are the same whenever it is built: names of its layers, and its JSON.

Keras numbers layers without a name through the whole process: `conv2d_7`. Here each model counts for itself.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras


def is_known_model(layer: Any) -> bool:
    """Whether its layers are all that it is."""
    return isinstance(layer, keras.Model) and type(layer).__name__ in ("Functional", "Sequential")


def keyed_layers(model: keras.Model, prefix: str = "") -> Iterator[tuple[str, keras.layers.Layer]]:
    """Layers with a name that is the same whenever the model is built; those of inner models below theirs."""
    names = own_names((layer.name, type(layer).__name__) for layer in model.layers)
    for layer in model.layers:
        key = f"{prefix}{names[layer.name]}"
        if is_known_model(layer):
            yield from keyed_layers(layer, f"{key}/")
        elif not isinstance(layer, keras.layers.InputLayer):
            yield key, layer


def own_names(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """By the names that they have; those with a name of their own keep it."""
    counts, own = Counter[str](), {}
    for name, kind in named:
        stem = re.sub(r"_\d+$", "", name)
        if stem.replace("_", "") != kind.lower():
            own[name] = name
            continue
        own[name] = f"{stem}_{counts[stem]}" if counts[stem] else stem
        counts[stem] += 1
    return own


_CHANGING = ("dtype", "trainable", "shared_object_id", "build_config")


def canonical(value: Any, names: Mapping[str, str]) -> Any:
    """Keras' JSON; `names` of the layers around."""
    if isinstance(value, list):
        history = len(value) == 3 and isinstance(value[0], str)  # a tensor: [layer, node, output]
        return (
            [names.get(value[0], value[0]), *value[1:]] if history else [canonical(v, names) for v in value]
        )
    if not isinstance(value, dict):
        return value
    inner = names
    if isinstance(value.get("layers"), list):
        inner = own_names((one["config"]["name"], one["class_name"]) for one in value["layers"])
    return {
        key: names.get(one, one) if key == "name" and isinstance(one, str) else canonical(one, inner)
        for key, one in value.items()
        if key not in _CHANGING
    }
