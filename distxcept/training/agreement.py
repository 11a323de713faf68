"""All replicas hold the same weights: the check, and what is done where cards of different models drift apart.

Every replica applies the same gradients by itself. Equal devices get equal bits. Cards of different models may round a
square root differently, so their weights drift by a rounding in each update. That is no fault: everybody takes the
values of replica 0 again. A larger difference, or any between equal devices, ends the run.
"""

import json

import numpy as np

from distxcept.engines import Engine
from distxcept.errors import PeerLostError
from distxcept.training.state import State

ROUNDING = 1e-3
"""max|difference| / max|value| of a pack up to which different cards may drift between two checks."""


def check_equal(state: State, when: str) -> str | None:
    """Eager, on every rank. A notice if the replicas had to be made equal again. PeerLostError if they differ by a fault."""
    engine = state.engine
    own = {
        "digests": [digest.hex() for digest in state.digests()],
        "kinds": engine.device_kinds(),
    }
    ranks = [json.loads(message) for message in engine.exchange(json.dumps(own).encode())]
    digests = [digest for rank in ranks for digest in rank["digests"]]
    kinds = sorted({kind for rank in ranks for kind in rank["kinds"]})
    differing = [number for number, digest in enumerate(digests) if digest != digests[0]]
    if not differing:
        return None
    named = f"replica{'s' * (len(differing) > 1)} {', '.join(map(str, differing))}"
    if len(kinds) == 1:
        raise PeerLostError(
            f"{when}, {named} no longer held the weights of replica 0; start again from the last snapshot, and check "
            "these devices"
        )
    drift = _take_first(state, engine)
    if drift > ROUNDING:
        raise PeerLostError(
            f"{when}, {named} differed from replica 0 by {drift:.1e} of the largest weight, more than rounding explains; "
            "start again from the last snapshot, and check these devices"
        )
    return (
        f"{when}, {named} differed from replica 0 by up to {drift:.1e} of the largest weight, because the devices differ "
        f"({', '.join(kinds)}); all replicas continue with the weights of replica 0"
    )


def _difference(value: np.ndarray, first: np.ndarray) -> float:
    """max|difference| / max|value|. Counters must be equal: a replica that is an update behind has no rounding error."""
    if not np.issubdtype(first.dtype, np.floating):
        return 0.0 if np.array_equal(value, first) else np.inf
    largest = float(np.max(np.abs(first), initial=0.0)) or 1.0
    return float(np.max(np.abs(value.astype(np.float64) - first), initial=0.0)) / largest


def _take_first(state: State, engine: Engine) -> float:
    """Gives every replica the values of replica 0. Returns the largest relative difference that this removed."""
    variables = state.variables()
    before = [engine.copies(variable) for variable in variables]
    engine.broadcast(variables)
    for variable in variables:
        variable.assign(engine.copies(variable)[0])
    drift = 0.0
    for variable, copies in zip(variables, before, strict=True):
        value = engine.copies(variable)[0]
        drift = max(drift, *(_difference(copy, value) for copy in copies))
    return max(json.loads(text) for text in engine.exchange(json.dumps(drift).encode()))
