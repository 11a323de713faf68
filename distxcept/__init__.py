"""Multi-GPU training of Xception on TensorFlow: the config defines every weight update."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Callback", "Run", "Trainer", "__version__", "input_dataset"]

if TYPE_CHECKING:
    from distxcept.api import Callback, Run, Trainer, input_dataset


def __getattr__(name: str) -> Any:
    """The Python interface, imported when it is asked for: `import distxcept` alone must cost nothing."""
    if name in ("Callback", "Run", "Trainer", "input_dataset"):
        from distxcept import api

        return getattr(api, name)
    raise AttributeError(f"module 'distxcept' has no attribute {name!r}")
