"""What `model.freeze` leaves to training."""

import pytest

from distxcept.errors import ConfigError
from distxcept.model.freezing import frozen_blocks, trained_norms, trained_parameters
from distxcept.model.xception import Xception

MODEL = Xception(classes=5, width=0.0625)


@pytest.mark.parametrize(
    ("freeze", "frozen", "norms", "first_trained"),
    [
        (None, 0, 40, "block1_conv1/kernel"),
        ("block1", 1, 38, "block2_residual/kernel"),
        ("block4", 4, 29, "block5_sepconv1/depthwise_kernel"),
        ("block13", 13, 2, "block14_sepconv1/depthwise_kernel"),
        ("block14", 14, 0, "predictions/kernel"),
        ("backbone", 14, 0, "predictions/kernel"),
    ],
)
def test_freeze(freeze, frozen: int, norms: int, first_trained: str):
    names = [p.name for p in trained_parameters(MODEL, freeze)]
    assert frozen_blocks(MODEL, freeze) == {f"block{k}" for k in range(1, frozen + 1)}
    assert names[0] == first_trained and names[-1] == "predictions/bias"
    assert len(trained_norms(MODEL, freeze)) == norms
    # Everything after the first trained parameter trains too, but for moving statistics.
    every = [p.name for p in MODEL.parameters if not p.moving]
    assert names == every[every.index(first_trained) :]


def test_every_parameter_belongs_to_a_block():
    blocks = {block.name for block in MODEL.blocks} | {"predictions"}
    assert {MODEL.block_of(p.name) for p in MODEL.parameters} == blocks
    for block in MODEL.blocks:
        owned = [p.name for p in MODEL.parameters if MODEL.block_of(p.name) == block.name]
        assert owned == [p.name for p in block.parameters()]


def test_a_block_that_the_model_lacks():
    shallow = Xception(classes=5, width=0.0625, middle_blocks=1)
    with pytest.raises(ConfigError, match=r"model\.freeze is block9, but .*block5, block13"):
        frozen_blocks(shallow, "block9")
