"""The most memory that a device held: of a GPU what TensorFlow's allocator gave out, on a CPU what the process had."""

import tensorflow as tf

from distxcept.memory.limit import forget_peak, peak_bytes, process_bytes, release_memory


class Peak:
    def __init__(self, device: str):
        self._gpu = device if device.startswith("GPU") else None

    def reset(self) -> int:
        """Forgets the peak so far; bytes held now. OSError where the kernel does not let it be forgotten."""
        if self._gpu is not None:
            tf.config.experimental.reset_memory_stats(self._gpu)
            return int(tf.config.experimental.get_memory_info(self._gpu)["current"])
        release_memory()  # the C library keeps what is freed, and later work would grow into it unseen
        forget_peak()
        return process_bytes("VmRSS")

    def read(self) -> int:
        if self._gpu is not None:
            return int(tf.config.experimental.get_memory_info(self._gpu)["peak"])
        return peak_bytes()
