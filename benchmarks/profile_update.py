"""Where the time of one update goes, operation by operation, and how far it is from what matrix products alone would take.

    python benchmarks/profile_update.py                                  299 px, batch 8
    python benchmarks/profile_update.py --image-size 128 --batch 16 engine.threads=1

TensorFlow's profiler says when each operation ran. Operations run beside each other and share the cores, so their times add
up to more than the update took; what counts are the parts. The limit is what the convolutions' multiplications would take at
the speed of a large float32 matrix product, measured in the same process.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from distxcept.model.layout import Layout
from distxcept.prove.race import ours, table
from distxcept.prove.race.setting import Setting

WARM_UP, UPDATES = 3, 3
SIDE = 4096


def operation_seconds(folder: Path) -> Counter[str]:
    """Seconds by kind of operation, from the trace below the folder."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found: Counter[str] = Counter()
    for file in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace()
        space.ParseFromString(file.read_bytes())
        for plane in space.planes:
            for event in (event for line in plane.lines for event in line.events):
                # An operation is traced as NAME:KIND, everything else as words or Class::Method.
                name, separator, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                if separator and name and not name.endswith(":") and " " not in kind:
                    found[kind.removeprefix("_MklNative").removeprefix("_Mkl")] += event.duration_ps / 1e12
    return found


def matrix_flops_per_second() -> float:
    import tensorflow as tf

    a, b = (tf.random.normal([SIDE, SIDE]) for _ in range(2))
    multiply = tf.function(tf.linalg.matmul)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        multiply(a, b).numpy()
        seconds.append(time.perf_counter() - began)
    return 2 * SIDE**3 / min(seconds)


def products(layout: Layout, image_size: int) -> int:
    """Multiplications of one image's forward pass."""
    total = layout.features * layout.classes
    for convolution, side in layout.convolutions(image_size):
        kernels = sum(parameter.elements for parameter in convolution.parameters() if parameter.decays)
        total += kernels * convolution.output_side(side) ** 2
    return total


def training_flops(setting: Setting) -> float:
    """Of the multiplications and additions of an update's convolutions: forward, gradient of inputs, of weights."""
    layout = Layout(classes=setting.classes, width=setting.width)
    return 3 * 2 * setting.batch * products(layout, setting.image_size)


def profile(setting: Setting, overrides: list[str]) -> dict[str, Any]:
    args = argparse.Namespace(
        setting=setting.to_json(),
        devices=1,
        share="each",
        side_by_side=1,
        overrides=overrides,
        stock=False,
        bare=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        step = ours.build(args, Path(folder))
        import tensorflow as tf

        step.run(WARM_UP)
        began = time.perf_counter()
        step.run(UPDATES)
        seconds = (time.perf_counter() - began) / UPDATES
        with tf.profiler.experimental.Profile(folder):
            step.run(UPDATES)
        by_kind = operation_seconds(Path(folder))
    flops = matrix_flops_per_second()
    return {
        "seconds": seconds,
        "limit_seconds": training_flops(setting) / flops,
        "matrix_flops_per_second": flops,
        "operations": {kind: value / UPDATES for kind, value in by_kind.most_common()},
    }


def show(found: dict[str, Any], setting: Setting, most: int) -> None:
    total = sum(found["operations"].values())
    print(f"### Where an update goes, {setting}\n")
    print("| operation | ms | part |\n|---|---|---|")
    for kind, seconds in list(found["operations"].items())[:most]:
        print(f"| {kind} | {seconds * 1e3:.0f} | {seconds / total:.1%} |")
    print(
        f"\n- an update takes {found['seconds']:.2f} s; the convolutions' arithmetic at the speed of a matrix product "
        f"({found['matrix_flops_per_second'] / 1e9:.0f} GFLOPS) would take {found['limit_seconds']:.2f} s: "
        f"{found['limit_seconds'] / found['seconds']:.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of the config")
    parser.add_argument("--image-size", type=int, default=299)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=16, help="operations in the table")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    setting, about = Setting(args.image_size, args.batch, width=args.width), table.machine()
    found = profile(setting, args.overrides)
    show(found, setting, args.most)
    print(f"\n{table.describe(about)}")
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": about, "profile": found}, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the run that was begun is not to be ended


if __name__ == "__main__":
    main()
