"""The weights of a snapshot in variables of an engine: for evaluation, without optimizer and training data."""

import json
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from distxcept.checkpoint.snapshot import Snapshot, SnapshotError
from distxcept.data.dataset import reading_of
from distxcept.data.sources import Source
from distxcept.engines import Engine
from distxcept.errors import ConfigError, DataError
from distxcept.model.network import Described
from distxcept.model.precision import PRECISIONS, Precision
from distxcept.training.evaluate import Evaluator, idle_cores
from distxcept.training.objective import Objective
from distxcept.training.scores import Scores, score
from distxcept.training.trained import Trained


class InferenceWeights:
    """What validation and export use: the moving average where the run keeps one."""

    def __init__(self, engine: Engine, model: Described, snapshot: Snapshot, precision: Precision):
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

    def inference_weights(self) -> dict[str, tf.Tensor]:
        """Traced, replica context."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self._variables.items()}


def evaluator_of(trained: Trained, engine: Engine) -> Evaluator:
    """Eager, on every rank."""
    model, precision = trained.network, PRECISIONS[trained.config.precision]
    weights = InferenceWeights(engine, model, trained.snapshot, precision)
    objective, cores = Objective(len(trained.class_names)), idle_cores(trained.config, engine)
    return Evaluator(engine, model, objective, precision, weights, cores=cores)


def evaluate_trained(
    trained: Trained,
    engine: Engine,
    source: Source,
    on_bad: Callable[[int, str, str], None] = lambda index, path, reason: None,
) -> Scores:
    """Eager, on every rank, with the same result on each."""
    reading = reading_of(trained.config, source, training=False, processes=engine.local_ranks)
    outcomes = evaluator_of(trained, engine)(reading, batch_per_replica=trained.batch, on_bad=on_bad)
    if not len(outcomes.labels):
        raise DataError(f"none of the {len(source)} images can be read")
    return score(outcomes, trained.class_names)
