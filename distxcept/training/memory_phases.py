"""Peak memory by phase of an update: forward, backward, reduce, apply. A diagnosis before the training, on request.

Inside the one traced function of an update nothing tells where a phase ends. So each phase is traced and run on its own
here, on random images, and the whole update beside them. What differs from the real thing: between forward and backward
everything that the backward pass needs is held, where the whole update gives it back piece by piece. The sum of both is
therefore an upper bound of what the update needs; `update` is what it really takes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.config.size import show_size
from distxcept.data.batch import Batch
from distxcept.errors import ConfigError, DoesNotFitError
from distxcept.model.batchnorm import VirtualBatchNormalizer
from distxcept.training.accumulate import Sums
from distxcept.training.build import Training
from distxcept.training.out_of_memory import is_out_of_memory
from distxcept.training.peak import Peak
from distxcept.training.update import tied_to_device

PHASES = ("forward", "backward", "reduce", "apply", "update")


def measure_phases(training: Training) -> dict[str, int]:
    """Eager, on all ranks: bytes of this rank's first device above what it holds between updates. Changes nothing."""
    if training.plan.lanes is not None:
        raise ConfigError("--memory-phases does not know engine.reduction: ordered; measure with fast")
    state = training.update.state
    before = state.read()
    peak = Peak(training.engine.devices()[0])
    try:
        found = _forward_and_backward(training, peak)
        found["reduce"] = _peak_of(_reduce(training), peak)
        found["apply"] = _peak_of(_apply(training), peak)
        found["update"] = _peak_of(_whole(training), peak)
    except OSError as error:
        raise ConfigError(
            f"--memory-phases: the kernel does not let peaks be measured here: {error}"
        ) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise DoesNotFitError(
            "--memory-phases: out of memory; phases that are held apart need more than an update: leave it out, or set "
            f"batch.micro below {training.plan.micro_batch}"
        ) from error
    finally:
        state.write(before)
    return found


def describe_phases(phases: dict[str, int]) -> str:
    parts = [f"{phase} {show_size(phases[phase])}" for phase in PHASES[:-1]]
    return f"peak memory by phase, each on its own: {', '.join(parts)}; a whole update {show_size(phases['update'])}"


def phase_functions(training: Training) -> dict[str, Callable[[], Any]]:
    """Eager, on all ranks. Each runs one phase of an update on its own; `distxcept prove` times them."""
    return {"reduce": _reduce(training), "apply": _apply(training)}


def _peak_of(phase: Callable[[], Any], peak: Peak) -> int:
    """Runs it twice: the first time it is traced."""
    phase()
    start = peak.reset()
    phase()
    return max(0, peak.read() - start)


def _forward_and_backward(training: Training, peak: Peak) -> dict[str, int]:
    """What is computed at once, cut where TensorFlow cuts: a function under a tape hands out what its gradient needs."""
    update, engine = training.update, training.engine
    plan, found = training.plan, {}
    (batch, *_) = random_batches(training, plan.virtual_per_micro)
    vectors = [tf.convert_to_tensor(_local(variable)) for variable in update.state.weights]
    sources = vectors[: len(update.state.packs)]

    @tf.function(jit_compile=False, autograph=False)
    def forward(sources: list[tf.Tensor], batch: Batch) -> tf.Tensor:
        weights = update.accumulator.split([*sources, *vectors[len(sources) :]])
        normalizer = VirtualBatchNormalizer(
            batch.weights,
            fused=0 if update.precision.variable == tf.float64 else batch.weights.shape[0],
            frozen=update.accumulator.frozen_norms,
        )
        drawn = update.accumulator.draw(batch, tf.zeros([batch.weights.shape[0], 2], tf.int64))
        return update.accumulator.forward(weights, drawn, normalizer, remat=training.remat)[0]

    with tf.device(engine.devices()[0]):
        for _ in range(2):  # the first time both are traced
            start = peak.reset()
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                loss = forward(sources, batch)
            loss.numpy()
            found["forward"] = max(0, peak.read() - start)
            peak.reset()
            gradients = tape.gradient(loss, sources)
            gradients[0].numpy()
            found["backward"] = max(0, peak.read() - start)
            del tape, gradients
    return found


def _reduce(training: Training) -> Callable[[], Any]:
    engine = training.engine

    def traced(start: tf.Tensor, common: Any) -> tf.Tensor:
        """Traced, replica context."""
        sums = _zero_sums(training, start)
        gradients, exact = engine.sum(sums.gradients, [sums.statistics])
        return tf.add_n([tf.reduce_sum(tensor[:1]) for tensor in (*gradients, *exact)])

    return _on_each_replica(training, traced)


def _apply(training: Training) -> Callable[[], Any]:
    """With gradients of zero and a learning rate of zero; what it changes all the same is put back at the end."""
    update = training.update

    def traced(rate: tf.Tensor, common: Any) -> tf.Tensor:
        """Traced, replica context."""
        sums = _zero_sums(training, rate)
        one, zero = tf.ones_like(rate), tf.zeros_like(rate)
        update.apply(rate == zero, sums.gradients, sums.statistics, one, one, rate, zero)
        return zero

    return _on_each_replica(training, traced)


def _on_each_replica(training: Training, traced: Callable[..., tf.Tensor]) -> Callable[[], tf.Tensor]:
    """Calls it with a zero. The large tensors are made from that on the device of each replica, so none is copied there."""
    compiled = training.engine.compile(traced)
    zero = tf.constant(0.0, training.update.precision.variable)
    return lambda: compiled([zero] * len(training.engine.local_replicas), ())


def _whole(training: Training) -> Callable[[], Any]:
    plan = training.plan
    blocks = plan.blocks(plan.virtual_per_update)
    sizes = [len(blocks[replica]) for replica in training.engine.local_replicas]
    batches = random_batches(training, *sizes)

    def run() -> None:
        outcome = training.update(batches, plan, key=0, rate=0.0, remat=training.remat)
        if outcome.out_of_memory:
            raise MemoryError

    return run


def _zero_sums(training: Training, zero: tf.Tensor) -> Sums:
    """Traced, replica context."""
    return training.update.accumulator.zeros(tied_to_device(zero))


def _local(variable: tf.Variable) -> Any:
    """The copy of the first local replica."""
    return variable.values[0] if hasattr(variable, "values") and not callable(variable.values) else variable


def random_batches(training: Training, *virtual_batches: int) -> list[Batch]:
    """One batch for each number of virtual batches."""
    config, plan = training.config, training.plan
    random, size = np.random.default_rng(0), config.model.image_size
    classes = len(training.train.class_names)

    def batch(number: int) -> Batch:
        shape = (number, plan.virtual_batch)
        return Batch(
            random.integers(0, 256, (*shape, size, size, 3), np.uint8),
            random.integers(0, classes, shape, np.int32),
            np.ones(shape, np.float32),
            tf.constant(0, tf.int32),
            tf.zeros([0], tf.int32),
        )

    return [batch(number) for number in virtual_batches]
