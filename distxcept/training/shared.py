"""A pure function of tensors that is traced once, whichever replica calls it.

MirroredStrategy traces a function anew for each replica. Python would run the whole model once for every device, and
TensorFlow would then optimise one graph that holds all of these copies. Here every replica's graph only calls the function.
A call that is not inlined stays a call: TensorFlow optimises the function for each device on its own, at the same time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Traced:
    """One trace of the function, over flat lists of tensors."""

    specs: tuple[tf.TensorSpec, ...]
    inlined: Callable[..., list[tf.Tensor]]
    """Its results are there one by one as they are computed."""
    apart: Callable[..., list[tf.Tensor]]
    """Its results are there all at once."""
    structure: Any
    """Of the results."""


class Shared:
    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._traced: dict[Any, Traced] = {}

    @property
    def traced(self) -> list[Traced]:
        """One for each form."""
        return list(self._traced.values())

    def __call__(self, *arguments: Any, inline: bool = False, **form: Any) -> Any:
        """Traced, replica context. `form` holds Python values that select the trace."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(arguments)]
        specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors)
        key = (specs, tuple(sorted(form.items())))
        if key not in self._traced:
            # A thread of its own knows nothing of this replica's graph, device and strategy.
            with ThreadPoolExecutor(1) as thread:
                self._traced[key] = thread.submit(self._trace, arguments, specs, form).result()
        traced = self._traced[key]
        results = (traced.inlined if inline else traced.apart)(*tensors)
        return tf.nest.pack_sequence_as(traced.structure, results)

    def _trace(self, arguments: Any, specs: tuple[tf.TensorSpec, ...], form: dict[str, Any]) -> Traced:
        structure: list[Any] = []

        def flat(*tensors: tf.Tensor) -> list[tf.Tensor]:
            result = self._function(*tf.nest.pack_sequence_as(arguments, tensors), **form)
            structure[:] = [tf.nest.map_structure(lambda tensor: None, result)]
            return tf.nest.flatten(result)

        inlined = tf.function(flat, autograph=False, jit_compile=False).get_concrete_function(*specs)
        apart = tf.function(
            lambda *tensors: inlined(*tensors),
            autograph=False,
            jit_compile=False,
            experimental_attributes={"_noinline": True},
        ).get_concrete_function(*specs)
        return Traced(specs, inlined, apart, structure[0])
