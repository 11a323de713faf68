"""The parts of the estimate that can be counted by hand, and how it grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.config.optimizer import OptimizerSection
from distxcept.memory.estimate import HOROVOD_FUSION_BYTES, KINDS, Work, estimate
from distxcept.model.layout import Layout

XCEPTION = Layout(classes=1000)
ALL, TRAINED = 22_910_480, 22_855_952
"""Numbers that Keras counts in its Xception."""

BASE = dict(layout=XCEPTION, image_size=299, micro_batch=8, virtual_batch=8)


def of(**changes):
    return estimate(Work(**{**BASE, **changes}))


def kind(name: str, **changes) -> int:
    return of(**changes).kinds[name]


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("weights", {}, 4 * ALL),
        ("weights", {"precision": "float64"}, 8 * ALL),
        ("slots", {}, 4 * TRAINED),
        ("slots", {"optimizer": OptimizerSection(momentum=0.0)}, 0),
        ("slots", {"optimizer": OptimizerSection(name="adam")}, 2 * 4 * TRAINED),
        ("slots", {"optimizer": OptimizerSection(name="rmsprop")}, 2 * 4 * TRAINED),
        ("slots", {"optimizer": OptimizerSection(name="lamb"), "freeze": "backbone"}, 2 * 4 * 2049 * 1000),
        ("moving_average", {}, 0),
        ("moving_average", {"optimizer": OptimizerSection(ema=0.9)}, 4 * TRAINED),
        ("accumulators", {}, 0),
        ("accumulators", {"micro_steps": 2}, 4 * TRAINED),
        ("accumulators", {"micro_steps": 99}, 4 * TRAINED),
        ("accumulators", {"lanes": 4}, 4 * 5 * TRAINED),
        ("input", {}, 16 * 299 * 299 * 3),
        ("input", {"micro_steps": 4}, 16 * 299 * 299 * 3),
        ("input", {"micro_steps": 4, "device": "cpu"}, 32 * 299 * 299 * 3),
        ("input", {"micro_steps": 4, "device": "cpu", "updates_in_memory": 3}, 96 * 299 * 299 * 3),
    ],
)
def test_parts(name, changes, expected):
    assert kind(name, **changes) == expected


@pytest.mark.parametrize(
    ("engine", "buffers"),
    [
        ("single", 0),
        ("mirrored", 4 * TRAINED),
        ("horovod", 4 * TRAINED + min(HOROVOD_FUSION_BYTES, 4 * TRAINED)),
    ],
)
def test_reduction_buffers_come_after_the_activations(engine, buffers):
    found = of(engine=engine)
    assert found.phases["reduce"]["reduction"] == buffers
    assert found.phases["reduce"]["activations"] == 0
    assert found.phases["micro step"]["reduction"] == 0
    assert found.phase == "micro step"


def test_overlapped_reduction_buffers_stand_beside_the_activations():
    apart, at_once = of(engine="horovod"), of(engine="horovod", overlaps=True)
    buffers = at_once.phases["reduce"]["reduction"]
    assert at_once.phases["micro step"]["reduction"] == buffers > 0
    assert at_once.total_bytes == apart.total_bytes + buffers
    assert at_once.phases["reduce"] == apart.phases["reduce"]
    assert of(overlaps=True) == of(), "one device has nothing to reduce"


def test_the_peak_is_that_of_the_largest_phase():
    """One small image: then the gradients on their way through Horovod weigh more than the activations."""
    found = of(micro_batch=1, virtual_batch=1, image_size=71, engine="horovod")
    assert found.phase == "reduce"
    assert found.total_bytes == max(phase.total() for phase in found.phases.values())
    assert sum(found.kinds.values()) == found.total_bytes
    assert list(found.kinds) == list(KINDS)


def test_half_precision_halves_activations_and_copies_the_kernels():
    whole, half = of(), of(precision="mixed_float16")
    assert half.kinds["activations"] == pytest.approx(whole.kinds["activations"] / 2, rel=0.01)
    assert half.kinds["slots"] == whole.kinds["slots"]
    assert 4 * ALL < half.kinds["weights"] < 6 * ALL


def test_padding_costs_in_half_precision_only():
    """Masked batch norm computes in the format of the weights."""
    assert of(masked=True).total_bytes == pytest.approx(of().total_bytes, rel=0.02)
    half = of(precision="mixed_float16")
    assert of(precision="mixed_float16", masked=True).total_bytes > 1.2 * half.total_bytes


def test_frozen_blocks_keep_no_activations_and_no_slots():
    everything = of()
    exit_flow = of(freeze="block12")
    assert exit_flow.total_bytes < 0.4 * everything.total_bytes
    assert of(freeze="backbone").total_bytes < exit_flow.total_bytes
    assert kind("gradients", freeze="backbone") <= 4 * 2049 * 1000


def test_rematerialisation_keeps_the_inputs_of_the_blocks():
    """Their bytes by hand: the image and the outputs of blocks 1 to 13; then the largest block runs again."""
    outputs = [(299, 3), (147, 64), (74, 128), (37, 256), *[(19, 728)] * 9, (10, 1024)]
    inputs_of_blocks = 8 * 4 * sum(side * side * channels for side, channels in outputs)
    assert inputs_of_blocks < of(remat=True).phases["micro step"].total() - 2 * 4 * ALL
    assert of(remat=True).total_bytes < 0.55 * of().total_bytes


WORK = st.fixed_dictionaries(
    {
        "micro_batch": st.integers(1, 8),
        "image_size": st.integers(71, 320),
        "width": st.sampled_from([0.0625, 0.25, 0.5, 1.0, 1.5]),
        "remat": st.booleans(),
        "masked": st.booleans(),
        "precision": st.sampled_from(["float32", "mixed_float16", "float64"]),
        "micro_steps": st.integers(1, 3),
    }
)


def total(width: float, micro_batch: int, device: str = "gpu", **changes) -> int:
    layout = Layout(classes=10, width=width)
    work = dict(virtual_batch=micro_batch, micro_batch=micro_batch, layout=layout, device=device)
    return estimate(Work(**work, **changes)).total_bytes


@pytest.mark.parametrize(
    ("key", "larger"), [("micro_batch", 1), ("micro_batch", 5), ("image_size", 1), ("width", 0.25)]
)
@given(work=WORK)
def test_more_of_anything_needs_more(key, larger, work):
    grown = {**work, key: work[key] + larger}
    assert total(**grown) >= total(**work)


@given(work=WORK)
def test_rematerialisation_never_needs_more_than_a_little(work):
    """It saves activations; where these are next to nothing it may cost a few values of one block."""
    on, off = total(**{**work, "remat": True}), total(**{**work, "remat": False})
    assert on <= 1.02 * off
