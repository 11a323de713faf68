"""Audit of the traced update: has every operation a GPU kernel, and how many operations, copies and traces does it cost?

No GPU is needed and nothing is timed. Logical CPUs stand for the devices and one more for the host; graphs.py reads the
graphs as if the devices were GPUs.

    a short run on the devices      → how often Python waits for them
    one update on the devices       → its graph: kernels, operations and copies of reduce and apply
    one update with early packs     → its graph: which gradients each reduction waits for
    one micro step on a device      → its graph: kernels, operations and copies
    Xception of Keras, one pass     → its graph, for comparison
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.data.batch import Batch
from distxcept.doctor.graphs import (
    OF_HOROVOD,
    STRUCTURE,
    Copy,
    Graph,
    Graphs,
    count,
    described,
    graphs_of,
    has_gpu_kernel,
    noting_bytes,
    on_host,
    xla_compiles,
)
from distxcept.doctor.waits import count_waits
from distxcept.engines import Engine
from distxcept.engines.devices import prepare_devices
from distxcept.engines.mirrored import MirroredEngine
from distxcept.engines.single import SingleEngine
from distxcept.model.xception import Xception
from distxcept.training.objective import Objective
from distxcept.training.update import Update

HOST_OPERATIONS = {
    "Slice": "cuts a micro batch out of the update's images, which stay on the host",
    "AddV2": "numbers of virtual batches, beside the slice",
    "Timestamp": "reads the clock of the host, with several ranks only",
    "Identity": "hands a value on",
    "Pack": "bounds of a slice",
    **dict.fromkeys(
        ("Mul", "Floor", "Cast", "Greater"), "how many weights of a kernel are pruned, and whether any"
    ),
}
"""What an update may compute on the host, and why."""
MICRO_BATCH = "Slice"
"""The operation that cuts a micro batch: what a device needs from the host in each micro step."""
REDUCTIONS = {"CollectiveReduceV2", *OF_HOROVOD}
KERNEL_GRADIENTS = {"Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter"}

MOST_FROM_HOST = 4
"""Images, labels and weights of the samples, and numbers of virtual batches, in each micro step."""
MOST_TO_HOST = 1
"""The outcome of an update."""

MICRO_STEP_TIMES_KERAS = 1.10
MOST_APPLY_OPERATIONS = 500
MOST_FROM_HOST = 4
"""Images, labels and weights of the samples, and numbers of virtual batches, in each micro step."""
MOST_PACK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Limits:
    """The most that an update with this config may cost."""

    apply_operations: int
    from_host: int
    """Copies in a micro step."""
    to_host: int
    """Copies in reduce and apply. Python fetches the outcome itself, later."""
    waits: int | None
    """Of Python in an update, after the next one was started. None: several ranks read each outcome before the next update,
    since a rank without memory may have to repeat this one, and talk to each other in between."""


@dataclass(frozen=True)
class Audit:
    devices: int
    without_kernel: Mapping[str, int]
    """Operation with its types → how often; these have no kernel for a GPU."""
    without_xla: Mapping[str, int]
    """Of the operations that XLA has to compile, those that it cannot compile for a GPU."""
    strange_on_host: Mapping[str, int]
    """Operations that run on the host without a known reason."""
    micro_step_operations: int
    keras_operations: int
    """Of one forward and backward pass; 0 where it was not counted."""
    apply_operations: int
    """Of one replica outside of its micro steps: reduce and apply."""
    micro_step_copies: "Copies"
    """Of one replica."""
    apply_copies: "Copies"
    """Of one replica outside of its micro steps."""
    largest_pack_bytes: int
    """0 where nothing is reduced."""
    early: Sequence[int] | None
    """For each pack of kernels, in their order, the kernels whose gradients its reduction waits for; None if not read."""
    traces: int
    """Of the micro step, for one form and all replicas."""
    waits: float
    """How often Python waits for a device in one update of a run."""
    reads_late: bool
    """The outcome of an update is read when the next one has been started."""
    limits: Limits

    @property
    def problems(self) -> list[str]:
        found = [f"{name} has no GPU kernel (used {times} ×)" for name, times in self.without_kernel.items()]
        found += [f"XLA cannot compile {name} (used {times} ×)" for name, times in self.without_xla.items()]
        found += [f"{name} runs on the host (used {n} ×)" for name, n in self.strange_on_host.items()]
        step, apply, limits = self.micro_step_copies, self.apply_copies, self.limits
        if step.between_devices:
            found.append(
                f"tensors cross between devices in every micro step: {_listed(step.between_devices)}"
            )
        if sum(step.from_host.values()) > limits.from_host:
            found.append(f"copies from the host in a micro step: {_listed(step.from_host)}")
        if step.to_host:
            found.append(f"a micro step copies to the host: {_listed(step.to_host)}")
        if sum(apply.to_host.values()) > limits.to_host:
            found.append(f"reduce and apply copy to the host: {_listed(apply.to_host)}")
        if 0 < self._most_step_operations < self.micro_step_operations:
            found.append(
                f"a micro step has {self.micro_step_operations} operations, more than {MICRO_STEP_TIMES_KERAS} × "
                f"{self.keras_operations} of Keras"
            )
        if self.apply_operations > limits.apply_operations:
            found.append(f"apply has {self.apply_operations} operations, more than {limits.apply_operations}")
        if self.largest_pack_bytes > MOST_PACK_BYTES:
            found.append(f"a pack of {self.largest_pack_bytes} bytes is reduced, more than {MOST_PACK_BYTES}")
        if self.early is not None and (not self.early or list(self.early) != sorted(set(self.early))):
            found.append(
                f"packs are not reduced as their gradients become ready: they wait for {self.early} kernels"
            )
        if self.traces != 1:
            found.append(f"the micro step was traced {self.traces} times for {self.devices} devices")
        if limits.waits is not None and (self.waits > limits.waits or not self.reads_late):
            found.append(f"Python waits {self.waits:g} times in an update, or before the next one is started")
        return found

    @property
    def _most_step_operations(self) -> int:
        return round(MICRO_STEP_TIMES_KERAS * self.keras_operations)

    def rows(self) -> list[dict[str, Any]]:
        """For reports: what was counted, the count, and the most that is allowed."""

        def row(what: str, count: float, most: int | None = None) -> dict[str, Any]:
            return {"what": what, "count": count, "most": most}

        step, apply, limits = self.micro_step_copies, self.apply_copies, self.limits
        return [
            row("operations without a GPU kernel", sum(self.without_kernel.values()), 0),
            row("operations of a micro step", self.micro_step_operations, self._most_step_operations or None),
            row("operations of Keras' Xception, forward and backward", self.keras_operations),
            row(
                "operations of reduce and apply, on each device",
                self.apply_operations,
                limits.apply_operations,
            ),
            row("copies between devices in a micro step", sum(step.between_devices.values()), 0),
            row("copies from the host in a micro step", sum(step.from_host.values()), limits.from_host),
            row("copies to the host in a micro step", sum(step.to_host.values()), 0),
            row("copies to the host in reduce and apply", sum(apply.to_host.values()), limits.to_host),
            row("bytes of the largest pack that is reduced", self.largest_pack_bytes, MOST_PACK_BYTES),
            row("traces of the micro step", self.traces, 1),
            row("waits of Python in an update", self.waits, limits.waits),
        ]


@dataclass(frozen=True)
class Copies:
    """Of one device, by the operation whose result is copied."""

    from_host: Mapping[str, int]
    to_host: Mapping[str, int]
    between_devices: Mapping[str, int]

    @classmethod
    def of(cls, copies: Iterable[Copy], device: str) -> "Copies":
        mine = [copy for copy in copies if device in (copy.source, copy.target)]
        return cls(
            Counter(copy.what for copy in mine if copy.from_host),
            Counter(copy.what for copy in mine if copy.to_host),
            Counter(copy.what for copy in mine if not (copy.from_host or copy.to_host)),
        )


def audit_update(
    number: int,
    overrides: Mapping[str, Any] | None = None,
    *,
    padded: bool = False,
    keras: bool = True,
    early: bool = True,
) -> Audit:
    """Eager. `number` of devices: the first audit of a process fixes how many there can be. `overrides` are sections of the
    config; with `padded` the update has samples of weight zero; with `keras` it is compared with Xception of Keras; with
    `early` an update whose packs leave early is read too."""
    devices = [f"CPU:{place}" for place in range(1, number + 1)]
    if tf.config.get_logical_device_configuration(tf.config.list_physical_devices("CPU")[0]) is None:
        prepare_devices(["CPU:0", *devices], threads=None)
    # Else operations would be fused as only CPUs can.
    tf.config.optimizer.set_experimental_options({"remapping": False})
    config = audit_config(number, overrides or {})
    jit = config.engine.jit == "on"
    engine: Engine = (
        MirroredEngine(devices, jit=jit) if len(devices) > 1 else SingleEngine(devices[0], jit=jit)
    )
    return audit_engine(engine, config, padded=padded, keras=keras, early=early)


def audit_engine(engine: Engine, config: Config, *, padded: bool, keras: bool, early: bool) -> Audit:
    """Eager, on all ranks. The devices of the engine are CPUs other than the first, which is the host."""
    model = Xception.of(config.model, CLASSES, dropout=config.model.dropout)  # as for a GPU
    update = Update(config, engine, model, Objective(CLASSES, config.model.label_smoothing))
    waits = count_waits(engine)
    device = engine.devices()[0]
    with noting_bytes(REDUCTIONS) as packs:
        # Several ranks apply their sums in a call of its own.
        functions = graphs_of(lambda: _run(update, config, padded=padded))[-2 if engine.ranks > 1 else -1 :]
        traced = list(update.accumulator.micro_step.traced)
        overlaps = engine.replicas > 1 and not engine.jit and config.engine.reduction == "fast"
        can_be_early = early and overlaps and not padded
        leaving = graphs_of(lambda: _run(update, config, overlap=True)) if can_be_early else []
    steps = [_micro_step_graphs(one, device) for one in traced]
    nodes = [node for one in (*functions, *steps) for kind in (one.traced, one.optimised) for node in kind]
    graphs = [Graph(one.optimised) for one in functions]
    inside = [node for graph in graphs for node in graph.nodes if graph.in_loop(node.name)]
    outside = [node for graph in graphs for node in graph.nodes if not graph.in_loop(node.name)]
    in_loop = [copy for graph in graphs for copy in graph.copies() if graph.in_loop(copy.node)]
    apart = [copy for graph in graphs for copy in graph.copies() if not graph.in_loop(copy.node)]
    return Audit(
        devices=engine.replicas,
        without_kernel=Counter(
            described(node) for node in nodes if not on_host(node) and not has_gpu_kernel(node)
        ),
        without_xla=Counter(
            described(node) for one in traced for node in _compiled(one) if not xla_compiles(node)
        ),
        strange_on_host=Counter(
            node.op
            for node in nodes
            if on_host(node) and node.op not in STRUCTURE and node.op not in HOST_OPERATIONS
        ),
        micro_step_operations=max(count(_on(device, one.optimised)) for one in steps)
        + count(_on(device, inside)),
        keras_operations=keras_operations(config.model.image_size) if keras else 0,
        apply_operations=count(_on(device, outside)),
        micro_step_copies=Copies.of(
            [*in_loop, *(copy for one in steps for copy in Graph(one.optimised).copies())], device
        ),
        apply_copies=Copies.of(apart, device),
        largest_pack_bytes=max(packs.values(), default=0),
        early=_kernels_waited_for(leaving, device) if can_be_early else None,
        traces=len(traced),
        waits=waits.in_an_update,
        reads_late=waits.late,
        limits=_limits(config, update),
    )


def _compiled(traced: Any) -> list[node_def_pb2.NodeDef]:
    """The operations that XLA gets."""
    library = traced.inlined.graph.as_graph_def().library.function
    return [node for one in library if one.attr["_XlaMustCompile"].b for node in one.node_def]


def _kernels_waited_for(graphs: Iterable[Graphs], device: str) -> list[int]:
    """For each reduction of kernels' gradients in the order of the packs: the kernels whose gradients it waits for."""
    found = []
    for graph in (Graph(one.optimised) for one in graphs):
        for node in _on(device, graph.nodes):
            if node.op in REDUCTIONS:
                before = graph.ancestors(node.name, stop_at=REDUCTIONS)
                found.append(sum(graph.by_name[name].op in KERNEL_GRADIENTS for name in before))
    return [number for number in found if number]


def _limits(config: Config, update: Update) -> Limits:
    """LAMB needs two norms of each kernel, pruning sorts each, and an ordered sum adds lane by lane.

    With an ordered sum TensorFlow gathers the shapes of all tensors first, on the host. With several ranks the host notes
    when the sums of a rank are ready.
    """
    packs = update.state.packs
    kernels = sum(len(pack.parameters) for pack in packs if pack.decays)
    more = 4 * (config.optimizer.name == "lamb") + 40 * (config.optimizer.pruning is not None)
    ordered = config.engine.reduction == "ordered"
    lanes = 2 * update.engine.replicas if ordered else 0
    return Limits(
        apply_operations=MOST_APPLY_OPERATIONS + more * kernels + 4 * lanes * (len(packs) + 2),
        from_host=MOST_FROM_HOST + ordered,
        to_host=(len(packs) + 2) * ordered + (update.engine.ranks > 1),
        waits=1 if update.engine.ranks == 1 else None,
    )


CLASSES, SAMPLES_OF_VIRTUAL, VIRTUAL_PER_DEVICE = 5, 2, 3


def audit_config(devices: int, overrides: Mapping[str, Any]) -> Config:
    """Three micro steps a replica; Adam with a moving average, unless the overrides say otherwise."""
    base: dict[str, dict[str, Any]] = {
        "model": {"image_size": 71},
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
    return Config.model_validate(base)


def _run(update: Update, config: Config, *, padded: bool = False, overlap: bool = False) -> None:
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
    for number in update.engine.local_replicas:
        block = blocks[number]
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
    with tf.device(update.engine.devices()[0]):  # TensorFlow prefers a GPU to the host
        update(
            batches,
            plan,
            key=1,
            rate=0.01,
            padded=padded,
            overlap=overlap,
            remat=config.memory.remat == "on",
        )


def _micro_step_graphs(traced: Any, device: str) -> Graphs:
    """Of the micro step alone, on one device."""
    with tf.device(device):
        arguments = [tf.zeros(spec.shape, spec.dtype) for spec in traced.specs]

        def run() -> None:
            traced.inlined(*arguments)

        return max(graphs_of(run), key=lambda graphs: len(graphs.traced))


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
        graphs = graphs_of(lambda: step(images, labels))
    return max(count(one.optimised) for one in graphs)


def _on(device: str, nodes: Iterable[node_def_pb2.NodeDef]) -> list[node_def_pb2.NodeDef]:
    return [node for node in nodes if node.device.endswith(device)]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({times} ×)" for name, times in counts.items())
