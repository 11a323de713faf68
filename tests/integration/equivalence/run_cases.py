"""Runs cases one after the other, as `distxcept train` would, and leaves a run folder for each.

    python run_cases.py CASES.json FOLDER            or the same under mpirun

A process without a launcher holds three logical CPUs, so that all engines of one process share it.
`FOLDER/NAME/run.json` has the metrics of each update, the number of traces and the sizes of the parts.
"""
# ruff: noqa: E402 - TensorFlow's own import comes first, in the way that training imports it

import json
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from unittest import mock

from cases import ENGINES, GLOBAL, Case
from short_xception import short_xception

from distxcept.cluster import detect
from distxcept.config.schema import Config, EngineSection

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from distxcept.cluster.tensorflow_import import import_tensorflow

import_tensorflow()
import tensorflow as tf
from starving import failing_late, starving

from distxcept.engines import Engine, create_engine
from distxcept.engines.devices import prepare_devices
from distxcept.engines.mirrored import MirroredEngine
from distxcept.engines.numerics import set_numerics
from distxcept.engines.single import SingleEngine
from distxcept.errors import LostForMemoryError
from distxcept.memory.memory_plan import read_memory_plan
from distxcept.report.run_folder import RunFiles
from distxcept.training.accumulate import Accumulator
from distxcept.training.agreement import check_equal
from distxcept.training.build import Training, build_training
from distxcept.training.events import Observer, Observers, TrainRecord
from distxcept.training.loop import Loop


class Log(Observer):
    def __init__(self) -> None:
        self.records: list[dict] = []
        self.events: list[dict] = []

    def trained(self, record: TrainRecord) -> None:
        self.records.append(asdict(record))

    def happened(self, kind: str, message: str, **details) -> None:
        self.events.append({"kind": kind, "message": message, **details})


class Tracings:
    """Counts how often a micro step is traced: its Python code runs then and only then."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Tracings":
        real = Accumulator.compute

        def counted(accumulator: Accumulator, *arguments, **static):
            self.count += 1
            return real(accumulator, *arguments, **static)

        self._patch = mock.patch.object(Accumulator, "compute", counted)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def divided_by_the_global_batch(engine: Engine, case: Case):
    """The mistake of a fixed divisor: a short update counts as if it were full."""
    real = engine.sum

    def wrong(gradients, exact):
        gradients, (statistics, counters) = real(gradients, exact)
        too_little = counters[0] / float(GLOBAL)
        return [gradient * too_little for gradient in gradients], [statistics, counters]

    return mock.patch.object(engine, "sum", wrong)


CONTROLS = {"": lambda engine, case: nullcontext(), "fixed_divisor": divided_by_the_global_batch}


def run_case(case: Case, engine: Engine, folder: Path) -> None:
    started = time.perf_counter()
    hungry = (failing_late if case.late else starving)(dict(case.starved), engine.rank)
    config = Config.model_validate(case.config())
    engine.jit = config.engine.compiles  # engines are shared by the cases
    set_numerics(config.engine)
    place = mock.patch.object(type(engine), "on_cpu", False) if case.as_gpu else nullcontext()
    with short_xception(), hungry, place, Tracings() as tracings, CONTROLS[case.control](engine, case):
        log = Log()
        observers: list[Observer] = [log]
        if engine.is_chief:
            (folder / case.name).mkdir(parents=True)
            observers.append(RunFiles(folder / case.name))
        training = run_to_the_end(config, engine, folder / case.name, Observers(observers))
    check_equal(training.update.state, "at the end")
    if engine.is_chief:
        plan = training.plan
        sizes = {
            size
            for update in range(plan.updates_per_epoch)
            for replica in engine.local_replicas
            for size in plan.parts(len(plan.block(update, replica)))
        }
        result = {
            "records": log.records,
            "events": log.events,
            "traces": tracings.count,
            "part_sizes": sorted(sizes),
        }
        (folder / case.name / "run.json").write_text(json.dumps(result))
        print(f"done {case.name} in {time.perf_counter() - started:.0f} s", flush=True)


def run_to_the_end(config: Config, engine: Engine, folder: Path, observer: Observers) -> Training:
    """What the command line does in a new process where memory ran out for good in this one."""
    while True:
        training = build_training(config, engine, at_most=read_memory_plan(folder))
        observer.planned(training.plan, remat=training.remat)
        try:
            Loop(training, folder, observer).run()
            return training
        except LostForMemoryError:
            if engine.survives_failure:
                raise


def engines(names: set[str], threads: int | None) -> dict[str, Engine]:
    placement = detect(os.environ)
    if placement.is_distributed:
        return {f"horovod{placement.size}": create_engine(EngineSection(threads=threads), placement)}
    devices = prepare_devices(3, threads)
    made: dict[str, Engine] = {"single": SingleEngine(devices[0])}
    for name in names & set(ENGINES) - {"single"}:
        made[name] = MirroredEngine(devices[: ENGINES[name]])
    return made


def main(cases_file: Path, folder: Path) -> None:
    asked = json.loads(cases_file.read_text())
    cases = [Case.from_json(case) for case in asked["cases"]]
    made = engines({case.engine for case in cases}, asked["threads"])
    for case in cases:
        # Rewriting a graph for speed costs more than such small runs can win; float32 goes the way that users go.
        plain = not asked["optimize"] and case.precision == "float64"
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": plain})
        run_case(case, made[case.engine], folder)
    made[cases[0].engine].shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
