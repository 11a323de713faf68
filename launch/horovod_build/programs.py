"""Asking other programs about themselves."""

import subprocess


def output_of(command: list[str], stream: str = "stdout") -> str:
    """What the program prints, or nothing if it is not there, fails or hangs: the caller then says so."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return getattr(done, stream) if done.returncode == 0 else ""
