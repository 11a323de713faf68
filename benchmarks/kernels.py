"""Xception's convolutions as TensorFlow's convolutions and as matrix products, kernel by kernel, on a CPU.

    python benchmarks/kernels.py                               299 px, batch 8, as many threads as cores, oneDNN on
    taskset -c 0 python benchmarks/kernels.py --plain          one core, TensorFlow's own kernels

Both take turns on the same numbers, one call each; medians. Depthwise kernels are left out: they are no products.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from distxcept.cluster.compute import ONEDNN
from distxcept.model.layout import Layout
from distxcept.prove.race import table
from distxcept.prove.race.setting import Setting

PASSES = ("forward", "input", "kernel")


class Form(NamedTuple):
    size: int
    inputs: int
    outputs: int
    stride: int
    padding: str
    side: int
    """Pixels of its input."""

    def __str__(self) -> str:
        window = f"{self.size}×{self.size}, " if self.size > 1 else ""
        strided = f", stride {self.stride}" if self.stride > 1 else ""
        return f"{window}{self.inputs} → {self.outputs} at {self.side} px{strided}"


def forms(layout: Layout, image_size: int) -> Counter[Form]:
    """Each kind of convolution with how often the network has it, in forward order."""
    return Counter(
        Form(1 if one.separable else one.size, one.inputs, one.outputs, one.stride, one.padding, side)
        for one, side in layout.convolutions(image_size)
    )


def compare(form: Form, batch: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Seconds of each pass, as a convolution and as a product."""
    import tensorflow as tf

    from distxcept.model.convolution import input_gradient, kernel_gradient, output

    x = tf.random.normal([batch, form.side, form.side, form.inputs])
    kernel = tf.random.normal([form.size, form.size, form.inputs, form.outputs])
    how = (form.stride, form.padding)
    dy = tf.random.normal(output(x, kernel, *how, products=False).shape)

    def compiled(name: str, products: bool) -> Callable[[], Any]:
        functions = {
            "forward": lambda x, k, _: output(x, k, *how, products),
            "input": lambda x, k, dy: input_gradient(x, k, dy, *how, products),
            "kernel": lambda x, k, dy: kernel_gradient(x, k, dy, *how, products),
        }
        traced = tf.function(functions[name], autograph=False)
        return lambda: traced(x, kernel, dy)

    def once(run: Callable[[], Any]) -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    found = {}
    for name in PASSES:
        runs = [compiled(name, products) for products in (False, True)]
        taken: list[list[float]] = [[], []]
        for run in runs:
            once(run)  # traces
        deadline = time.perf_counter() + seconds
        while not taken[1] or time.perf_counter() < deadline:
            for times, run in zip(taken, runs, strict=True):
                times.append(once(run))
        found[name] = (statistics.median(taken[0]), statistics.median(taken[1]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image-size", type=int, default=299)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each pass of each kernel, about")
    parser.add_argument("--plain", action="store_true", help="without oneDNN")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    os.environ[ONEDNN] = "0" if args.plain else "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    setting, about = Setting(args.image_size, args.batch, width=args.width), table.machine()
    library = "TensorFlow's own kernels" if args.plain else "oneDNN"
    print(f"### Convolutions → matrix products, ms, {setting}, {library}\n")
    print(
        "| kernel | times | forward | gradient of the input | gradient of the kernel |\n|---|---|---|---|---|"
    )
    rows, totals = [], {name: [0.0, 0.0] for name in PASSES}
    for form, count in forms(Layout(classes=2, width=args.width), args.image_size).items():
        seconds = compare(form, args.batch, args.seconds)
        cells = [f"{old * 1e3:.1f} → {new * 1e3:.1f}" for old, new in seconds.values()]
        print(f"| {form} | {count} | {' | '.join(cells)} |", flush=True)
        rows.append({"kernel": str(form), "times": count, **seconds})
        for name, both in seconds.items():
            totals[name] = [total + count * one for total, one in zip(totals[name], both, strict=True)]
    cells = [f"{old * 1e3:.0f} → {new * 1e3:.0f}" for old, new in totals.values()]
    print(f"| all | | {' | '.join(cells)} |\n\n{table.describe(about)}")
    if args.json:
        found = {"setting": str(setting), "library": library, "rows": rows, "totals": totals}
        Path(args.json).write_text(json.dumps({"machine": about, "kernels": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
