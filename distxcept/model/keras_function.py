"""A Keras model of the user as a pure function over plain tensors, with the promises of xception.py.

    the user's model                     never changed, never run
    its copy, layer by layer             Keras computes it, by `stateless_call`, from the weights that it is given
        BatchNormalization        →      statistics of the virtual batch: batchnorm.py
        Dropout                   →      noise that is drawn from the keys of the virtual batch
        a layer with other state,
        or randomness of its own  →      refused, with the reason
        a last softmax            →      taken off: the loss wants logits

The copy runs once in rehearsal, to learn what cannot be seen in the layers: which of them run, how, and how often.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distxcept.config.schema import Config
from distxcept.errors import ConfigError, first_line
from distxcept.model.batchnorm import Normalizer, normalize_by_moving
from distxcept.model.keras_checks import (
    check_form,
    check_layer,
    check_sharing,
    last_operation,
    refused,
)
from distxcept.model.keras_description import canonical, is_known_model, keyed_layers, own_names
from distxcept.model.keras_layers import KeyedDropout, Norm, Pass, Rehearsal, running
from distxcept.model.layout import Block, Parameter
from distxcept.model.network import GIVEN, is_function
from distxcept.model.precision import PRECISIONS
from distxcept.model.xception import draw_noise

STATE_OF_RANDOMNESS = "seed_generator_state"


class KerasNetwork:
    blocks: tuple[Block, ...] = ()

    def __init__(self, model: keras.Model, *, image_size: int, precision: str):
        """Eager. ConfigError, naming the layer, where the model cannot be trained as the config promises."""
        check_form(model, image_size)
        self.source, self._precision = model, precision
        self.classes: int = model.outputs[0].shape[-1]
        self._layers = dict(keyed_layers(model))
        self._keys = {id(layer): key for key, layer in self._layers.items()}
        (name,) = own_names([(model.name, type(model).__name__)]).values()
        self.title = f"Keras model {name} of {len(self._layers)} layers"
        self._last = last_operation(model)
        self._twins: dict[int, Any] = {}
        with tf.device("CPU:0"):
            self._copy = self._copied(model)
        self._pairs = {
            name: pair for key, layer in self._layers.items() for name, pair in self._named(key, layer)
        }
        check_sharing(self._pairs)
        names = {id(twin): name for name, (_, twin) in self._pairs.items() if twin is not None}
        self._order = [names[id(variable)] for variable in self._copy.trainable_variables]
        rehearsal = self._rehearse(image_size)
        self._noise_shapes = rehearsal.noise_shapes
        self.parameters = [self._parameter(name, set(rehearsal.norms)) for name in self._pairs]
        self.momenta = {norm: self._layers[norm].momentum for norm in rehearsal.norms}

    @classmethod
    def of(cls, given: Any, config: Config) -> "KerasNetwork":
        """`given` is a Keras model, or a function that builds one: from the seed of the run, with the CPU's memory."""
        if is_function(given):
            with tf.device("CPU:0"):
                keras.utils.set_random_seed(config.run.seed % 2**32)
                given = given()
        return cls(given, image_size=config.model.image_size, precision=config.precision)

    def __call__(
        self,
        images: tf.Tensor,
        weights: Mapping[str, tf.Tensor],
        normalize: Normalizer,
        *,
        dtype: tf.DType,
        dropout_noise: tuple[tf.Tensor, ...] = (),
        remat: bool = False,
    ) -> tf.Tensor:
        """Traced, replica context. As Xception's: logits of uint8 images, statistics left in `normalize`."""
        assert not remat
        x = tf.cast(images, dtype) / 127.5 - 1.0
        return self._run(x, Pass(weights, normalize, iter(dropout_noise)))[0]

    def _run(self, x: tf.Tensor, forward: Pass) -> tuple[tf.Tensor, list]:
        """Logits, and losses that layers have added."""
        with running(forward):
            logits, _, losses = self._copy.stateless_call(
                [forward.weights[name] for name in self._order],
                [],
                x,
                training=forward.normalize is not normalize_by_moving,
                return_losses=True,
            )
        return logits, losses

    def dropout_noise(self, seeds: tf.Tensor, samples: int) -> tuple[tf.Tensor, ...]:
        """Traced, replica context. As Xception's, with a stream of its own for each dropout."""
        return tuple(
            draw_noise(tf.bitwise.bitwise_xor(seeds, tf.constant([[number, 0]], tf.int64)), samples, *shape)
            for number, shape in enumerate(self._noise_shapes)
        )

    def values(self) -> dict[str, np.ndarray]:
        """Eager. Of the user's model, as they are now."""
        return {name: np.asarray(variable) for name, (variable, _) in self._pairs.items()}

    def put(self, values: Mapping[str, np.ndarray]) -> keras.Model:
        """Eager. The user's model, with these values in it."""
        for name, (variable, _) in self._pairs.items():
            variable.assign(values[name])
        return self.source

    def block_of(self, parameter_name: str) -> str:
        return parameter_name.rpartition("/")[0]

    @cached_property
    def identity(self) -> dict[str, Any]:
        trained = [p.name for p in self.parameters if not (p.frozen or p.moving)]
        digest = hashlib.sha256("\n".join(trained).encode()).hexdigest()[:8]
        return {
            GIVEN: hashlib.sha256(self._architecture.encode()).hexdigest()[:16],
            "tensors trained": f"{len(trained)} of {len(self.parameters)} ({digest})",
        }

    @property
    def files(self) -> dict[str, str]:
        return {f"model-{self.identity[GIVEN]}.json": self._architecture}

    @cached_property
    def _architecture(self) -> str:
        """Keras' own description, without what may change: names that Keras has made up, number formats, frozen layers."""
        try:
            config = json.loads(self.source.to_json())["config"]
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ConfigError(f"the model cannot be described: {first_line(error)}") from error
        constants = {
            key: {name: np.asarray(value).tolist() for name, value in _constants(layer).items()}
            for key, layer in self._layers.items()
            if type(layer) is keras.layers.Normalization
        }
        described = {**canonical(config, {}), "name": "model", "constants": constants}
        return json.dumps(described, indent=1, sort_keys=True) + "\n"

    def _copied(self, model: keras.Model) -> keras.Model:
        inputs = keras.tree.map_structure(
            lambda tensor: keras.Input(
                batch_shape=tensor.shape, dtype=PRECISIONS[self._precision].compute.name
            ),
            model.inputs[0]
            if isinstance(model, keras.Sequential)
            else model.input,  # which one may not have yet
        )
        return keras.models.clone_model(model, input_tensors=inputs, clone_function=self._twin)

    def _twin(self, layer: Any) -> Any:
        """Of a layer, or an operation of keras.ops, which is a function already."""
        if not isinstance(layer, keras.layers.Layer):
            return layer
        if id(layer) not in self._twins:
            copied = self._copied if is_known_model(layer) else self._copied_layer
            self._twins[id(layer)] = copied(layer)
        return self._twins[id(layer)]

    def _copied_layer(self, layer: keras.layers.Layer) -> keras.layers.Layer:
        key, kind = self._keys[id(layer)], type(layer)
        check_layer(key, layer)
        common = dict(name=layer.name, dtype=self._precision)
        if kind is keras.layers.BatchNormalization:
            return Norm(key, layer.epsilon, not layer.trainable, **common)
        if kind is keras.layers.Dropout:
            return KeyedDropout(layer.rate, layer.noise_shape, **common)
        if kind is keras.layers.Softmax and layer is self._last:
            return keras.layers.Activation("linear", **common)
        config = layer.get_config()
        changes = dict(trainable=True, dtype=self._precision)
        if layer is self._last:
            changes["activation"] = "linear"
        if kind is keras.layers.Normalization:
            changes |= _constants(layer)
        config |= {name: value for name, value in changes.items() if name in config}
        try:
            return kind.from_config(config)
        except Exception as error:  # whatever a layer of the user's own raises
            raise refused(
                key,
                layer,
                f"cannot be made again from its config ({first_line(error)})",
                "mend its get_config()",
            ) from error

    def _named(self, key: str, layer: keras.layers.Layer) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """The variables of a layer by name: the user's, and the copy's where it has one."""
        twin, seen = self._twins[id(layer)], Counter[str]()
        if twin.non_trainable_variables:
            names = sorted({variable.name for variable in twin.non_trainable_variables})
            if STATE_OF_RANDOMNESS in names:
                raise refused(
                    key, layer, "draws random numbers that would depend on the micro batch",
                    "leave it out, or use Dropout (noise_shape=(None, 1, 1, None) drops whole channels) or data.augment",
                )  # fmt: skip
            raise refused(key, layer, f"keeps state between batches ({', '.join(names)})", "leave it out")
        variables = [] if type(layer) is keras.layers.Normalization else layer.weights
        twins = twin.weights or [None] * len(variables)
        if twin.weights and [tuple(v.shape) for v in twins] != [tuple(v.shape) for v in variables]:
            raise refused(
                key, layer, "has other weights when it is made again from its config", "mend its get_config()"
            )
        for variable, own in zip(variables, twins, strict=True):
            number = seen[variable.name]
            seen[variable.name] += 1
            yield f"{key}/{variable.name}{f'_{number}' if number else ''}", (variable, own)

    def _parameter(self, name: str, norms: set[str]) -> Parameter:
        key, _, own = name.rpartition("/")
        layer, (variable, _) = self._layers[key], self._pairs[name]
        kind, frozen = "other", not (layer.trainable and variable.trainable)
        if type(layer) is keras.layers.BatchNormalization:
            kind = own
            frozen = key not in norms if own.startswith("moving_") else frozen
        elif own == "depthwise_kernel" or (
            isinstance(layer, keras.layers.DepthwiseConv2D) and own == "kernel"
        ):
            kind = "depthwise"
        elif re.search(r"kernel(_\d+)?$", own):
            kind = "kernel"
        return Parameter(name, tuple(variable.shape), kind, frozen)

    def _rehearse(self, image_size: int) -> Rehearsal:
        rehearsal, found = Rehearsal(), []
        precision = PRECISIONS[self._precision]

        def run(x: tf.Tensor) -> tf.Tensor:
            weights = {name: tf.zeros(v.shape, precision.variable) for name, (v, _) in self._pairs.items()}
            logits, losses = self._run(x, Pass(weights, rehearsal, iter(())))
            found.extend(losses)
            return logits

        spec = tf.TensorSpec([2, image_size, image_size, 3], precision.compute)
        try:
            tf.function(run, autograph=False, jit_compile=False).get_concrete_function(spec)
        except Exception as error:  # whatever Keras, or a layer of the user's own, raises
            raise ConfigError(f"the model cannot be computed: {first_line(error)}") from error
        if found:
            raise ConfigError(
                "the model adds losses of its own (add_loss), which would not be trained on; leave them out"
            )
        for norm, times in Counter(rehearsal.norms).items():
            if times > 1:
                raise refused(
                    norm, self._layers[norm], f"is used {times} times, and has one set of moving statistics",
                    "give each place its own",
                )  # fmt: skip
        return rehearsal


def _constants(layer: keras.layers.Normalization) -> dict[str, Any]:
    """What it has learned by adapt(): no state of a training, and part of what the model is."""
    if not layer.weights:
        return dict(mean=layer.input_mean, variance=layer.input_variance)
    return dict(mean=np.asarray(layer.adapt_mean), variance=np.asarray(layer.adapt_variance))
