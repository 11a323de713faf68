"""`distxcept train CONFIG` on a CPU that stands for the second card of the stand-in for the driver, which loses it.

In the second update TensorFlow fails, as it does when its card is gone.
"""

import sys

import tensorflow as tf

from distxcept.cli.main import entry
from distxcept.memory.nvml import CardPlace
from distxcept.memory.telemetry import Telemetry
from distxcept.report import run_telemetry
from distxcept.training import own_cards

plain = Telemetry.after_update


def failing(self: Telemetry, update: int, **told: object) -> None:
    plain(self, update, **told)
    if update == 2:
        raise tf.errors.InternalError(None, None, "CUDA_ERROR_UNKNOWN: unknown error")


for module in (own_cards, run_telemetry):
    module.places_of_devices = lambda devices: [CardPlace(1)]
Telemetry.after_update = failing
sys.argv = ["distxcept", "train", *sys.argv[1:]]
entry()
