"""Xception as a description: blocks, layers and parameters with their shapes. No TensorFlow.

Layer and parameter names are those of Keras Applications, except that the four residual convolutions, which Keras
numbers, carry their block's name here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Self

from distxcept.config.schema import ModelSection

MIN_IMAGE_SIZE = 71
HEAD = "predictions"


@dataclass(frozen=True)
class Parameter:
    """One tensor of the model."""

    name: str
    shape: tuple[int, ...]
    kind: str
    """kernel, depthwise, gamma, beta, bias, moving_mean, moving_variance; of other models also: other."""
    frozen: bool = False
    """Kept as it is, whatever `model.freeze` says."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def decays(self) -> bool:
        """Weight decay spares batch-norm parameters and biases."""
        return self.kind in ("kernel", "depthwise")

    @property
    def moving(self) -> bool:
        """A moving statistic: changed by its own rule, never by a gradient."""
        return self.kind.startswith("moving")


@dataclass(frozen=True)
class Convolution:
    """A convolution, plain or separable, with the batch norm behind it and the ReLUs around the pair."""

    name: str
    inputs: int
    outputs: int
    size: int = 3
    stride: int = 1
    separable: bool = True
    padding: str = "SAME"
    relu_before: bool = False
    relu_after: bool = False

    @property
    def norm(self) -> str:
        return f"{self.name}_bn"

    def output_side(self, side: int) -> int:
        """Pixels of a side of the output, of an input with `side` pixels."""
        return (side - self.size) // self.stride + 1 if self.padding == "VALID" else -(-side // self.stride)

    def parameters(self) -> list[Parameter]:
        def of_norm(kind: str) -> Parameter:
            return Parameter(f"{self.norm}/{kind}", (self.outputs,), kind)

        if self.separable:
            depthwise = (self.size, self.size, self.inputs, 1)
            kernels = [
                Parameter(f"{self.name}/depthwise_kernel", depthwise, "depthwise"),
                Parameter(f"{self.name}/pointwise_kernel", (1, 1, self.inputs, self.outputs), "kernel"),
            ]
        else:
            shape = (self.size, self.size, self.inputs, self.outputs)
            kernels = [Parameter(f"{self.name}/kernel", shape, "kernel")]
        return [*kernels, *(of_norm(kind) for kind in ("gamma", "beta", "moving_mean", "moving_variance"))]


@dataclass(frozen=True)
class Block:
    """Convolutions in a row, then pooling, then the sum with what came in (through a convolution where shapes differ)."""

    name: str
    convolutions: tuple[Convolution, ...]
    pool: bool = False
    shortcut: Convolution | None = None
    add_input: bool = False

    def output_side(self, side: int) -> int:
        """Pixels of a side of the output, of an input with `side` pixels."""
        for convolution in self.convolutions:
            side = convolution.output_side(side)
        return -(-side // 2) if self.pool else side

    def parameters(self) -> list[Parameter]:
        layers = [*([self.shortcut] if self.shortcut else []), *self.convolutions]
        return [parameter for layer in layers for parameter in layer.parameters()]


class Layout:
    """The paper's network: 36 convolution layers in 14 blocks, `width` scaling every channel count."""

    # Of a model that was given from Python there is more to say: keras_function.py.
    momenta: Mapping[str, float] = {}
    identity: Mapping[str, Any] = {}
    files: Mapping[str, str] = {}

    def __init__(self, *, classes: int, width: float = 1.0, middle_blocks: int = 8):
        self.classes = classes
        self.width = width
        shallow = "" if middle_blocks == 8 else f", {middle_blocks} middle block{'s' * (middle_blocks != 1)}"
        self.title = f"Xception width {width:g}{shallow}"
        self.blocks = _blocks(width, middle_blocks)
        self.features = self.blocks[-1].convolutions[-1].outputs

    @classmethod
    def of(cls, model: ModelSection, classes: int, **more: Any) -> Self:
        """As the config has it."""
        return cls(classes=classes, width=model.width, middle_blocks=model.middle_blocks, **more)

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Every tensor of the model in forward order, moving statistics among them."""
        head = [
            Parameter(f"{HEAD}/kernel", (self.features, self.classes), "kernel"),
            Parameter(f"{HEAD}/bias", (self.classes,), "bias"),
        ]
        return [parameter for block in self.blocks for parameter in block.parameters()] + head

    def convolutions(self, image_size: int) -> Iterator[tuple[Convolution, int]]:
        """Each with the pixels of a side of its input; a shortcut after the others of its block."""
        side = image_size
        for block in self.blocks:
            inner = side
            for convolution in block.convolutions:
                yield convolution, inner
                inner = convolution.output_side(inner)
            if block.shortcut:
                yield block.shortcut, side
            side = block.output_side(side)

    def block_of(self, parameter_name: str) -> str:
        """The block that owns a parameter; the classifier is its own."""
        return parameter_name.split("/")[0].split("_")[0]


def _blocks(width: float, middle_blocks: int) -> list[Block]:
    def channels(paper: int) -> int:
        return paper if width == 1.0 else max(8, round(paper * width / 8) * 8)

    def separable(
        name: str, inputs: int, outputs: int, relu_before: bool = False, relu_after: bool = False
    ) -> Convolution:
        return Convolution(name, inputs, outputs, relu_before=relu_before, relu_after=relu_after)

    def shrinking(name: str, inputs: int, middle: int, outputs: int, first_relu: bool) -> Block:
        return Block(
            name,
            (
                separable(f"{name}_sepconv1", inputs, middle, relu_before=first_relu),
                separable(f"{name}_sepconv2", middle, outputs, relu_before=True),
            ),
            pool=True,
            shortcut=Convolution(f"{name}_residual", inputs, outputs, size=1, stride=2, separable=False),
        )

    c32, c64, c128, c256, c728, c1024, c1536, c2048 = map(channels, (32, 64, 128, 256, 728, 1024, 1536, 2048))

    def plain(name: str, inputs: int, outputs: int, stride: int) -> Convolution:
        return Convolution(
            name, inputs, outputs, stride=stride, separable=False, padding="VALID", relu_after=True
        )

    stem = Block("block1", (plain("block1_conv1", 3, c32, 2), plain("block1_conv2", c32, c64, 1)))
    blocks = [
        stem,
        shrinking("block2", c64, c128, c128, first_relu=False),
        shrinking("block3", c128, c256, c256, first_relu=True),
        shrinking("block4", c256, c728, c728, first_relu=True),
    ]
    for number in range(5, 5 + middle_blocks):
        names = [f"block{number}_sepconv{k}" for k in (1, 2, 3)]
        row = tuple(separable(name, c728, c728, relu_before=True) for name in names)
        blocks.append(Block(f"block{number}", row, add_input=True))
    blocks.append(shrinking("block13", c728, c728, c1024, first_relu=True))
    last = (
        separable("block14_sepconv1", c1024, c1536, relu_after=True),
        separable("block14_sepconv2", c1536, c2048, relu_after=True),
    )
    blocks.append(Block("block14", last))
    return blocks
