"""Prints how many NVIDIA GPUs the driver of this machine shows; 0 without a driver.

`make` asks before anything is installed, so this is one file that needs the standard library only. Of a CUDA toolkit
without a driver it takes no notice.
"""

import ctypes

LIBRARY = "libnvidia-ml.so.1"  # comes with the driver, never with a toolkit


def count_gpus() -> int:
    try:
        nvml = ctypes.CDLL(LIBRARY)
        number = ctypes.c_uint()
        if nvml.nvmlInitWithFlags(0) != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) != 0:
            return 0
    except (OSError, AttributeError):  # no driver, or none with these functions
        return 0
    return number.value


if __name__ == "__main__":
    print(count_gpus())
