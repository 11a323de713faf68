"""Child of `distxcept prove` that measures time, alone on the machine: links, and the phases of an update.

    python -m distxcept.prove.quiet links|phases CONFIG.yaml DEVICES       or under mpirun

One line of JSON on stdout. links: seconds of a large and of a tiny reduction. phases: seconds of an update as the loop runs
it, and of one whose reduction waits for the end of the backward pass; of a reduction and of an apply step; and the part of
the loop's updates in which a device is idle.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distxcept.cluster import detect
from distxcept.cluster.tether import die_with_parent
from distxcept.prove.children import Ended, python
from distxcept.prove.context import Context, write_config
from distxcept.prove.race.contestants import in_ranks

if TYPE_CHECKING:
    from distxcept.config.schema import Config
    from distxcept.engines import Engine
    from distxcept.training.build import Training

LARGE_BYTES, TINY_BYTES = 100_000_000, 1024
TIMES = 5
WARM_UP_UPDATES = 3
"""With several devices the second is traced too: only then gradients leave early."""
TIMED_UPDATES = 3
TRACED_UPDATES = 3
PHASE_TIMES = 3


def start(
    context: Context, folder: Path, what: str, tree: Mapping[str, Any], *, seconds: float, ranks: int = 1
) -> Ended:
    """In the parent."""
    file = write_config(folder / f"{what}-{ranks}.yaml", tree)
    devices = 1 if ranks > 1 else context.machine.devices
    program = tuple(python("distxcept.prove.quiet", what, file, devices))
    command = in_ranks(ranks, program) if ranks > 1 else program
    return context.children.run(f"{what}-{ranks}", command, seconds=seconds)


def main(what: str, file: Path, devices: int) -> None:
    """Eager, in each rank."""
    from distxcept.config.load import load_config
    from distxcept.prove.runs import start_engine

    if detect(os.environ).is_distributed:
        die_with_parent(os.getppid())  # mpirun
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    config = load_config(file, [])
    engine = start_engine(config, devices)
    found = measure_links(engine) if what == "links" else measure_phases(config, engine)
    if engine.is_chief:
        print(json.dumps(found), file=answers, flush=True)


def measure_links(engine: "Engine") -> dict[str, float]:
    """Eager, on all ranks."""
    return {
        "reduced_bytes": LARGE_BYTES,
        "reduced_seconds": least_seconds(reduction(engine, LARGE_BYTES)),
        "tiny_seconds": least_seconds(reduction(engine, TINY_BYTES)),
    }


def reduction(engine: "Engine", size_bytes: int) -> Callable[[], Any]:
    """Eager. A callable that sums so many bytes of float32 over all replicas and waits for the result."""
    import tensorflow as tf

    def traced(start: Any, common: Any) -> Any:
        """Traced, replica context. From a computed value, because a reduction of constants would be folded away."""
        (summed,), _ = engine.sum([tf.fill([size_bytes // 4], start)], [])
        return tf.reduce_sum(summed[:: max(1, size_bytes // 4096)])

    compiled = engine.compile(traced)
    one = tf.constant(1.0)
    return lambda: compiled([one] * len(engine.local_replicas), ()).numpy()


def least_seconds(work: Callable[[], Any], times: int = TIMES, *, ready: bool = False) -> float:
    """Of some calls; unless it is `ready`, one before them traces."""
    if not ready:
        work()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def measure_phases(config: "Config", engine: "Engine") -> dict[str, Any]:
    """Eager, on all ranks."""
    import tensorflow as tf

    from distxcept.training.build import build_training
    from distxcept.training.memory_phases import phase_functions

    def waiting(phase: Callable[[], Any]) -> Callable[[], None]:
        """A device has only promised its results when a call returns."""

        def run() -> None:
            phase()
            tf.test.experimental.sync_devices()

        return run

    training = build_training(config, engine)
    with tempfile.TemporaryDirectory() as folder:
        updates = Updates(training, Path(folder))
        updates.run(WARM_UP_UPDATES)
        in_loop = least_seconds(lambda: updates.run(TIMED_UPDATES), PHASE_TIMES, ready=True) / TIMED_UPDATES
        idle = idle_part(lambda: updates.run(TRACED_UPDATES))
        apart = least_seconds(updates.run_apart, PHASE_TIMES, ready=True)
    phases = {name: least_seconds(waiting(phase)) for name, phase in phase_functions(training).items()}
    seconds = {"update": in_loop, "apart": apart, **phases}
    return {**{f"{name}_seconds": value for name, value in seconds.items()}, "idle_part": idle}


class Updates:
    """Eager. Updates on one batch that was read before; the config is that of a long run."""

    def __init__(self, training: "Training", folder: Path):
        from distxcept.training.events import Observers
        from distxcept.training.loop import Loop

        self._training, self._loop = training, Loop(training, folder, Observers([]))
        with self._loop.read() as batches:
            self._batch = next(batches)

    def run(self, number: int) -> None:
        """As the loop runs them: the outcome of an update is read when the next one has been started."""
        for _ in range(number):
            self._loop.run_update(self._batch)
        self._loop.read_outcome()

    def run_apart(self) -> None:
        """One update whose reduction begins when the backward pass has ended, so that the phases add up."""
        self._training.update(
            self._batch, self._loop.plan, key=0, rate=0.0, remat=self._loop.fitting.memory_plan.remat
        )


def idle_part(work: Callable[[], Any]) -> float | None:
    """Of the work, from TensorFlow's profiler; None where it does not run."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        try:
            with tf.profiler.experimental.Profile(folder):
                work()
            devices = list(operations_of_devices(Path(folder)))
        except Exception as error:
            print(f"no profile: {error}", file=sys.stderr)
            return None
    parts = [idle(spans) for spans in devices]
    return max(parts, default=None)


def operations_of_devices(folder: Path) -> Iterable[list[tuple[int, int]]]:
    """For each GPU, or for the host if there is none, when operations ran: (begin, end) in picoseconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    planes = []
    for file in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace()
        space.ParseFromString(file.read_bytes())
        planes += list(space.planes)
    gpus = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    for plane in gpus or [plane for plane in planes if plane.name.startswith("/host:CPU")]:
        spans = []
        for line in plane.lines:
            if gpus and not line.name.startswith("Stream"):
                continue  # summaries of the same kernels
            for event in line.events:
                name, separator, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                # On the host an operation is traced as NAME:KIND, everything else as words or Class::Method.
                if gpus or (separator and name and not name.endswith(":") and " " not in kind):
                    begin = line.timestamp_ns * 1000 + event.offset_ps
                    spans.append((begin, begin + event.duration_ps))
        if spans:
            yield spans


def idle(spans: Iterable[tuple[int, int]]) -> float:
    """Pure. Part of the time from the first to the last in which none of the spans runs."""
    ordered = sorted(spans)
    reached = first = ordered[0][0]
    gaps = 0
    for begin, end in ordered:
        gaps += max(0, begin - reached)
        reached = max(reached, end)
    return gaps / (reached - first) if reached > first else 0.0


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # threads of libraries need not be waited for
