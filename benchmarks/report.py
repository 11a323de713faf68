"""How long a browser takes to open the report of a long run, by the browser's own clock.

    python benchmarks/report.py [--openings 5] [--settle 2] [--report FILE]

The run is made up, in the format of real ones: 10,000 updates told one by one, two ranks with two cards each, the largest
confusion matrix that is shown, 24 pictures of noise. Each opening is a Chromium of its own, without a cache, which has had
`--settle` seconds to start: one that was just started is busy with itself.
Times count from the start of the navigation; the limit is 1 second and 3 MB.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration")]

LIMIT_SECONDS = 1.0
LIMIT_BYTES = 3_000_000
TIMES = """(async () => {
  const [navigation] = performance.getEntriesByType("navigation");
  // A frame after the next one holds all that was drawn; the question itself takes a moment, so this is an upper bound.
  for (let k = 0; k < 2; k++) await new Promise(requestAnimationFrame);
  const seen = performance.now();
  let paint = [];
  while (!(paint = performance.getEntriesByName("first-contentful-paint")).length)
    await new Promise(resolve => setTimeout(resolve, 10));
  return {
    "page parsed": navigation.domInteractive,
    "first paint": paint[0].startTime,
    "load event": navigation.loadEventEnd,
    "curves on the screen, at the latest": seen,
  };
})()"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--openings", type=int, default=5)
    parser.add_argument("--settle", type=float, default=2.0, help="seconds from a browser's start (2)")
    parser.add_argument("--report", type=Path, help="the report of a real run instead of a made-up one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.report or write(Path(folder) / "long")
        size = path.stat().st_size
        found = [opening(path, args.settle) for _ in range(args.openings)]
    print(f"{size / 1e6:.2f} MB")
    for what in found[0]:
        each = [times[what] for times in found]
        print(f"{what}: {statistics.median(each):.3f} s by the median, {max(each):.3f} s at most")
    within = size <= LIMIT_BYTES and max(max(times.values()) for times in found) <= LIMIT_SECONDS
    print(f"{'within' if within else 'BEYOND'} the limit of {LIMIT_SECONDS:g} s and {LIMIT_BYTES / 1e6:g} MB")
    return 0 if within else 1


def write(folder: Path) -> Path:
    from long_run import make_long_run

    from distxcept.report.html import write_report

    run = make_long_run(folder)
    began = time.perf_counter()
    path = write_report(run)
    print(f"written in {time.perf_counter() - began:.2f} s")
    return path


def opening(path: Path, settle_seconds: float) -> dict[str, float]:
    """Seconds from the start of the navigation."""
    from browser import Browser

    with Browser() as browser:
        time.sleep(settle_seconds)
        browser.open(path)
        times = browser.run(TIMES)
        if browser.messages:
            sys.exit(f"messages of the page: {browser.messages}")
    return {what: milliseconds / 1000 for what, milliseconds in times.items()}


if __name__ == "__main__":
    sys.exit(main())
