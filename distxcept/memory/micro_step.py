"""One micro step, walked from the layout: the order of its operations, forward and backward, and what it holds at most."""

from distxcept.memory.layers import Back, Conditions, Layers, chain
from distxcept.memory.liveness import Bytes, Value, peak
from distxcept.model.layout import HEAD, Block, Convolution, Layout


def micro_step_peak(layout: Layout, given: Conditions) -> Bytes:
    """Bytes by kind when one micro step holds most, besides the weights, sums and batch that it is given."""
    layers = Layers(given)
    side, trained_below = given.image_size, False
    x = layers.activation(side, 3)
    layers.run([], [x])
    backs: list[Back] = []
    for block in layout.blocks:
        frozen = block.name in given.frozen_blocks
        x, back = _again_or_once(layers, block, x, side, trained_below, frozen)
        if not frozen:
            backs.append(back)
            trained_below = True
        side = block.output_side(side)
    _head(layers, layout, x, backs)
    return peak(layers.operations, layers.results)


def _head(layers: Layers, layout: Layout, x: Value, backs: list[Back]) -> None:
    """Mean over the pixels, classifier and loss; then the way back down."""
    pooled = layers.activation(1, layout.features)
    layers.run([x], [pooled])
    kernel = next(p for p in layout.parameters if p.name == f"{HEAD}/kernel")
    logits, back = layers.multiply(
        kernel, pooled, layers.activation(1, layout.classes), side=1, below=bool(backs)
    )
    gradient = back(layers.elementwise(logits, kind="workspace"))
    if gradient is not None:
        spread = Value(x.size_bytes, "workspace")
        layers.run([gradient], [spread])
        chain(backs)(spread)


def _again_or_once(
    layers: Layers, block: Block, x: Value, side: int, trained_below: bool, frozen: bool
) -> tuple[Value, Back]:
    """Rematerialised, a block keeps only its input and runs again when the gradient of its output has come."""
    y, back = _block(layers, block, x, side, trained_below, frozen)
    if layers.given.remat:
        return y, lambda dy: _block(layers, block, x, side, trained_below, frozen)[1](dy)
    return y, back


def _block(
    layers: Layers, block: Block, x: Value, side: int, trained_below: bool, frozen: bool
) -> tuple[Value, Back]:
    y, inner_side = x, side
    backs: list[Back] = []
    for number, convolution in enumerate(block.convolutions):
        y, back = _convolution(layers, convolution, y, inner_side, trained_below or number > 0, frozen)
        backs.append(back)
        inner_side = convolution.output_side(inner_side)
    if block.pool:
        y, back = layers.pool(y, layers.activation(-(-inner_side // 2), block.convolutions[-1].outputs))
        backs.append(back)
    shortcut: Back | None = None
    if block.shortcut:
        added, shortcut = _convolution(layers, block.shortcut, x, side, trained_below, frozen)
        y = layers.elementwise(y, added)
    elif block.add_input:
        y = layers.elementwise(y, x)

    def back_through(dy: Value) -> Value | None:
        beside = dy if block.add_input else shortcut(dy) if shortcut else None
        gradient = chain(backs)(dy)
        return layers.elementwise(gradient, beside) if gradient and beside else gradient

    return y, back_through


def _convolution(
    layers: Layers, layer: Convolution, x: Value, side: int, below: bool, frozen: bool
) -> tuple[Value, Back]:
    """ReLU, kernels, batch norm, ReLU. `below` says whether the input needs a gradient."""
    backs: list[Back] = []
    if layer.relu_before:
        x, back = layers.relu(x)
        backs.append(back)
    side = layer.output_side(side)
    for kernel in (p for p in layer.parameters() if p.kind in ("depthwise", "kernel")):
        channels = layer.inputs if kernel.kind == "depthwise" else layer.outputs
        x, back = layers.multiply(
            kernel, x, layers.activation(side, channels), side=side, below=below, stride=layer.stride
        )
        backs.append(back)
        below = True
    if frozen:
        x = layers.norm_by_moving(x)
    else:
        x, back = layers.norm(x)
        backs.append(back)
    if layer.relu_after:
        x, back = layers.relu(x)
        backs.append(back)
    return x, chain(backs)
