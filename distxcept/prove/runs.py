"""Child of `distxcept prove`: several trainings in one process, or in the ranks of one job, as `distxcept train` runs them.

    python -m distxcept.prove.runs JOB.json FOLDER            or the same under mpirun

JOB.json: {"devices": N, "cases": [{"name": …, "devices": k, "config": {…}}, …]}. Each case leaves a run folder
FOLDER/NAME. One line of JSON on stdout when a case has ended: {"case": NAME, "seconds": …, "failure": null or text}.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distxcept.cluster import detect
from distxcept.cluster.tether import die_with_parent
from distxcept.errors import one_line

if TYPE_CHECKING:
    from distxcept.config.schema import Config
    from distxcept.engines import Engine


def main(job_file: Path, folder: Path) -> int:
    """Eager, in each rank."""
    from distxcept.config.load import load_config
    from distxcept.config.yaml_text import dump_yaml

    asked = json.loads(job_file.read_text())
    placement = detect(os.environ)
    if placement.is_distributed:
        die_with_parent(os.getppid())  # mpirun
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    configs = {}
    for case in asked["cases"]:
        file = folder / f"{case['name']}-{placement.rank}.yaml"
        file.write_text(dump_yaml(case["config"]))
        configs[case["name"]] = load_config(file, [f"run.name={case['name']}", f"run.dir={folder}"])
    engine = start_engine(next(iter(configs.values())), asked["devices"])
    failures = 0
    for case in asked["cases"]:
        began, failure = time.perf_counter(), None
        try:
            run_case(configs[case["name"]], part_of(engine, case["devices"]), folder / case["name"])
        except Exception as error:
            failure = one_line(error, named=True)[:500]
            failures += 1
        if engine.is_chief:
            answer = {"case": case["name"], "seconds": time.perf_counter() - began, "failure": failure}
            print(json.dumps(answer), file=answers, flush=True)
        if failure and engine.ranks > 1:
            break  # the ranks may be out of step
        gc.collect()
    engine.shutdown()
    return 1 if failures else 0


def start_engine(config: "Config", devices: int) -> "Engine":
    """Eager, once a process. With all devices of the job."""
    from distxcept.cluster.tensorflow_import import import_tensorflow
    from distxcept.launch.environment import prepare_environment

    prepare_environment(config)
    import_tensorflow()
    from distxcept.engines import create_engine

    section = config.engine.model_copy(update={"devices": devices})
    return create_engine(section, detect(os.environ))


def part_of(engine: "Engine", devices: int) -> "Engine":
    """An engine with the first devices of this one."""
    from distxcept.engines.mirrored import MirroredEngine
    from distxcept.engines.single import SingleEngine

    if engine.ranks > 1 or devices == engine.replicas:
        return engine
    first = engine.devices()[:devices]
    return SingleEngine(first[0], jit=engine.jit) if devices == 1 else MirroredEngine(first, jit=engine.jit)


def run_case(config: "Config", engine: "Engine", folder: Path) -> dict[str, Any]:
    """Eager, in each rank. Trains to the end; the last snapshot has the weights."""
    from distxcept.engines.numerics import set_numerics
    from distxcept.report.run_folder import RunFiles
    from distxcept.training.build import build_training
    from distxcept.training.events import Observers
    from distxcept.training.loop import Loop

    set_numerics(config.engine)
    engine.jit = config.engine.compiles
    training = build_training(config, engine)
    if engine.is_chief:
        folder.mkdir(parents=True, exist_ok=True)
    return Loop(training, folder, Observers([RunFiles(folder)] if engine.is_chief else [])).run()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    code = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)  # threads of libraries need not be waited for
