"""Bytes of a micro step, against sums done by hand."""

import pytest

from distxcept.memory.layers import Conditions
from distxcept.memory.micro_step import micro_step_peak
from distxcept.memory.workspace import CpuWorkspace, GpuWorkspace, Product
from distxcept.model.layout import Block, Convolution, Layout, Parameter

FLOAT32 = dict(compute_bytes=4, variable_bytes=4, workspace=CpuWorkspace(threads=1))


def layout_of(*blocks: Block, classes: int = 2) -> Layout:
    layout = Layout(classes=classes, width=0.0625, middle_blocks=0)
    layout.blocks = list(blocks)
    layout.features = blocks[-1].convolutions[-1].outputs
    return layout


def plain(name: str, inputs: int, outputs: int, **kwargs) -> Convolution:
    return Convolution(name, inputs, outputs, separable=False, padding="VALID", relu_after=True, **kwargs)


STEM = Block("block1", (plain("block1_conv1", 3, 8, stride=2),))


def test_one_convolution_by_hand():
    """Image 9 × 9 × 3 → 4 × 4 × 8. The peak is the gradient of the kernel, the last operation."""
    most = micro_step_peak(layout_of(STEM), Conditions(samples=1, image_size=9, **FLOAT32))
    image, output, kernel, head = 9 * 9 * 3 * 4, 4 * 4 * 8 * 4, 3 * 3 * 3 * 8 * 4, 8 * 2 * 4
    windows = 4 * 4 * 27 * 4
    assert most["activations"] == image
    assert most["gradients"] == kernel + head
    assert most["workspace"] == output + windows


def test_a_frozen_network_keeps_no_activations():
    """Only the classifier is trained: the image is gone when its output is there, and nothing comes back down."""
    given = Conditions(samples=1, image_size=9, frozen_blocks={"block1"}, **FLOAT32)
    most = micro_step_peak(layout_of(STEM), given)
    assert dict(most) == {"activations": 9 * 9 * 3 * 4 + 4 * 4 * 8 * 4, "workspace": 0}


def residual(name: str) -> Block:
    return Block(name, (Convolution(f"{name}_sepconv1", 8, 8, relu_before=True),), add_input=True)


@pytest.mark.parametrize(
    ("remat", "kept", "between"),
    [
        # Stem: outputs of convolution and ReLU. Two residual blocks: outputs of ReLU, depthwise and pointwise
        # convolution. The third one has lost the last of these on the way back. Between layers: the gradient of the
        # block's output, which its input gets too, and those on both sides of the pointwise convolution.
        (False, 2 + 3 * 2 + 2, 3),
        # The input of each residual block, and all that the third one makes when it runs again, batch norm's output
        # included. Between layers: the gradient that waits for it.
        (True, 3 + 4, 1),
    ],
)
def test_what_the_backward_pass_keeps(remat, kept, between):
    """When most is alive: three residual blocks behind a stem, all of 9 × 9 × 8."""
    layout = layout_of(
        Block("block1", (plain("block1_conv1", 3, 8),)), *(residual(f"block{k}") for k in (2, 3, 4))
    )
    given = Conditions(
        samples=1, image_size=11, compute_bytes=4, variable_bytes=4, workspace=NoWorkspace(), remat=remat
    )
    image, output = 11 * 11 * 3 * 4, 9 * 9 * 8 * 4
    most = micro_step_peak(layout, given)
    assert most["activations"] == image + kept * output
    assert most["workspace"] == between * output


class NoWorkspace(GpuWorkspace):
    def forward(self, product: Product) -> int:
        return 0


def cpu_room(kernel: Parameter, samples: int, number_bytes: int, *, stride: int = 1, below: bool) -> int:
    product = Product(kernel, stride, samples, side=8, number_bytes=number_bytes)
    return CpuWorkspace(threads=2).backward(product, input_gradient=below)


def test_the_workspace_of_cpu_convolutions_fills_a_cache():
    kernel = Parameter("k", (1, 1, 728, 728), "kernel")
    assert cpu_room(kernel, 2, 2, below=False) == 2 * 8 * 8 * 728 * 2
    unit = 8 * 8 * 728 * 2 + 728 * 728
    assert cpu_room(kernel, 1000, 2, below=False) == -(-30 * 2**20 // (2 * unit)) * 8 * 8 * 728 * 2
    assert cpu_room(kernel, 1, 2, below=True) == 2 * 8 * 8 * 728 * 2
    depthwise = Parameter("d", (3, 3, 728, 1), "depthwise")
    assert cpu_room(depthwise, 8, 4, below=True) == 0


@pytest.mark.parametrize("number_bytes", [4, 8])
def test_the_workspace_of_matrix_products_on_a_cpu(number_bytes):
    pointwise, window = (
        Parameter("p", (1, 1, 728, 728), "kernel"),
        Parameter("w", (3, 3, 32, 64), "kernel"),
    )
    assert cpu_room(pointwise, 100, number_bytes, below=True) == 0
    # A strided one reads a part of its input, which is copied; the gradient of the input is a convolution's.
    pixels = 8 * 8 * 728 * number_bytes
    assert cpu_room(pointwise, 100, number_bytes, stride=2, below=False) == 100 * pixels
    assert cpu_room(pointwise, 1, number_bytes, stride=2, below=True) == 2 * pixels
    # The gradient of the output, padded to the size of the input.
    assert cpu_room(window, 100, number_bytes, below=False) == 100 * 10 * 10 * 64 * number_bytes


@pytest.mark.parametrize(
    ("size", "sides"),
    [(299, [147, 74, 37, 19, 10, 10]), (128, [61, 31, 16, 8, 4, 4]), (71, [33, 17, 9, 5, 3, 3])],
)
def test_sides_of_the_blocks(size, sides):
    layout = Layout(classes=2, middle_blocks=0)
    found = []
    for block in layout.blocks:
        size = block.output_side(size)
        found.append(size)
    assert found == sides
