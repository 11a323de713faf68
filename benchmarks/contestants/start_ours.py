"""`distxcept train` until the end of its first update, with a clock at each stage.

python start_ours.py IMAGES RUNS_FOLDER IMAGE_SIZE BATCH WIDTH [KEY=VALUE …]
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

BEGAN = float(os.environ["BENCH_BEGAN"])
STAGES: dict[str, float] = {"python": time.time() - BEGAN}
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else is printed is no answer


def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        began = time.time()
        try:
            return function(*arguments, **options)
        finally:
            STAGES[stage] = STAGES.get(stage, 0.0) + time.time() - began

    return call


def main() -> None:
    images, runs, size, batch, width, *overrides = sys.argv[1:]
    began = time.time()
    from distxcept.cli.main import main as distxcept
    from distxcept.cluster.tensorflow_import import import_tensorflow
    from distxcept.config.load import load_config
    from distxcept.launch.environment import prepare_environment

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(
            f"run: {{name: start, dir: {runs}, updates: 1000}}\n"
            f"model: {{image_size: {size}, width: {width}, classes: 1000, dropout: 0.0}}\n"
            f"data: {{train: {{kind: folder, path: {images}}}}}\n"
            f"batch: {{global: {batch}}}\n"
            "optimizer: {name: sgd, momentum: 0.9}\n"
        )
        file.flush()
        prepare_environment(load_config(file.name, overrides))
        import_tensorflow()

        from distxcept import engines
        from distxcept.training import build, update

        STAGES["imports"] = time.time() - began
        # Watched from outside: the stages are those of the command as it is. Methods are what mypy minds to see replaced.
        engines.create_engine = timed("engine", engines.create_engine)
        build.open_sources = timed("data index", build.open_sources)
        build.choose_plan = timed("probe", build.choose_plan)
        update.Update.__init__ = timed("model", update.Update.__init__)  # type: ignore[method-assign]
        update.Update.__call__ = counted(update.Update.__call__)  # type: ignore[method-assign]
        distxcept(["train", file.name, *overrides, "-q"])


def counted(real: Callable[..., Any]) -> Callable[..., Any]:
    """The first update is traced and run, the second only run; then everything is known."""
    seconds: list[float] = []
    ended: list[float] = []

    def call(*arguments: Any, **options: Any) -> Any:
        began = time.time()
        outcome = real(*arguments, **options)
        ended.append(time.time())
        seconds.append(ended[-1] - began)
        if len(seconds) == 2:
            STAGES["trace"] = max(0.0, seconds[0] - seconds[1])
            STAGES["first update itself"] = min(seconds)
            known = sum(STAGES.values())
            whole = ended[0] - BEGAN
            STAGES["rest"] = max(0.0, whole - known)
            STAGES["all"] = whole
            print(json.dumps(STAGES), file=ANSWERS, flush=True)
            os._exit(0)
        return outcome

    return call


if __name__ == "__main__":
    main()
