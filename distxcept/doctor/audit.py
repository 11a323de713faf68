"""Audit of the traced update: has every operation a GPU kernel, and how many operations, copies and traces does it cost?

No GPU is needed and nothing is timed. Logical CPUs stand for the devices and one more for the host, so that TensorFlow
places every operation and every copy as it would with GPUs. Kernels are looked up in the registry of the installed wheel,
which knows those of GPUs also where there is none.

    a short run on the devices      → how often Python waits for them
    one update on the devices       → its graph, as placed and as optimised; the copies between its partitions
    one micro step on a device      → its graph
    Xception of Keras, one pass     → its graph, for comparison
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context as eager_context
from tensorflow.python.framework import kernels

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.doctor.waits import count_waits
from distxcept.engines import Engine
from distxcept.engines.devices import prepare_devices
from distxcept.engines.mirrored import MirroredEngine
from distxcept.engines.single import SingleEngine
from distxcept.model.xception import Xception
from distxcept.training.accumulate import Batch
from distxcept.training.objective import Objective
from distxcept.training.update import Update

HOST_OPERATIONS = {
    "Slice": "cuts a micro batch out of the update's images, which stay on the host",
    "AddV2": "numbers of virtual batches, beside the slice",
    "Timestamp": "reads the clock of the host, with several ranks only",
    "Identity": "hands a value on",
    "Pack": "bounds of a slice",
}
"""What an update may compute on the host, and why."""
STRUCTURE = {
    "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv", "NoOp", "Const", "Placeholder", "Enter", "Exit", "Merge",
    "Switch", "NextIteration", "LoopCond", "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If",
    "StatelessIf", "_DeviceArg", "_DeviceRetval",
}  # fmt: skip
"""Operations that compute nothing: TensorFlow has them for every device."""
UNCOUNTED = {"Const", "NoOp", "_Arg", "_Retval", "Identity", "Placeholder"}
IN_HOST_MEMORY = (tf.int32, tf.bool, tf.string, tf.resource)
"""Types that an operation on a GPU mostly keeps in host memory, so that to send them is no copy from or to the card."""

MICRO_BATCH = "Slice"
"""The operation that cuts a micro batch: what a device needs from the host in each micro step."""
MICRO_STEP_TIMES_KERAS = 1.10
MOST_APPLY_OPERATIONS = 500

Nodes = Sequence[node_def_pb2.NodeDef]


@dataclass(frozen=True)
class Graphs:
    """Of one traced function: as TensorFlow placed it, as it optimised it, and what each device got."""

    placed: Nodes
    optimised: Nodes
    partitions: Sequence[Nodes]


@dataclass(frozen=True)
class Audit:
    devices: int
    without_kernel: Mapping[str, int]
    """Operation with its types → how often; these have no kernel for a GPU."""
    on_host: Mapping[str, int]
    micro_step_operations: int
    keras_operations: int
    """Of one forward and backward pass; 0 where it was not counted."""
    apply_operations: int
    """Of one replica outside of its micro steps: reduce and apply."""
    copies_between_devices: int
    """In each micro step."""
    copies_to_device: Mapping[str, int]
    """In each micro step of a replica, by the operation that is copied."""
    copies_from_device: Mapping[str, int]
    traces: int
    """Of the micro step, for one form and all replicas."""
    waits: float
    """How often Python waits for a device in one update of a run."""
    reads_late: bool
    """The outcome of an update is read when the next one has been started."""
    most_apply_operations: int
    strange_on_host: Mapping[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        found = [f"{name} has no GPU kernel (used {times} ×)" for name, times in self.without_kernel.items()]
        found += [f"{name} runs on the host (used {n} ×)" for name, n in self.strange_on_host.items()]
        if self.copies_between_devices:
            found.append(f"{self.copies_between_devices} tensors cross between devices in every micro step")
        if set(self.copies_to_device) - {MICRO_BATCH}:
            found.append(f"copies from the host in a micro step: {_listed(self.copies_to_device)}")
        if self.copies_from_device:
            found.append(f"a micro step copies to the host: {_listed(self.copies_from_device)}")
        if (
            self.keras_operations
            and self.micro_step_operations > MICRO_STEP_TIMES_KERAS * self.keras_operations
        ):
            found.append(
                f"a micro step has {self.micro_step_operations} operations, more than {MICRO_STEP_TIMES_KERAS} × "
                f"{self.keras_operations} of Keras"
            )
        if self.apply_operations > self.most_apply_operations:
            found.append(
                f"apply has {self.apply_operations} operations, more than {self.most_apply_operations}"
            )
        if self.traces != 1:
            found.append(f"the micro step was traced {self.traces} times for {self.devices} devices")
        if self.waits > 1 or not self.reads_late:
            found.append(f"Python waits {self.waits:g} times in an update, or before the next one is started")
        return found

    def rows(self) -> list[dict[str, Any]]:
        """For reports: what was counted, the count, and the most that is allowed."""

        def row(what: str, count: float, most: int | None = None) -> dict[str, Any]:
            return {"what": what, "count": count, "most": most}

        keras = round(MICRO_STEP_TIMES_KERAS * self.keras_operations) or None
        return [
            row("operations without a GPU kernel", sum(self.without_kernel.values()), 0),
            row("operations of a micro step", self.micro_step_operations, keras),
            row("operations of Keras' Xception, forward and backward", self.keras_operations),
            row(
                "operations of reduce and apply, on each device",
                self.apply_operations,
                self.most_apply_operations,
            ),
            row("copies between devices in a micro step", self.copies_between_devices, 0),
            row("copies from the host in a micro step", sum(self.copies_to_device.values())),
            row("copies to the host in a micro step", sum(self.copies_from_device.values()), 0),
            row("traces of the micro step", self.traces, 1),
            row("waits of Python in an update", self.waits, 1),
        ]


def audit_update(
    number: int, overrides: Mapping[str, Any] | None = None, *, padded: bool = False, keras: bool = True
) -> Audit:
    """Eager. `number` of devices: the first audit of a process fixes how many there can be. `overrides` are sections of the
    config; with `padded` the update has samples of weight zero; with `keras` it is compared with Xception of Keras."""
    devices = [f"CPU:{place}" for place in range(1, number + 1)]
    if tf.config.get_logical_device_configuration(tf.config.list_physical_devices("CPU")[0]) is None:
        prepare_devices(["CPU:0", *devices], threads=None)
    config = Config.model_validate(_config(number, overrides or {}))
    engine: Engine = MirroredEngine(devices) if len(devices) > 1 else SingleEngine(devices[0])
    model = Xception.of(config.model, CLASSES, dropout=config.model.dropout)  # as for a GPU
    update = Update(config, engine, model, Objective(CLASSES, config.model.label_smoothing))
    waits = count_waits(engine)
    whole = _graphs_of(lambda: _run(update, config, padded=padded))[-1]
    micro_steps = [_micro_step_graphs(one, devices[0]) for one in update.accumulator.micro_step.traced]
    placed = [*whole.placed, *(node for graphs in micro_steps for node in graphs.placed)]
    on_host = Counter(node.op for node in placed if _on_host(node) and node.op not in STRUCTURE)
    inside = [node for node in whole.optimised if _on(node, devices[0]) and _in_loop(node)]
    outside = [node for node in whole.optimised if _on(node, devices[0]) and not _in_loop(node)]
    in_loop = [send for partition in whole.partitions for send in _sends(partition) if send.in_loop]
    in_loop += [send for graphs in micro_steps for part in graphs.partitions for send in _sends(part)]
    return Audit(
        devices=number,
        most_apply_operations=_most_apply_operations(config, update),
        without_kernel=Counter(
            _described(node) for node in placed if not _on_host(node) and not has_gpu_kernel(node)
        ),
        on_host=on_host,
        strange_on_host={op: n for op, n in on_host.items() if op not in HOST_OPERATIONS},
        micro_step_operations=max(_count(graphs.optimised) for graphs in micro_steps) + _count(inside),
        keras_operations=keras_operations(config.model.image_size) if keras else 0,
        apply_operations=_count(outside),
        copies_between_devices=sum(not (send.from_host or send.to_host) for send in in_loop),
        copies_to_device=Counter(s.what for s in in_loop if s.from_host and s.target.endswith(devices[0])),
        copies_from_device=Counter(s.what for s in in_loop if s.to_host and s.source.endswith(devices[0])),
        traces=len(update.accumulator.micro_step.traced),
        waits=waits.in_an_update,
        reads_late=waits.late,
    )


def _most_apply_operations(config: Config, update: Update) -> int:
    """LAMB needs two norms of each kernel, pruning sorts each, and an ordered sum adds lane by lane."""
    kernels = sum(len(pack.parameters) for pack in update.state.packs if pack.decays)
    more = 4 * (config.optimizer.name == "lamb") + 40 * (config.optimizer.pruning is not None)
    lanes = 2 * update.engine.replicas if config.engine.reduction == "ordered" else 0
    return MOST_APPLY_OPERATIONS + more * kernels + 4 * lanes * (len(update.state.packs) + 2)


CLASSES, SAMPLES_OF_VIRTUAL, VIRTUAL_PER_DEVICE = 5, 2, 3


def _config(devices: int, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Three micro steps a replica; Adam with a moving average, unless the overrides say otherwise."""
    base: dict[str, dict[str, Any]] = {
        "model": {"image_size": 71, "width": 0.125},
        "data": {"train": {"kind": "synthetic", "samples": 8, "classes": CLASSES}},
        "batch": {
            "global": devices * VIRTUAL_PER_DEVICE * SAMPLES_OF_VIRTUAL,
            "virtual": SAMPLES_OF_VIRTUAL,
            "micro": SAMPLES_OF_VIRTUAL,
        },
        "optimizer": {"name": "adam", "ema": 0.99},
    }
    for section, values in overrides.items():
        base[section] = {**base.get(section, {}), **values} if isinstance(values, Mapping) else values
    return base


def _run(update: Update, config: Config, *, padded: bool) -> None:
    batch, replicas = config.batch, update.engine.replicas
    assert isinstance(batch.micro, int)
    plan = plan_batches(
        samples=batch.global_,
        global_batch=batch.global_,
        virtual_batch=batch.virtual,
        micro_batch=batch.micro,
        replicas=replicas,
        lanes=2 * replicas if config.engine.reduction == "ordered" else None,
    )
    size, virtual = config.model.image_size, plan.virtual_per_update
    blocks = plan.blocks(virtual)
    batches = []
    for number, block in enumerate(blocks):
        shape = (len(block), batch.virtual)
        mask = np.ones(shape, np.float32)
        if padded:
            mask[-1, -1] = 0.0
        bounds = tf.constant(plan.local_lane_bounds(virtual, number), tf.int32)
        with tf.device("CPU:0"):
            batches.append(
                Batch(
                    tf.zeros([*shape, size, size, 3], tf.uint8),
                    tf.zeros(shape, tf.int32),
                    tf.constant(mask),
                    tf.constant(block.start, tf.int32),
                    bounds,
                )
            )
    with tf.device("CPU:0"):
        update(batches, plan, key=1, rate=0.01, padded=padded, remat=config.memory.remat == "on")


def _micro_step_graphs(traced: Any, device: str) -> Graphs:
    """Of the micro step alone, on one device."""
    with tf.device(device):
        arguments = [tf.zeros(spec.shape, spec.dtype) for spec in traced.specs]

        def run() -> None:
            traced.inlined(*arguments)

        return max(_graphs_of(run), key=lambda graphs: len(graphs.placed))


@cache
def keras_operations(size: int) -> int:
    """Forward and backward pass of keras.applications.Xception in a plain tf.function, of one batch, whatever its size."""
    import keras

    with tf.device("CPU:0"):
        model = keras.applications.Xception(weights=None, classes=CLASSES, input_shape=(size, size, 3))
        loss_of = keras.losses.SparseCategoricalCrossentropy()

        @tf.function(autograph=False, jit_compile=False)
        def step(images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(images, training=True))
            return [loss, *tape.gradient(loss, model.trainable_variables)]

        images, labels = tf.zeros([2, size, size, 3]), tf.zeros([2], tf.int32)
        graphs = _graphs_of(lambda: step(images, labels))
    return max(_count(one.optimised) for one in graphs)


def _graphs_of(run: Any) -> list[Graphs]:
    """The graphs of all functions that this starts, in the order in which TensorFlow made them."""
    context = eager_context.context()
    context.enable_run_metadata()
    try:
        run()
        found = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    return [
        Graphs(
            one.pre_optimization_graph.node,
            one.post_optimization_graph.node,
            [partition.node for partition in one.partition_graphs],
        )
        for one in found
    ]


def _count(nodes: Nodes) -> int:
    return sum(node.op not in UNCOUNTED for node in nodes)


def _on_host(node: node_def_pb2.NodeDef) -> bool:
    return node.device.endswith("CPU:0")


def _on(node: node_def_pb2.NodeDef, device: str) -> bool:
    return node.device.endswith(device)


def _in_loop(node: node_def_pb2.NodeDef) -> bool:
    return "while/body/" in node.name


def _described(node: node_def_pb2.NodeDef) -> str:
    types = sorted({tf.as_dtype(a.type).name for a in node.attr.values() if a.WhichOneof("value") == "type"})
    return f"{node.op} ({', '.join(types)})"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({times} ×)" for name, times in counts.items())


def has_gpu_kernel(node: node_def_pb2.NodeDef) -> bool:
    """Whether the wheel has a kernel for GPUs with the types of this node."""
    if node.op in STRUCTURE:
        return True
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and all(_allows(constraint, node) for constraint in kernel.constraint)
        for kernel in kernels.get_registered_kernels_for_op(node.op).kernel
    )


def _allows(constraint: Any, node: node_def_pb2.NodeDef) -> bool:
    return node.attr[constraint.name].type in constraint.allowed_values.list.type


@dataclass(frozen=True)
class Send:
    what: str
    source: str
    target: str
    in_loop: bool

    @property
    def from_host(self) -> bool:
        return self.source.endswith("CPU:0")

    @property
    def to_host(self) -> bool:
        return self.target.endswith("CPU:0")


def _sends(partition: Nodes) -> Iterator[Send]:
    """Tensors that leave a device. What only tells another device to start, or lies in host memory, is no copy."""
    by_name = {node.name: node for node in partition}
    for node in partition:
        if node.op != "_Send":
            continue
        sent = by_name.get(node.input[0].partition(":")[0].lstrip("^"))
        signal = sent is not None and sent.op == "Const"
        if signal or tf.as_dtype(node.attr["T"].type) in IN_HOST_MEMORY:
            continue
        source, target = (node.attr[name].s.decode() for name in ("send_device", "recv_device"))
        what = sent.op if sent is not None else node.name
        yield Send(what, source, target, sent is not None and _in_loop(sent))
