"""`distxcept export`: a trained model as a file of another program's format."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import SNAPSHOT_HELP, positive_number
from distxcept.export.order import FORMATS, QUANTIZATIONS, Order

if TYPE_CHECKING:
    from distxcept.export.exporting import Exported

EXAMPLES = """\
examples:
  distxcept export runs/quickstart:best --format keras
  distxcept export runs/quickstart --format savedmodel --output /models/flowers/1
  distxcept export runs/quickstart --format tflite --quantize int8
  distxcept export runs/quickstart --format onnx --data photos/test

Every export is loaded again and compared with the model on images of the validation data (or of --data) before it gets its
name. Class names and preprocessing travel inside of it, and stand beside it as NAME.json.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "write a trained model as Keras, SavedModel, TFLite or ONNX"
    parser = subparsers.add_parser(
        "export",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("snapshot", metavar="RUN", help=SNAPSHOT_HELP)
    parser.add_argument("--format", choices=FORMATS, required=True, help=", ".join(FORMATS))
    parser.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        help="tflite only: none, float16 (the default there) or int8, with ranges from the training data",
    )
    parser.add_argument("--output", metavar="PATH", help="file or folder to write (RUN/export/…)")
    parser.add_argument("--data", metavar="FOLDER", help="images to compare on, in one sub-folder per class")
    parser.add_argument(
        "--images", type=positive_number, default=500, metavar="N", help="images to compare on, at most (500)"
    )
    parser.add_argument("--force", action="store_true", help="replace what is there")
    parser.add_argument("--config", metavar="FILE", help="instead of the run's own config.yaml")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import os

    from distxcept.cluster import detect
    from distxcept.launch.environment import prepare_environment
    from distxcept.training.trained import find_trained

    order = Order(args.format, args.quantize, args.images)
    trained = find_trained(args.snapshot, config_file=args.config)
    placement = detect(os.environ)
    prepare_environment(trained.config, verbose=args.verbose)

    from distxcept.cli.startup import chatter_aside

    with chatter_aside(args.verbose) as aside:
        from distxcept.export.exporting import export, export_data, export_path
        from distxcept.training.predict import Predictor, one_device

        def notice(message: str) -> None:
            if not args.quiet:
                aside.tell(message)

        data, training_data = export_data(trained, order, args.data, notice)
        predictor = Predictor(trained, one_device(trained.config.engine, placement))
        path = export_path(trained, order, args.output)
        exported = export(predictor, order, path, data=data, training_data=training_data, force=args.force)
    _print(args, exported)
    return 0


def _print(args: argparse.Namespace, exported: "Exported") -> None:
    import json

    if args.json:
        result = {
            "path": str(exported.path),
            "size_bytes": exported.size_bytes,
            "zero_share": exported.zero_share,
            "packed_bytes": exported.packed_bytes,
            **exported.comparison.to_json(),
            "warning": exported.warning,
        }
        print(json.dumps(result))
        return
    print(f"{exported.path}: {exported.size_bytes / 1e6:.2f} MB; {exported.comparison.sentence()}")
    if exported.packed_bytes is not None:
        share, packed = exported.zero_share, exported.packed_bytes / 1e6
        print(f"{share:.1%} of the kernels' weights are zero: packed (zip) it takes {packed:.2f} MB")
    if exported.warning:
        print(f"warning: {exported.warning}", file=sys.stderr)
