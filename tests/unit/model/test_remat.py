"""Computing a block again gives the gradients that keeping its values gives, with the same statistics."""

import numpy as np
import pytest
import tensorflow as tf
from short_xception import short_xception

from distxcept.model.batchnorm import VirtualBatchNormalizer
from distxcept.model.remat import rematerialized
from distxcept.model.xception import Xception

with short_xception():
    MODEL = Xception(classes=5, width=0.0625, dropout=0.5)
TRAINED = [p.name for p in MODEL.parameters if not p.moving]


def gradients(*, remat: bool, frozen: frozenset[str] = frozenset()):
    random = np.random.default_rng(1)
    weights = {p.name: tf.constant(random.normal(size=p.shape) * 0.3, tf.float64) for p in MODEL.parameters}
    weights |= {
        p.name: tf.ones(p.shape, tf.float64)
        for p in MODEL.parameters
        if p.kind in ("gamma", "moving_variance")
    }
    images = tf.constant(random.integers(0, 256, (4, 71, 71, 3)), tf.uint8)
    mask = tf.constant([[1.0, 1.0], [1.0, 0.0]])
    seeds = tf.constant([[1, 2], [1, 3]], tf.int64)

    @tf.function(autograph=False)
    def step(images, weights):
        normalize = VirtualBatchNormalizer(mask, fused=0, frozen=frozen)
        with tf.GradientTape() as tape:
            tape.watch([weights[name] for name in TRAINED])
            noise = MODEL.dropout_noise(seeds, images.shape[0])
            logits = MODEL(images, weights, normalize, dtype=tf.float64, dropout_noise=noise, remat=remat)
            loss = tf.reduce_sum(logits**2)
        return tape.gradient(loss, {name: weights[name] for name in TRAINED}), sums_of(normalize), loss

    return step(images, weights)


def sums_of(normalize: VirtualBatchNormalizer) -> dict[str, tf.Tensor]:
    return {name: tf.stack([*sums[:2], sums[0] * sums.factors[0]]) for name, sums in normalize.sums.items()}


@pytest.mark.parametrize("frozen", [frozenset(), frozenset({"block2_sepconv1_bn"})], ids=["all", "frozen"])
def test_same_gradients_and_statistics(frozen):
    kept, again = gradients(remat=False, frozen=frozen), gradients(remat=True, frozen=frozen)
    assert kept[0].keys() == again[0].keys() == set(TRAINED)
    assert None not in again[0].values()
    for name in TRAINED:
        scale = np.abs(kept[0][name]).max()
        assert np.abs(again[0][name] - kept[0][name]).max() <= 1e-12 * scale, name
        assert scale > 0
    assert kept[1].keys() == again[1].keys()
    for name in kept[1]:
        assert np.array_equal(kept[1][name], again[1][name])
    assert kept[2] == again[2]


def test_a_block_waits_for_its_gradient():
    """Recomputation that could start by itself would hold all blocks in memory at once."""

    @tf.function(autograph=False)
    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            (y,) = rematerialized(lambda x, w: (tf.sin(x * w),))(x, w)
            loss = tf.reduce_sum(y**2)
        return tape.gradient(loss, [x, w])

    concrete = step.get_concrete_function(tf.ones([3]), tf.ones([3]))
    operations = concrete.graph.get_operations()
    forward, again = (op for op in operations if op.type == "Sin")
    gated = {op.name for op in operations if op.type == "Identity" and op.control_inputs}

    def ancestors(op) -> set[str]:
        return {op.name} | {name for tensor in op.inputs for name in ancestors(tensor.op)}

    assert gated & ancestors(again)
    assert not gated & ancestors(forward)
