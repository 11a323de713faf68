"""Layers as rows of operations on values: what each writes, reads and keeps, forward and backward.

A layer writes down its forward operations and returns its output together with a function that writes down the
backward operations for the gradient of that output. What the function reads is what the backward pass keeps alive.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from distxcept.memory.liveness import Kind, Operation, Value
from distxcept.memory.workspace import Product, Workspace
from distxcept.model.layout import Parameter

Back = Callable[[Value], Value | None]
"""From the gradient of a layer's output to that of its input; None where nothing below is trained."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What decides the bytes of a micro step, besides the layout."""

    samples: int
    image_size: int
    compute_bytes: int
    """Of one number in the forward pass."""
    variable_bytes: int
    """Of one number in weights, gradients and sums."""
    workspace: Workspace
    virtual_batches: int = 1
    """Of the micro batch; each has its own batch norm."""
    remat: bool = False
    masked: bool = False
    """Some sample has weight zero, or the fused kernel cannot be used: batch norm runs in single operations."""
    frozen_blocks: Collection[str] = ()


class Layers:
    def __init__(self, given: Conditions):
        self.given = given
        self.operations: list[Operation] = []
        self.results: list[Value] = []

    def activation(self, side: int, channels: int) -> Value:
        given = self.given
        return Value(given.samples * side * side * channels * given.compute_bytes, "activations")

    def run(
        self, reads: Sequence[Value], writes: Sequence[Value], *, in_place: bool = False, workspace: int = 0
    ) -> None:
        self.operations.append(Operation(tuple(reads), tuple(writes), in_place, workspace))

    def elementwise(self, first: Value, *others: Value, kind: Kind | None = None) -> Value:
        """An operation whose result may take the place of the first input."""
        result = Value(first.size_bytes, kind or first.kind)
        self.run([first, *others], [result], in_place=True)
        return result

    def multiply(
        self, kernel: Parameter, x: Value, y: Value, *, side: int, below: bool, stride: int = 1
    ) -> tuple[Value, Back]:
        """A convolution or matrix product of x into y; `below` says whether x needs a gradient."""
        given = self.given
        cast: list[Value] = []
        if given.compute_bytes != given.variable_bytes:
            # A copy in the number format of the forward pass, which the backward pass reads again.
            cast = [Value(kernel.elements * given.compute_bytes, "weights")]
            self.run([], cast)
        product = Product(kernel, stride, given.samples, side, given.compute_bytes)
        self.run([x, *cast], [y], workspace=given.workspace.forward(product))

        def back(dy: Value) -> Value | None:
            gradient = Value(kernel.elements * given.compute_bytes, "gradients")
            dx = [Value(x.size_bytes, "workspace")] if below else []
            room = given.workspace.backward(product, input_gradient=below)
            self.run([dy, x, *cast], [gradient, *dx], workspace=room)
            self._collect(kernel, gradient)
            return dx[0] if below else None

        return y, back

    def _collect(self, parameter: Parameter, gradient: Value) -> None:
        if self.given.compute_bytes != self.given.variable_bytes:
            cast = Value(parameter.elements * self.given.variable_bytes, "gradients")
            self.run([gradient], [cast])
            gradient = cast
        self.results.append(gradient)

    def relu(self, x: Value) -> tuple[Value, Back]:
        y = self.elementwise(x)
        return y, lambda dy: self.elementwise(dy, y)

    def pool(self, x: Value, y: Value) -> tuple[Value, Back]:
        workspace = self.given.workspace
        self.run([x], [y])

        def back(dy: Value) -> Value:
            dx = Value(x.size_bytes, "workspace")
            room = y.size_bytes // self.given.compute_bytes * workspace.pool_bytes
            self.run([x, dy, y], [dx], in_place=workspace.pool_in_place, workspace=room)
            return dx

        return y, back

    def norm_by_moving(self, x: Value) -> Value:
        """Batch norm of a frozen block: a multiplication and an addition."""
        return self.elementwise(self.elementwise(x))

    def norm(self, x: Value) -> tuple[Value, Back]:
        if self.given.masked:
            return self._masked_norm(x)
        y = self._by_virtual_batch([x], x)

        def back(dy: Value) -> Value:
            return self._by_virtual_batch([dy, x], Value(x.size_bytes, "workspace"))

        return y, back

    def _by_virtual_batch(self, reads: list[Value], like: Value) -> Value:
        """A result like `like`: computed for each virtual batch on its own, then copied beside each other."""
        for _ in range(2 if self.given.virtual_batches > 1 else 1):
            result = Value(like.size_bytes, like.kind)
            self.run(reads, [result])
            reads = [result]
        return result

    def _masked_norm(self, x: Value) -> tuple[Value, Back]:
        """In the format of the weights: mean, then centred values, then variance, each a pass over everything."""
        given = self.given

        def whole(kind: Kind) -> Value:
            return Value(x.size_bytes // given.compute_bytes * given.variable_bytes, kind)

        def to(value: Value, like: Value) -> Value:
            if like.size_bytes == value.size_bytes:
                return value
            cast = Value(like.size_bytes, value.kind)
            self.run([value], [cast])
            return cast

        wide = to(x, whole("activations"))
        self.run([wide], [whole("workspace")])
        centred = self.elementwise(wide)
        self.run([centred], [whole("workspace")])
        scaled = whole("activations")
        self.run([centred], [scaled])
        y = to(scaled, x)

        def back(dy: Value) -> Value:
            dy = to(dy, whole("workspace"))
            self.run([dy, centred], [whole("workspace")])
            direct = self.elementwise(dy)
            spread, doubled = whole("workspace"), whole("workspace")
            self.run([], [spread])
            self.run([centred], [doubled])
            through_variance = self.elementwise(spread, doubled)
            total = self.elementwise(direct, through_variance)
            through_mean = whole("workspace")
            self.run([total], [through_mean])
            return to(self.elementwise(total, through_mean), Value(x.size_bytes, "workspace"))

        return y, back


def chain(backs: Sequence[Back]) -> Back:
    """Backward through layers that ran in this order."""

    def back(dy: Value) -> Value | None:
        gradient: Value | None = dy
        for one in reversed(backs):
            gradient = one(gradient) if gradient is not None else None
        return gradient

    return back
