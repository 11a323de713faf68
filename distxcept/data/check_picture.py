"""A picture of the data: some samples of each class as the model would see them, and how many each class has."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from distxcept.data.decode import View, render
from distxcept.data.keyed import hashes, key
from distxcept.data.sources.base import Source

_TILE, _GAP, _NAME_WIDTH, _BAR_WIDTH = 96, 4, 170, 260
_COLUMNS, _MOST_CLASSES = 6, 40


def draw(source: Source, title: str, path: Path, *, max_pixels: int) -> None:
    """One row a class: name, count, bar, samples picked by a hash, the same every time."""
    counts = np.bincount(source.labels[source.labels >= 0], minlength=len(source.class_names))
    shown = min(_MOST_CLASSES, len(counts))
    row_height = _TILE + _GAP
    width = _NAME_WIDTH + _BAR_WIDTH + _COLUMNS * (_TILE + _GAP) + _GAP
    image = Image.new("RGB", (width, 40 + shown * row_height + 24), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    pen.text((8, 10), title, "black", ImageFont.load_default(18))
    for label in range(shown):
        top = 40 + label * row_height
        middle = top + _TILE // 2
        pen.text((8, middle - 8), _shorten(source.class_names[label]), "black", font)
        length = int((_BAR_WIDTH - 70) * counts[label] / max(1, counts.max()))
        pen.rectangle((_NAME_WIDTH, middle - 10, _NAME_WIDTH + length, middle + 10), "#4a7fb5")
        pen.text((_NAME_WIDTH + length + 6, middle - 8), str(counts[label]), "black", font)
        for column, index in enumerate(_pick(source, label)):
            left = _NAME_WIDTH + _BAR_WIDTH + column * (_TILE + _GAP)
            image.paste(Image.fromarray(_tile(source, index, max_pixels)), (left, top))
    if shown < len(counts):
        pen.text((8, image.height - 22), f"and {len(counts) - shown} more classes", "black", font)
    image.save(path)


def _pick(source: Source, label: int) -> list[int]:
    members = np.flatnonzero(source.labels == label)
    return [int(index) for index in members[np.argsort(hashes(key(label), members))][:_COLUMNS]]


def _tile(source: Source, index: int, max_pixels: int) -> np.ndarray:
    """A bad image is a red square: it is part of what there is to see."""
    out = np.zeros((_TILE, _TILE, 3), np.uint8)
    try:
        render(source.read(index), View(), out, max_pixels=max_pixels)
    except Exception:  # the check itself has listed it with the reason
        out[...] = (200, 30, 30)
    return out


def _shorten(name: str) -> str:
    return name if len(name) <= 20 else name[:19] + "…"
