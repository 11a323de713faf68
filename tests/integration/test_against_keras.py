"""Our update beside `keras.Model.fit`, in float64: equal where Keras is right, and right where Keras is not."""

from pathlib import Path

import numpy as np
import pytest
from launchers import python, run

Weights = dict[str, np.ndarray]


class Results:
    def __init__(self, path: Path):
        self.arrays = dict(np.load(path, allow_pickle=False))

    def weights(self, case: str, who: str) -> Weights:
        found = self._below(f"{case}/{who}/")
        assert "error" not in found, f"{case}, {who}: {found.get('error')}"
        return found

    def error(self, case: str, who: str) -> str:
        return str(self._below(f"{case}/{who}/")["error"])

    def start(self) -> Weights:
        return self._below("start/")

    def _below(self, prefix: str) -> Weights:
        return {k.removeprefix(prefix): value for k, value in self.arrays.items() if k.startswith(prefix)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    path = tmp_path_factory.mktemp("against_keras") / "results.npz"
    done = run(python("against_keras.py", path))
    assert done.returncode == 0, done.stderr[-4000:]
    return Results(path)


def difference(found: Weights, expected: Weights) -> float:
    """The worst tensor's largest difference, in parts of its largest weight."""
    assert set(found) == set(expected)
    return max(
        float(np.max(np.abs(found[name] - expected[name])) / np.max(np.abs(expected[name])))
        for name in expected
    )


def changed(results: Results, case: str, who: str) -> set[str]:
    """Which kinds of weights the training moved, of the classifier and of the rest."""
    start, found = results.start(), results.weights(case, who)
    moved = {name for name in start if not np.array_equal(start[name], found[name])}
    return {name if name.startswith("predictions") else name.split("/")[1] for name in moved}


HEAD = {"predictions/kernel", "predictions/bias"}
KERNELS = HEAD | {"kernel", "depthwise_kernel", "pointwise_kernel"}
EVERYTHING = KERNELS | {"gamma", "beta", "moving_mean", "moving_variance"}


@pytest.mark.parametrize(
    ("case", "who", "trained"),
    [
        # A frozen backbone; a batch of 13 in one step, and in 13 steps
        ("thirteen", "ours", HEAD),
        ("thirteen", "ours in micro steps", HEAD),
        # All kernels, batch norms as in inference, Nesterov momentum, clipping
        ("kernels", "ours", KERNELS),
        ("kernels", "ours in micro steps", KERNELS),
        # Batch norms in training mode, their virtual batch being the whole batch
        ("everything", "ours", EVERYTHING),
    ],
)
def test_one_device_gives_the_weights_of_keras_fit(results: Results, case: str, who: str, trained: set[str]):
    assert changed(results, case, who) == changed(results, case, "keras") == trained
    assert difference(results.weights(case, who), results.weights(case, "keras")) < 1e-10
    assert difference(results.weights(case, who), results.start()) > 1e-2, (
        "training that moves nothing shows nothing"
    )


def test_clipping_on_two_replicas(results: Results):
    """Keras clips the gradient of each replica before their sum, and so makes another update than one device."""
    one_device = results.weights("clipping", "keras")
    assert difference(results.weights("clipping", "ours"), one_device) < 1e-10
    assert difference(results.weights("clipping", "ours mirrored"), one_device) < 1e-10
    assert difference(results.weights("clipping", "keras mirrored"), one_device) > 1e-3


def test_thirteen_samples_on_two_replicas(results: Results):
    """Keras fails on shares of 7 and 6."""
    one_device = results.weights("thirteen", "keras")
    assert difference(results.weights("thirteen", "ours mirrored"), one_device) < 1e-10
    assert "[7,71,71,3] != input 1: [6,71,71,3]" in results.error("thirteen", "keras mirrored")


def test_accumulation_on_two_replicas(results: Results):
    """Keras' accumulation works on one device; under MirroredStrategy in graph mode it raises."""
    one_device = results.weights("accumulation", "keras")
    assert difference(results.weights("accumulation", "ours"), one_device) < 1e-10
    assert difference(results.weights("accumulation", "ours mirrored in micro steps"), one_device) < 1e-10
    assert "merge_call" in results.error("accumulation", "keras mirrored")
