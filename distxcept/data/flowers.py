"""Draws a small image folder to learn from: five kinds of flowers as real JPEG files, nothing to download.

    python -m distxcept.data.flowers DEST [--train N] [--validation N] [--seed S]

The kinds differ in shape; colours, size, place, turn, background, light, blur and noise vary over all of them,
so that no single pixel or colour gives the answer. The same seed gives the same pictures. A folder that is
already there and was made with the same settings is kept; one is never left half made.
"""

import argparse
import colorsys
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from distxcept.errors import DataError

VERSION = 1
MARKER = "flowers.json"

Color = tuple[int, int, int]
Point = tuple[float, float]
Random = np.random.Generator


class _Canvas:
    """Drawing in units of the flower: the centre is (0, 0), the flower reaches about 1, turned and placed."""

    def __init__(self, image: Image.Image, centre: Point, radius: float, turn: float):
        self._draw = ImageDraw.Draw(image)
        self._centre, self._radius, self._turn = centre, radius, turn

    def _place(self, points: list[Point]) -> list[Point]:
        c, s = math.cos(self._turn), math.sin(self._turn)
        x0, y0, r = *self._centre, self._radius
        return [(x0 + r * (c * x - s * y), y0 + r * (s * x + c * y)) for x, y in points]

    def polygon(self, points: list[Point], fill: Color, outline: Color | None = None) -> None:
        self._draw.polygon(self._place(points), fill=fill, outline=outline)

    def petal(self, at: Point, angle: float, length: float, width: float, point: float, fill: Color) -> None:
        """A leaf shape that starts at `at`; `point` 0 is an ellipse, 1 has a sharp tip."""
        outline = _shade(fill, 0.75)
        steps = 14
        half = []
        for k in range(steps + 1):
            t = k / steps
            bulge = math.sin(math.pi * t) ** (1 - 0.35 * point) * (1 - point * 0.55 * t)
            half.append((length * t, width * bulge / 2))
        c, s = math.cos(angle), math.sin(angle)
        ring = half + [(x, -y) for x, y in reversed(half)]
        self.polygon([(at[0] + c * x - s * y, at[1] + s * x + c * y) for x, y in ring], fill, outline)

    def disc(self, at: Point, radius: float, fill: Color, outline: Color | None = None) -> None:
        angles = [2 * math.pi * k / 24 for k in range(24)]
        self.polygon(
            [(at[0] + radius * math.cos(a), at[1] + radius * math.sin(a)) for a in angles], fill, outline
        )


def _shade(color: Color, factor: float) -> Color:
    red, green, blue = (max(0, min(255, round(channel * factor))) for channel in color)
    return red, green, blue


def _hue(random: Random, hue: float, spread: float, saturation: Point, value: Point) -> Color:
    rgb = colorsys.hsv_to_rgb(
        (hue + random.uniform(-spread, spread)) % 1, random.uniform(*saturation), random.uniform(*value)
    )
    red, green, blue = (round(255 * channel) for channel in rgb)
    return red, green, blue


def _petal_color(random: Random) -> Color:
    """Any colour that flowers have, for every kind alike: white, yellow, orange, red, pink, violet, blue."""
    if random.random() < 0.2:
        return _hue(random, 0.1, 0.1, (0.0, 0.15), (0.85, 1.0))
    return _hue(
        random, float(random.choice([0.14, 0.08, 0.0, 0.93, 0.8, 0.68])), 0.03, (0.5, 0.95), (0.65, 1.0)
    )


def _green(random: Random) -> Color:
    return _hue(random, 0.31, 0.06, (0.4, 0.8), (0.3, 0.65))


def _daisy(canvas: _Canvas, random: Random) -> None:
    """Few long round petals with gaps, small centre."""
    petals, color = int(random.integers(8, 14)), _petal_color(random)
    for k in range(petals):
        angle = 2 * math.pi * k / petals + random.normal(0, 0.06)
        canvas.petal((0, 0), angle, random.uniform(0.85, 1.0), random.uniform(0.24, 0.32), 0.0, color)
    canvas.disc((0, 0), random.uniform(0.17, 0.24), _hue(random, 0.13, 0.03, (0.6, 0.9), (0.7, 0.95)))


def _sunflower(canvas: _Canvas, random: Random) -> None:
    """Many short pointed petals around a large dark dotted disc."""
    petals, color = int(random.integers(18, 28)), _petal_color(random)
    disc = random.uniform(0.48, 0.6)
    for layer in (0.0, 0.5):
        for k in range(petals):
            angle = 2 * math.pi * (k + layer) / petals + random.normal(0, 0.04)
            at = (0.8 * disc * math.cos(angle), 0.8 * disc * math.sin(angle))
            canvas.petal(at, angle, random.uniform(0.5, 0.62) - 0.1 * layer, 0.2, 1.0, color)
    dark = _hue(random, 0.07, 0.03, (0.4, 0.8), (0.2, 0.4))
    canvas.disc((0, 0), disc, dark)
    for k in range(60):
        r, a = disc * math.sqrt((k + 0.5) / 60), 2.399963 * k
        canvas.disc((r * math.cos(a), r * math.sin(a)), 0.03, _shade(dark, random.uniform(0.6, 1.7)))


def _tulip(canvas: _Canvas, random: Random) -> None:
    """A cup seen from the side, on a stem with two leaves."""
    color, green = _petal_color(random), _green(random)
    canvas.polygon([(-0.05, 0.1), (0.05, 0.1), (0.07, 1.1), (-0.07, 1.1)], green)
    for side in (-1, 1):
        lean = -math.pi / 2 + side * random.uniform(0.3, 0.6)
        canvas.petal((0, 1.0), lean, random.uniform(0.7, 1.0), 0.22, 0.8, _shade(green, 0.9))
    for angle, shade in ((-0.28, 0.85), (0.28, 0.85), (0.0, 1.0)):
        tilt = -math.pi / 2 + angle * random.uniform(0.8, 1.3)
        canvas.petal((0.25 * angle, 0.22), tilt, random.uniform(1.0, 1.15), 0.6, 0.6, _shade(color, shade))


def _rose(canvas: _Canvas, random: Random) -> None:
    """Broad petals in rings that close towards the middle."""
    color, turn = _petal_color(random), random.uniform(0, 2 * math.pi)
    for ring, reach in enumerate((0.62, 0.48, 0.34, 0.22, 0.1)):
        petals = 6 - min(ring, 3)
        for k in range(petals):
            angle = turn + 2 * math.pi * k / petals + random.normal(0, 0.1)
            at = (reach * math.cos(angle), reach * math.sin(angle))
            shade = _shade(color, random.uniform(0.85, 1.0) - 0.1 * ring)
            canvas.disc(at, 0.4 - 0.05 * ring, shade, _shade(shade, 0.7))
        turn += 0.5


def _lavender(canvas: _Canvas, random: Random) -> None:
    """A spike of small blossoms along a stem, often with neighbours."""
    color, green = _petal_color(random), _green(random)
    for stem in range(int(random.integers(1, 4))):
        x = (0.0, -0.5, 0.5)[stem] + random.normal(0, 0.05)
        canvas.polygon([(x - 0.03, -0.9), (x + 0.03, -0.9), (x + 0.04, 1.1), (x - 0.04, 1.1)], green)
        rows = int(random.integers(8, 12))
        for row in range(rows):
            y, reach = -1.0 + 1.3 * row / rows, 0.08 + 0.1 * row / rows
            for side in (-1, 0, 1):
                at = (x + side * reach, y + random.normal(0, 0.03))
                canvas.disc(at, random.uniform(0.07, 0.11), _shade(color, random.uniform(0.75, 1.05)))


KINDS: dict[str, Callable[[_Canvas, Random], None]] = {
    "daisy": _daisy,
    "lavender": _lavender,
    "rose": _rose,
    "sunflower": _sunflower,
    "tulip": _tulip,
}


def draw_flower(kind: str, random: Random) -> Image.Image:
    """One picture, drawn at twice its size and shrunk, so that edges are smooth."""
    width, height = (int(side) for side in random.integers(110, 181, 2))
    # Drawn small and enlarged: it is out of focus anyway, and blurring is what costs time here.
    image = _background(random, width, height).resize((2 * width, 2 * height), Image.Resampling.BILINEAR)
    reach = 2 * min(width, height) * random.uniform(0.3, 0.46)
    centre = (width * random.uniform(0.75, 1.25), height * random.uniform(0.75, 1.25))
    upright = kind in ("tulip", "lavender")
    turn = random.normal(0, 0.3) if upright else random.uniform(0, 2 * math.pi)
    KINDS[kind](_Canvas(image, centre, reach, turn), random)
    image = image.reduce(2)
    if random.random() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.3)))
    pixels = np.asarray(image, np.float32)
    light = random.uniform(0.7, 1.2) + np.linspace(-1, 1, width)[:, None] * random.uniform(-0.2, 0.2)
    noise = random.standard_normal(pixels.shape, np.float32) * random.uniform(2, 14)
    return Image.fromarray((pixels * light + noise).clip(0, 255).astype(np.uint8))


def _background(random: Random, width: int, height: int) -> Image.Image:
    """Grass, earth or sky out of focus, with leaves and specks that may look like parts of flowers."""
    hue = float(random.choice([0.3, 0.09, 0.55]))
    spots = [[_hue(random, hue, 0.06, (0.15, 0.6), (0.3, 0.85)) for _ in range(4)] for _ in range(3)]
    coarse = np.array(spots, np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    canvas = _Canvas(image, (0, 0), 1.0, 0.0)
    for _ in range(int(random.integers(3, 12))):
        at = (random.uniform(0, width), random.uniform(0, height))
        length = random.uniform(0.1, 0.35) * width
        canvas.petal(at, random.uniform(0, 2 * math.pi), length, length * 0.2, 0.5, _green(random))
    for _ in range(int(random.integers(0, 6))):
        at = (random.uniform(0, width), random.uniform(0, height))
        canvas.disc(at, random.uniform(0.01, 0.05) * width, _petal_color(random))
    return image.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 2)))


def _write(root: Path, seed: int, job: tuple[str, int]) -> None:
    split, index = job
    kind = sorted(KINDS)[index % len(KINDS)]
    random = np.random.default_rng([seed, split == "train", index])
    image = draw_flower(kind, random)
    image.save(root / split / kind / f"{kind}_{index:05d}.jpg", quality=int(random.integers(80, 96)))


def make_flowers(dest: Path, *, train: int = 960, validation: int = 200, seed: int = 0) -> bool:
    """Makes the folder; False if it was there already, made by the same settings."""
    marker = {"version": VERSION, "train": train, "validation": validation, "seed": seed}
    if dest.exists():
        if (dest / MARKER).is_file() and json.loads((dest / MARKER).read_text()) == marker:
            return False
        raise DataError(
            f"{dest} exists and was not made with these settings; remove it or choose another folder"
        )
    dest.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent))
    try:
        jobs = [(split, k) for split, n in (("train", train), ("validation", validation)) for k in range(n)]
        for split in ("train", "validation"):
            for kind in KINDS:
                (aside / split / kind).mkdir(parents=True)
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(partial(_write, aside, seed), jobs, chunksize=32))
        (aside / MARKER).write_text(json.dumps(marker) + "\n")
        aside.chmod(0o755)
        aside.rename(dest)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m distxcept.data.flowers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("dest", type=Path, metavar="DEST", help="folder to make, with train/ and validation/")
    parser.add_argument("--train", type=int, default=960, metavar="N", help="training images (960)")
    parser.add_argument("--validation", type=int, default=200, metavar="N", help="validation images (200)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="other seed, other pictures (0)")
    args = parser.parse_args(argv)
    try:
        made = make_flowers(args.dest, train=args.train, validation=args.validation, seed=args.seed)
    except DataError as error:
        print(f"flowers: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"{'made' if made else 'kept'} {args.dest}: {args.train} training, {args.validation} validation images"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
