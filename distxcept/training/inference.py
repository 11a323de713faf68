"""The weights of a snapshot in variables of an engine: for evaluation, without optimizer and training data."""

import json
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from distxcept.checkpoint.snapshot import Snapshot, SnapshotError
from distxcept.config.schema import Config
from distxcept.engines import Engine
from distxcept.errors import ConfigError
from distxcept.model.precision import PRECISIONS, Precision
from distxcept.model.xception import Xception
from distxcept.training.evaluate import Evaluator
from distxcept.training.objective import Objective


class InferenceWeights:
    """What validation and export use: the moving average where the run keeps one."""

    def __init__(self, engine: Engine, model: Xception, snapshot: Snapshot, precision: Precision):
        """Eager, on every rank. The chief reads, the others get its values."""
        shapes = {parameter.name: parameter.shape for parameter in model.parameters}
        values = {name: np.zeros(shape, precision.numpy) for name, shape in shapes.items()}
        problem = ""
        if engine.is_chief:
            try:
                found = snapshot.inference_tensors(shapes)
                values = {name: value.astype(precision.numpy) for name, value in found.items()}
            except SnapshotError as error:
                problem = f"{error}; give the config that it was trained with"
        problem = json.loads(engine.exchange(json.dumps(problem).encode())[0])
        if problem:
            raise ConfigError(problem)
        self._variables = {name: engine.variable(value, name) for name, value in values.items()}
        engine.broadcast(list(self._variables.values()))

    def inference_weights(self) -> dict[str, tf.Variable]:
        return self._variables


def evaluator_of(snapshot: Snapshot, config: Config, engine: Engine, class_names: Sequence[str]) -> Evaluator:
    """Eager, on every rank."""
    wanted = config.model.classes
    classes = len(class_names) if wanted == "auto" else wanted
    model = Xception(classes=classes, width=config.model.width, middle_blocks=config.model.middle_blocks)
    precision = PRECISIONS[config.precision]
    weights = InferenceWeights(engine, model, snapshot, precision)
    return Evaluator(engine, model, Objective(classes), precision, weights)
