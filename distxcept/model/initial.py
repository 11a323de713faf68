"""Initial values: a function of the seed and the parameter's name, the same on every machine and engine."""

import hashlib

import numpy as np

from distxcept.model.layout import Parameter


def initial_value(parameter: Parameter, seed: int, dtype: np.dtype | type = np.float32) -> np.ndarray:
    """Glorot uniform for kernels, as in Keras; ones and zeros for the rest."""
    if parameter.kind in ("gamma", "moving_variance"):
        return np.ones(parameter.shape, dtype)
    if parameter.kind in ("beta", "bias", "moving_mean"):
        return np.zeros(parameter.shape, dtype)
    receptive = int(np.prod(parameter.shape[:-2]))
    limit = np.sqrt(6.0 / (receptive * (parameter.shape[-2] + parameter.shape[-1])))
    key = hashlib.sha256(f"{seed}/{parameter.name}".encode()).digest()
    random = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))
    return random.uniform(-limit, limit, parameter.shape).astype(dtype)
