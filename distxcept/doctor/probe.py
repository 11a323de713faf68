"""The child process of the doctor: loads what may crash or hang, and says after each stage what it found.

One JSON object a line on standard output, `{"stage": NAME, …}`; a stage that raises has `error`. What comes after
the last line is where it died. Run as `python -m distxcept.doctor.probe`.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

STAGES = ("tensorflow", "devices", "horovod", "mpi4py")


def tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    try:
        from tensorflow.python.util import _pywrap_util_port

        onednn = bool(_pywrap_util_port.IsMklEnabled())
    except ImportError:
        onednn = None
    return {"version": tf.__version__, "build": dict(tf.sysconfig.get_build_info()), "onednn": onednn}


def devices() -> dict[str, Any]:
    """Starts CUDA; allocates nothing."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return {
        "gpus": [
            {
                "name": gpu.name,
                **{k: str(v) for k, v in tf.config.experimental.get_device_details(gpu).items()},
            }
            for gpu in gpus
        ]
    }


def horovod() -> dict[str, Any]:
    import horovod.tensorflow as hvd

    library = sys.modules["horovod.tensorflow.mpi_ops"].__file__
    return {
        "mpi": bool(hvd.mpi_built()),
        "gloo": bool(hvd.gloo_built()),
        "nccl": int(hvd.nccl_built()),
        "cuda": bool(hvd.cuda_built()),
        "folder": library and library.rsplit("/", 1)[0],
    }


def mpi4py() -> dict[str, Any]:
    """Asks for the library's name only: MPI itself is not started, which outside a launcher can be slow."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    return {"library": MPI.Get_library_version().split("\n")[0].strip("\0 ")}


def main() -> None:
    for name in STAGES:
        stage: Callable[[], dict[str, Any]] = globals()[name]
        print(json.dumps({"starting": name}), flush=True)
        try:
            answer = stage()
        except ModuleNotFoundError as error:
            answer = {"missing": error.name, "error": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        print(json.dumps({"stage": name, **answer}, default=str), flush=True)


if __name__ == "__main__":
    main()
