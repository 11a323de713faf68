"""ONNX, written node by node from the layout: no converter stands between the model and the file.

It takes pixels [n, size, size, 3] from 0 to 255, as the other formats do, and gives probabilities; inside, ONNX wants the
channels first. Batch norm is folded into one multiplication and one addition, as in our own inference.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.sources.base import Pixels
from distxcept.errors import ConfigError
from distxcept.model.batchnorm import EPSILON
from distxcept.model.layout import HEAD, Block, Convolution, Layout

OPSET = 17
INSTALL = "pip install 'distxcept[onnx]'"


def write_onnx(
    layout: Layout,
    image_size: int,
    weights: Mapping[str, np.ndarray],
    path: Path,
    metadata: Mapping[str, str],
) -> None:
    try:
        import onnx
    except ImportError as error:
        raise ConfigError(f"the onnx format needs the package onnx; install it: {INSTALL}") from error
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = _Graph(onnx, weights)
    output = graph.network(layout)
    shapes = {"images": ["n", image_size, image_size, 3], output: ["n", layout.classes]}
    images, answers = (
        helper.make_tensor_value_info(name, kinds.FLOAT, shape) for name, shape in shapes.items()
    )
    model = helper.make_model(
        helper.make_graph(graph.nodes, "xception", [images], [answers], graph.initializers),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="distxcept",
        ir_version=8,
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


class _Graph:
    """Nodes in the order in which they run. Each method adds some and returns the name of their output."""

    def __init__(self, onnx: Any, weights: Mapping[str, np.ndarray]):
        self._onnx, self._weights = onnx, weights
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def network(self, layout: Layout) -> str:
        x = self._node("Transpose", ["images"], "channels_first", perm=[0, 3, 1, 2])
        x = self._node("Div", [x, self._constant("half_range", np.array(127.5))], "normalize_scale")
        x = self._node("Sub", [x, self._constant("one", np.array(1.0))], "normalize")
        for block in layout.blocks:
            x = self._block(block, x)
        x = self._node("GlobalAveragePool", [x], "avg_pool")
        x = self._node("Flatten", [x], "features", axis=1)
        kernel, bias = (
            self._constant(f"{HEAD}/{k}", self._weights[f"{HEAD}/{k}"]) for k in ("kernel", "bias")
        )
        x = self._node("Gemm", [x, kernel, bias], f"{HEAD}_logits")
        return self._node("Softmax", [x], "probabilities", axis=1)

    def _block(self, block: Block, x: str) -> str:
        y = x
        for convolution in block.convolutions:
            y = self._convolution(convolution, y)
        if block.pool:
            y = self._node(
                "MaxPool",
                [y],
                f"{block.name}_pool",
                kernel_shape=[3, 3],
                strides=[2, 2],
                auto_pad="SAME_UPPER",
            )
        if block.shortcut:
            return self._node("Add", [y, self._convolution(block.shortcut, x)], f"{block.name}_add")
        return self._node("Add", [y, x], f"{block.name}_add") if block.add_input else y

    def _convolution(self, layer: Convolution, x: str) -> str:
        if layer.relu_before:
            x = self._node("Relu", [x], f"{layer.name}_relu")
        padding = "VALID" if layer.padding == "VALID" else "SAME_UPPER"
        strides = [layer.stride] * 2
        if layer.separable:
            # [rows, columns, inputs, 1] → [inputs, 1, rows, columns]
            depthwise = self._weights[f"{layer.name}/depthwise_kernel"].transpose(2, 3, 0, 1)
            kernel = self._constant(f"{layer.name}/depthwise_kernel", depthwise)
            x = self._node(
                "Conv", [x, kernel], f"{layer.name}_depthwise", group=layer.inputs, auto_pad=padding
            )
        name = f"{layer.name}/{'pointwise_kernel' if layer.separable else 'kernel'}"
        # [rows, columns, inputs, outputs] → [outputs, inputs, rows, columns]
        kernel = self._constant(name, self._weights[name].transpose(3, 2, 0, 1))
        x = self._node("Conv", [x, kernel], layer.name, strides=strides, auto_pad=padding)
        x = self._norm(layer.norm, x)
        return self._node("Relu", [x], f"{layer.name}_relu_after") if layer.relu_after else x

    def _norm(self, name: str, x: str) -> str:
        kinds = ("gamma", "beta", "moving_mean", "moving_variance")
        gamma, beta, mean, variance = (self._weights[f"{name}/{kind}"].astype(np.float64) for kind in kinds)
        scale = gamma / np.sqrt(variance + EPSILON)
        shift = beta - mean * scale
        by_channel = [1, len(gamma), 1, 1]
        x = self._node(
            "Mul", [x, self._constant(f"{name}/scale", scale.reshape(by_channel))], f"{name}_scaled"
        )
        return self._node("Add", [x, self._constant(f"{name}/shift", shift.reshape(by_channel))], name)

    def _constant(self, name: str, value: np.ndarray) -> str:
        tensor = np.ascontiguousarray(value.astype(np.float32))
        self.initializers.append(self._onnx.numpy_helper.from_array(tensor, name))
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output


class OnnxModel:
    """A file on the disk, run by ONNX Runtime."""

    def __init__(self, path: Path):
        try:
            import onnxruntime
        except ImportError as error:
            raise ConfigError(
                f"the check of an onnx file needs onnxruntime; install it: {INSTALL}"
            ) from error
        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def probabilities(self, images: Pixels) -> NDArray[np.float32]:
        (answers,) = self._session.run(None, {"images": images.astype(np.float32)})
        return answers
