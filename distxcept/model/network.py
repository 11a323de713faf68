"""What training needs to know of a model: Xception, or one that was given from Python. No TensorFlow of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from distxcept.config.schema import Config
from distxcept.model.layout import Block, Parameter

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from distxcept.model.batchnorm import Normalizer

GIVEN = "model given from Python"
"""Its key in `Network.identity`: the digest of its description."""


class Described(Protocol):
    @property
    def parameters(self) -> Sequence[Parameter]:
        """Every tensor of the model in forward order, moving statistics among them."""
        ...

    @property
    def blocks(self) -> Sequence[Block]:
        """What `model.freeze` may name."""
        ...

    def block_of(self, parameter_name: str) -> str: ...


class Network(Described, Protocol):
    """A pure function over plain tensors: see xception.py."""

    classes: int
    title: str
    """For people."""

    @property
    def momenta(self) -> Mapping[str, float]:
        """Of batch-norm layers that have one of their own; the others have the config's."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What a run must find again to go on, beside its config."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """What goes into the run folder to describe the model, where the config does not; nothing of it is read again."""
        ...

    def __call__(
        self,
        images: "tf.Tensor",
        weights: Mapping[str, "tf.Tensor"],
        normalize: "Normalizer",
        *,
        dtype: "tf.DType",
        dropout_noise: Any = ...,
        remat: bool = False,
    ) -> "tf.Tensor": ...

    def dropout_noise(self, seeds: "tf.Tensor", samples: int) -> Any: ...


class GivenNetwork(Network, Protocol):
    """Made from a model that was given from Python: see keras_function.py."""

    def values(self) -> dict[str, "np.ndarray"]:
        """What a training starts from."""
        ...

    def put(self, values: Mapping[str, "np.ndarray"]) -> Any:
        """The model that was given, with these values in it."""
        ...


MakeNetwork = Callable[[Config], GivenNetwork]
"""Called when the devices are ready."""


def is_function(model: Any) -> bool:
    """Whether a model is still to be built; Keras models can be called too."""
    return callable(model) and not hasattr(model, "layers")
