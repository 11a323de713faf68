"""Pictures for writers that take pictures: confusion matrix and samples with their predictions, as PNG. No TensorFlow."""

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distxcept.report.runs import Entry

if TYPE_CHECKING:
    from PIL import Image

MOST_CLASSES = 200
CELL = 112
LINE = 14
COLUMNS = 4
GROUND, INK, WRONG, RIGHT = (255, 255, 255), (30, 33, 38), (179, 38, 30), (26, 127, 75)


def confusion_png(found: Entry) -> bytes | None:
    """A square a class; each row darkened by its own share. None where there are too many classes to see anything."""
    from PIL import Image, ImageDraw

    names = found["classes"]
    count = len(names)
    if not 0 < count <= MOST_CLASSES:
        return None
    cell = max(4, min(40, 800 // count))
    named = count <= 30
    left = 110 if named else 0
    picture = Image.new("RGB", (left + cell * count + 1, cell * count + 1), GROUND)
    draw = ImageDraw.Draw(picture)
    totals = [0] * count
    for label, _, n in found["confusion"]:
        totals[label] += n
    for label, predicted, n in found["confusion"]:
        share = n / totals[label]
        colour = tuple(round(255 + (dark - 255) * share) for dark in (37, 99, 168))
        x, y = left + predicted * cell, label * cell
        draw.rectangle((x, y, x + cell, y + cell), fill=colour)
        if named and cell >= 24:
            draw.text((x + cell / 2, y + cell / 2), str(n), fill=GROUND if share > 0.5 else INK, anchor="mm")
    if named:
        for k, name in enumerate(names):
            draw.text((left - 4, k * cell + cell / 2), _fitting(name), fill=INK, anchor="rm")
    return _png(picture)


def samples_png(samples: Sequence[Entry], names: Sequence[str]) -> bytes | None:
    """A sheet: each sample with what it was called, how surely, and what it is. None without samples."""
    from PIL import Image, ImageDraw

    if not samples:
        return None
    rows = -(-len(samples) // COLUMNS)
    tall = CELL + 2 * LINE + 6
    sheet = Image.new("RGB", (COLUMNS * (CELL + 6), rows * tall), GROUND)
    draw = ImageDraw.Draw(sheet)
    for k, sample in enumerate(samples):
        x, y = k % COLUMNS * (CELL + 6), k // COLUMNS * tall
        picture = _decoded(sample.get("thumbnail"))
        if picture is not None:
            sheet.paste(picture, (x, y))
        right = sample["label"] == sample["predicted"]
        sure = "" if sample["confidence"] is None else f" {sample['confidence']:.0%}"
        called = _fitting(names[sample["predicted"]]) + sure
        draw.text((x, y + CELL), called, fill=RIGHT if right else WRONG)
        if not right:
            draw.text((x, y + CELL + LINE), f"is {_fitting(names[sample['label']])}", fill=INK)
    return _png(sheet)


def _fitting(name: str) -> str:
    """Pillow's own font knows Latin letters only."""
    return name.encode("latin-1", "replace").decode("latin-1")[:16]


def _decoded(thumbnail: str | None) -> "Image.Image | None":
    from PIL import Image

    if thumbnail is None:
        return None
    return Image.open(io.BytesIO(base64.b64decode(thumbnail.partition(",")[2]))).convert("RGB")


def _png(picture: "Image.Image") -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
