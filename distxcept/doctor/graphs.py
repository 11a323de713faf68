"""Graphs of traced functions, read as if their devices were GPUs.

CPU:0 is the host, every other CPU stands for a GPU. Kernels are looked up in the registry of the installed wheel, which
knows those of GPUs also where there is none, and which of their tensors lie in host memory. From that follows what would
be copied: TensorFlow copies a tensor wherever one operation leaves it in another memory than the next one reads it from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context as eager_context
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph

HOST = "CPU:0"
STRUCTURE = {
    "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv", "NoOp", "Const", "Placeholder", "Enter", "Exit", "Merge",
    "Switch", "NextIteration", "LoopCond", "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If",
    "StatelessIf", "_DeviceArg", "_DeviceRetval",
}  # fmt: skip
"""Operations that compute nothing: TensorFlow has them for every device."""
CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
UNCOUNTED = {"Const", "NoOp", "_Arg", "_Retval", "Identity", "Placeholder"}
OF_HOROVOD = {"HorovodAllreduce", "HorovodAllgather"}
"""Horovod has kernels of these for GPUs, but only a build for GPUs registers them."""
HANDLES = (tf.resource, tf.variant, tf.string)
"""Types that refer to something and are never copied to a GPU."""
XLA_GPU = "XLA_GPU_JIT"

Nodes = Sequence[node_def_pb2.NodeDef]


@dataclass(frozen=True)
class Graphs:
    """Of one traced function."""

    traced: Nodes
    """Loops are one node each; a node has only the device that the code asked for."""
    optimised: Nodes
    """What runs: every node has its device, and the bodies of loops stand among the others."""


def graphs_of(run: Callable[[], object]) -> list[Graphs]:
    """Eager. The graphs of all functions that this starts for the first time, in the order in which TensorFlow made them."""
    context = eager_context.context()
    context.enable_run_metadata()
    try:
        run()
        found = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    return [Graphs(one.pre_optimization_graph.node, one.post_optimization_graph.node) for one in found]


@contextmanager
def noting_bytes(of: Iterable[str]) -> Iterator[dict[str, int]]:
    """The input bytes of operations of these kinds, by their name, as they are traced."""
    kinds, sizes = set(of), dict[str, int]()
    create = FuncGraph._create_op_internal

    def creating(graph: FuncGraph, op_type: str, inputs: Any, *arguments: Any, **options: Any) -> Any:
        operation = create(graph, op_type, inputs, *arguments, **options)
        if op_type in kinds:
            tensor = operation.inputs[0]
            sizes[operation.name] = tensor.shape.num_elements() * tensor.dtype.size
        return operation

    with mock.patch.object(FuncGraph, "_create_op_internal", creating):
        yield sizes


def count(nodes: Iterable[node_def_pb2.NodeDef]) -> int:
    return sum(node.op not in UNCOUNTED for node in nodes)


def on_host(node: node_def_pb2.NodeDef) -> bool:
    return node.device.endswith(HOST)


def described(node: node_def_pb2.NodeDef) -> str:
    types = sorted({tf.as_dtype(a.type).name for a in node.attr.values() if a.WhichOneof("value") == "type"})
    return f"{node.op} ({', '.join(types)})"


def has_gpu_kernel(node: node_def_pb2.NodeDef) -> bool:
    """Whether the wheel has a kernel for GPUs with the types of this node."""
    return node.op in STRUCTURE or node.op in OF_HOROVOD or _kernel(node, "GPU", "DEFAULT") is not None


def xla_compiles(node: node_def_pb2.NodeDef) -> bool:
    """Whether XLA can compile this node for GPUs."""
    return node.op in STRUCTURE or _kernel(node, XLA_GPU) is not None


def _kernel(node: node_def_pb2.NodeDef, *devices: str) -> Any | None:
    """The kernel that TensorFlow takes for the types of this node on the first of these devices that has one."""
    registered = kernels.get_registered_kernels_for_op(node.op).kernel
    for device in devices:
        fitting = [
            kernel
            for kernel in registered
            if kernel.device_type == device
            and not kernel.label
            and all(_allows(constraint, node) for constraint in kernel.constraint)
        ]
        if fitting:
            return max(fitting, key=lambda kernel: kernel.priority)
    return None


def _allows(constraint: Any, node: node_def_pb2.NodeDef) -> bool:
    value = node.attr[constraint.name]
    types = value.list.type if value.WhichOneof("value") == "list" else [value.type]
    return all(kind in constraint.allowed_values.list.type for kind in types)


@dataclass(frozen=True)
class Copy:
    """A tensor that goes from the host to a device, back, or between devices."""

    what: str
    """The operation that computed it."""
    node: str
    """Name of that operation."""
    reader: str
    """Name of the operation that reads it."""
    source: str
    target: str
    """Both are HOST or a device."""

    @property
    def from_host(self) -> bool:
        return self.source == HOST

    @property
    def to_host(self) -> bool:
        return self.target == HOST


class Graph:
    """A graph whose nodes can be asked where they belong."""

    def __init__(self, nodes: Nodes):
        self.nodes = nodes
        self.by_name = {node.name: node for node in nodes}

    @cached_property
    def _loops(self) -> Mapping[str, int]:
        """By the name of a node, in how many loops its result lies."""
        waiting = dict.fromkeys(self.by_name, 0)
        readers: dict[str, list[str]] = {name: [] for name in self.by_name}
        for node in self.nodes:
            for source in map(name_of, node.input):
                if self.by_name[source].op != "NextIteration":
                    waiting[node.name] += 1
                    readers[source].append(node.name)
        depth = dict.fromkeys(self.by_name, 0)
        ready = [name for name, inputs in waiting.items() if not inputs]
        while ready:
            name = ready.pop()
            depth[name] += {"Enter": 1, "Exit": -1}.get(self.by_name[name].op, 0)
            for reader in readers[name]:
                depth[reader] = max(depth[reader], depth[name])
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
        return depth

    def in_loop(self, name: str) -> bool:
        return self._loops[name] > 0

    def ancestors(self, name: str, *, stop_at: set[str]) -> set[str]:
        """Names of all nodes that this one needs, without those of the kinds `stop_at` and what only they need."""
        found: set[str] = set()
        waiting = list(map(name_of, self.by_name[name].input))
        while waiting:
            source = waiting.pop()
            if source not in found and self.by_name[source].op not in stop_at:
                found.add(source)
                waiting += map(name_of, self.by_name[source].input)
        return found

    def copies(self) -> Iterator[Copy]:
        """A tensor that several operations of one device read is copied there once."""
        places = {node.name: (_places(node, "input_arg"), _places(node, "output_arg")) for node in self.nodes}
        seen = set()
        for node in self.nodes:
            data = [source for source in node.input if not source.startswith("^")]
            for target, source in zip(places[node.name][0], data, strict=False):
                name, _, number = source.partition(":")
                sources = places[name][1]
                if int(number or 0) >= len(sources):
                    continue
                place = sources[int(number or 0)]
                # Several devices read it, or one does so in several memories: a copy for each.
                if place is None or target is None or place == target or (source, target) in seen:
                    continue
                seen.add((source, target))
                yield Copy(self.by_name[name].op, name, node.name, place, target)


def name_of(source: str) -> str:
    """The node that an input comes from."""
    return source.lstrip("^").partition(":")[0]


def _places(node: node_def_pb2.NodeDef, side: str) -> list[str | None]:
    """Where the inputs or outputs of a node lie: HOST or its device. None for handles."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        return []
    kernel = None if node.op in CALLS else _kernel(node, "GPU", "DEFAULT")
    device = node.device.rpartition("device:")[2] or HOST
    places: list[str | None] = []
    for argument in getattr(definition, side):
        for kind in _types(argument, node):
            if kind in HANDLES:
                places.append(None)
            elif on_host(node):
                places.append(HOST)
            elif kernel is not None:
                places.append(HOST if argument.name in kernel.host_memory_arg else device)
            else:  # as TensorFlow does for functions
                places.append(HOST if kind == tf.int32 else device)
    return places


def _types(argument: Any, node: node_def_pb2.NodeDef) -> list[tf.DType]:
    if argument.type_list_attr:
        return [tf.as_dtype(kind) for kind in node.attr[argument.type_list_attr].list.type]
    kind = tf.as_dtype(argument.type or node.attr[argument.type_attr].type)
    return [kind] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
