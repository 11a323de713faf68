"""The contestant that is this package: updates as `distxcept train` runs them, on one batch that is read before.

    python -m distxcept.prove.race.ours [KEY=VALUE …] [--stock] [--share split|each] [--side-by-side N] [--bare] SETTING

Under mpirun with several ranks. With `--side-by-side N` a micro step has N virtual batches, for as many cores.
`--share each` gives every replica and each of those the setting's batch, `split` divides it. `--bare`: each rank trains for
itself and nothing is reduced, to see what the cores give. `--stock` leaves the environment as it is, where the training
would complete it.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from distxcept.cluster import detect
from distxcept.config.load import load_config
from distxcept.config.schema import Config
from distxcept.config.yaml_text import dump_yaml
from distxcept.prove.race.serve import ProcessMemory, Step, serve
from distxcept.prove.race.setting import Setting

LONG = 1_000_000
"""Updates of the run that is begun and never ended: long enough for everything that pays in a long run."""

REDUCTIONS = 3


def config_of(setting: Setting, replicas: int, share: str, side_by_side: int, overrides: list[str]) -> Config:
    virtual = setting.batch if share == "each" else max(1, setting.batch // (replicas * side_by_side))
    micro = virtual * side_by_side
    whole = micro * replicas * setting.micro_steps
    tree: dict[str, Any] = {
        "run": {"updates": LONG, "name": "bench"},
        "model": {
            "image_size": setting.image_size,
            "width": setting.width,
            "classes": setting.classes,
            "dropout": 0.0,
        },
        # Twice an update, so that the one that is repeated does not end an epoch.
        "data": {
            "train": {"kind": "synthetic", "samples": 2 * whole, "classes": setting.classes},
            "augment": None,
        },
        "batch": {"global": whole, "virtual": virtual, "micro": micro},
        # Who waits for his turn holds his memory: what is left of it would decide who computes everything twice.
        "memory": {"remat": "off"},
        "optimizer": {"name": "sgd", "momentum": 0.9, "learning_rate": 0.001},
        "checkpoint": {"every_minutes": None, "best_metric": None},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(dump_yaml(tree))
        file.flush()
        return load_config(file.name, overrides)


def build(args: argparse.Namespace, folder: Path) -> Step:
    setting = Setting.from_json(args.setting)
    placement = detect(os.environ)
    replicas = args.devices if placement.size == 1 or args.bare else placement.size
    overrides = [*args.overrides, f"engine.devices={args.devices}"]
    config = config_of(setting, replicas, args.share, args.side_by_side, overrides)
    if not args.stock:
        from distxcept.cluster.tensorflow_import import import_tensorflow
        from distxcept.launch.environment import prepare_environment

        prepare_environment(config)
        import_tensorflow()

    from distxcept.engines import create_engine
    from distxcept.engines.single import SingleEngine
    from distxcept.report.run_folder import RunFiles
    from distxcept.training.build import build_training
    from distxcept.training.events import Observers
    from distxcept.training.loop import Loop
    from distxcept.training.peak import Peak

    engine = create_engine(config.engine, placement)
    device = engine.devices()[0]
    training = build_training(config, SingleEngine(device) if args.bare else engine)
    loop = Loop(training, folder, Observers([RunFiles(folder)] if engine.is_chief else []))
    with loop.read() as batches:
        batch = next(batches)
    worked: list[float] = []

    def run(steps: int) -> None:
        for _ in range(steps):
            loop.run_update(batch)
            worked.append(loop.meter.last_work_seconds)
        loop.read_outcome()  # of the last one, which may still run

    def facts() -> dict[str, Any]:
        """Of each update since the last call, what every rank computed before it could only wait for others."""
        ranks = [json.loads(message) for message in engine.exchange(json.dumps(worked).encode())]
        worked.clear()
        return {"work_seconds": [list(update) for update in zip(*ranks, strict=True)]}

    return Step(
        run,
        images=training.plan.global_batch * (engine.ranks if args.bare else 1),
        group=engine,
        memory=Peak(device) if device.startswith("GPU") else ProcessMemory(),
        facts=facts,
        about=reductions(engine) if engine.ranks > 1 else {},
    )


def reductions(engine: Any) -> dict[str, Any]:
    """What the network between the ranks does: seconds of a large and of a tiny reduction, the least of some."""
    from distxcept.training.preflight import REDUCED_BYTES, TINY_BYTES, reduce_seconds

    device = engine.devices()[0]
    large, small = (
        min(reduce_seconds(engine, device, size) for _ in range(REDUCTIONS))
        for size in (REDUCED_BYTES, TINY_BYTES)
    )
    return {"reduced_bytes": REDUCED_BYTES, "reduced_seconds": large, "tiny_seconds": small}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("overrides", nargs="*", default=[])
    parser.add_argument("setting")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--share", choices=("split", "each"), default="each")
    parser.add_argument("--side-by-side", type=int, default=1)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--devices", type=int, default=1, help="of one process: logical CPUs, or GPUs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        serve(lambda: build(args, Path(folder)))
    os._exit(0)  # nothing is left to be saved, and ranks need not wait for each other


if __name__ == "__main__":
    main()
