"""TensorFlow without Keras: its import would load Keras too, a quarter of the time, and training needs none of it."""

import sys
from typing import Any


def import_tensorflow() -> None:
    """Imports TensorFlow; whoever needs Keras still imports it afterwards, and gets all of it."""
    if "tensorflow" in sys.modules or "keras" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["keras"] = None  # which an import takes as missing, and TensorFlow as no reason to stop
    try:
        import tensorflow  # noqa: F401 - to have it imported is all
    finally:
        del modules["keras"]
