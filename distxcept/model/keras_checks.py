"""What a Keras model must be to be trained here: each refusal names the layer, the reason and the remedy."""

from collections.abc import Mapping
from typing import Any

import keras

from distxcept.errors import ConfigError
from distxcept.model.keras_description import is_known_model


def check_form(model: Any, image_size: int) -> None:
    if keras.backend.backend() != "tensorflow":
        raise ConfigError(
            f"Keras runs on {keras.backend.backend()} here; set KERAS_BACKEND=tensorflow before it is imported"
        )
    if not isinstance(model, keras.Model):
        raise ConfigError(
            f"model is a {type(model).__name__}; give a Keras 3 model, or a function without arguments that builds one"
        )
    if not is_known_model(model):
        raise ConfigError(
            f"model {model.name} is a {type(model).__name__}, whose layers nobody knows; build it as keras.Model(inputs, "
            "outputs) or keras.Sequential"
        )
    if not model.built:
        raise ConfigError(f"model {model.name} has no input shape yet; let it begin with keras.Input")
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ConfigError(
            f"model {model.name} has {len(model.inputs)} inputs and {len(model.outputs)} outputs; it needs one of each"
        )
    wanted = (image_size, image_size, 3)
    if tuple(model.inputs[0].shape[1:]) != wanted:
        raise ConfigError(
            f"model {model.name} takes {tuple(model.inputs[0].shape[1:])}, but the images are {wanted}; set "
            "model.image_size, or build it for that size"
        )
    if len(model.outputs[0].shape) != 2 or model.outputs[0].shape[-1] is None:
        raise ConfigError(
            f"model {model.name} gives {tuple(model.outputs[0].shape[1:])} for an image; it needs one number a class"
        )


def check_layer(key: str, layer: keras.layers.Layer) -> None:
    """What can be seen from the layer alone."""
    kind = type(layer)
    if kind is keras.layers.Lambda:
        raise refused(
            key, layer, "may do anything, and no file could tell what", "use keras.ops, or a layer class"
        )
    if isinstance(layer, keras.Model):
        raise refused(
            key, layer, "is a model whose layers nobody knows", "build it as keras.Model(inputs, outputs)"
        )
    if kind is keras.layers.BatchNormalization:
        ndim = layer.input_spec.ndim
        if layer.axis % ndim != ndim - 1:
            raise refused(key, layer, f"normalises axis {layer.axis}", "use the last one: channels_last")
        if layer.renorm:
            raise refused(key, layer, "has renorm=True, which is another rule", "leave that out")
    if kind is keras.layers.Dropout:
        if layer.rate >= 1:
            raise refused(key, layer, "drops everything", "use a smaller rate")
        if layer.noise_shape and layer.noise_shape[0] is not None:
            raise refused(
                key, layer, "drops the same for several samples", "let its noise_shape begin with None"
            )
    if layer.activity_regularizer or any(variable.regularizer for variable in layer.weights):
        raise refused(
            key, layer, "has a regularizer, which would not be trained on", "use optimizer.weight_decay"
        )
    if any(variable.constraint for variable in layer.weights):
        raise refused(key, layer, "has a constraint, which would not be kept", "leave it out")


def check_sharing(pairs: Mapping[str, tuple[Any, Any]]) -> None:
    first: dict[int, str] = {}
    for name, (variable, _) in pairs.items():
        if first.setdefault(id(variable), name) != name:
            raise ConfigError(
                f"model: {name} is the same variable as {first[id(variable)]}; give each layer its own, or use one "
                "layer twice"
            )


def last_operation(model: keras.Model) -> Any:
    """What makes the output; ConfigError where that is no logits, and cannot be made to be."""
    if isinstance(model, keras.Sequential):
        last = model.layers[-1]
    else:
        last = next(one for one in model.operations if one.name == model.output_names[0])
    if isinstance(last, keras.Model):
        return last_operation(last)
    activation = getattr(last, "activation", keras.activations.linear)
    plain = type(last).__name__ != "Softmax" or isinstance(last, keras.layers.Softmax)
    if not plain or activation not in (keras.activations.linear, keras.activations.softmax):
        raise refused(
            last.name,
            last,
            "gives no logits, which the loss is computed from",
            "end with a Dense without activation",
        )
    return last


def refused(key: str, layer: Any, reason: str, remedy: str) -> ConfigError:
    return ConfigError(f"model: layer {key} ({type(layer).__name__}) {reason}; {remedy}")
