"""An Xception of six convolutions, for programs of which many trainings are traced."""

from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

from distxcept.model import layout

real_blocks = layout._blocks


def short_xception() -> AbstractContextManager:
    """While entered, every model that is made is a short one."""
    return mock.patch.object(layout, "_blocks", one_block_of_each_kind)


def one_block_of_each_kind(width: float, middle_blocks: int) -> list[layout.Block]:
    """A short Xception: what is traced grows with its layers, what can go wrong does not.

    As in the whole one a ReLU follows the sums of the middle: a convolution with a batch norm right behind them would
    take most of their gradient away and leave its rounding errors.
    """
    stem, shrinking, *_, middle, _, last = real_blocks(width, 1)
    channels = shrinking.convolutions[-1].outputs

    def with_one_convolution(block: layout.Block, inputs: int, outputs: int, **changes: bool) -> layout.Block:
        one = replace(block.convolutions[0], inputs=inputs, outputs=outputs, **changes)
        return replace(block, convolutions=(one,))

    return [
        stem,
        with_one_convolution(shrinking, shrinking.convolutions[0].inputs, channels),
        with_one_convolution(middle, channels, channels),
        with_one_convolution(last, channels, last.convolutions[0].outputs, relu_before=True),
    ]
