"""Processor time of the telemetry: what a look at the devices and its lines in the files cost.

    python benchmarks/telemetry.py            8 cards of a driver library of ours, which answers at once
    python benchmarks/telemetry.py --real     the cards of this machine

The library of ours shows what our own code costs; what a real driver takes to answer comes on top. Printed as a share of a
core at the usual 5 seconds, beside the limit of 0.5 %.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOOKS = 500
EVERY_SECONDS = 5.0
LIMIT = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--real", action="store_true", help="ask the cards of this machine")
    if not parser.parse_args().real and "FAKE_NVML_SCENARIO" not in os.environ:
        restart_with_our_library()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder))


def restart_with_our_library() -> None:
    """The loader reads its search path at the start of a process only."""
    with tempfile.TemporaryDirectory() as folder:
        source = ROOT / "tests" / "fakes" / "nvml" / "fake_nvml.c"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", f"{folder}/libnvidia-ml.so.1", str(source)], check=True
        )
        environ = {**os.environ, "FAKE_NVML_SCENARIO": "eight", "LD_LIBRARY_PATH": folder}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environ, check=False).returncode)


def measure(folder: Path) -> None:
    from distxcept.memory.notices import WINDOW, Judge
    from distxcept.memory.nvml import read_gpus
    from distxcept.memory.telemetry import Telemetry
    from distxcept.report.telemetry_files import FILE, TelemetryFiles

    found = read_gpus()
    cards = [card.index for card in found] if isinstance(found, list) else []
    judge = Judge(own_pids={os.getpid()}, larger=lambda moment, free: None, host_free_bytes=lambda: 2**34)

    def read_cards():
        answer = read_gpus(cards)
        return answer if isinstance(answer, list) else []

    telemetry = Telemetry(
        every_seconds=EVERY_SECONDS,
        judge=judge,
        output=TelemetryFiles(folder, rank=0, ranks=2, tensorboard=True),
        read_cards=read_cards,
        device_bytes=lambda: (0,) * len(cards),
    )
    assert telemetry._output is not None
    telemetry._output.open(0)
    seconds = {"reading the cards": cost(read_cards)}
    update = 0

    def look() -> None:
        nonlocal update
        update += 3
        telemetry.after_update(update, micro_batch=8, remat=False, waited_seconds=0.0)
        telemetry._look()

    for _ in range(2 * WINDOW):
        look()
    seconds["a whole look: cards, host, judgement, file, TensorBoard"] = cost(look)
    told = cost(lambda: telemetry.after_update(1, micro_batch=8, remat=False, waited_seconds=0.0), 100_000)
    lines = (folder / FILE).read_bytes().splitlines()
    print(f"{len(cards)} cards, {len(lines[-1])} bytes a line")
    for what, each in seconds.items():
        print(
            f"{what}: {each * 1e3:.2f} ms processor time, {each / EVERY_SECONDS:.4%} of a core every {EVERY_SECONDS:g} s"
        )
    print(f"an update tells where it is: {told * 1e6:.2f} µs")
    share = seconds.popitem()[1] / EVERY_SECONDS
    print(f"{'within' if share <= LIMIT else 'BEYOND'} the limit of {LIMIT:.1%} of a core")


def cost(action, times: int = LOOKS) -> float:
    """Processor seconds of the process for one `action`, kernel included."""
    action()
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times


if __name__ == "__main__":
    main()
