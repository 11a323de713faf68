import base64
import io
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from PIL import Image

from distxcept.data.sources.base import BadSample, Sample, Source
from distxcept.report.prediction_sections import predictions
from distxcept.report.predictions_file import (
    THUMBNAIL_PIXELS,
    describe_outcomes,
    thumbnail,
    write_outcomes,
)
from distxcept.report.runs import Run


@dataclass
class Found:
    labels: np.ndarray
    predicted: np.ndarray
    losses: np.ndarray
    indices: np.ndarray = field(init=False)
    confidences: np.ndarray = field(init=False)

    def __post_init__(self):
        self.indices = np.arange(len(self.labels))
        self.confidences = np.full(len(self.labels), 0.5)


class Pictures(Source):
    """Index 0 pixels, 1 a JPEG file, 2 rubbish, 3 gone, 4 turned by EXIF; then pixels again."""

    class_names = ("a", "b")

    def __len__(self):
        return 40

    @property
    def labels(self):
        return np.zeros(len(self), np.int32)

    def name(self, index):
        return f"image-{index}.jpg"

    def read(self, index):
        if index == 1:
            file = io.BytesIO()
            Image.new("CMYK", (900, 300)).save(file, "JPEG")
            return Sample(encoded=file.getvalue())
        if index == 2:
            return Sample(encoded=b"rubbish")
        if index == 4:
            image, file, exif = Image.new("RGB", (300, 200), "blue"), io.BytesIO(), Image.Exif()
            image.paste("red", (0, 0, 300, 100))
            exif[0x0112] = 3
            image.save(file, "JPEG", exif=exif)
            return Sample(encoded=file.getvalue())
        if index == 3:
            raise BadSample("gone")
        return Sample(pixels=np.zeros((200, 100, 3), np.uint8))

    def digest(self):
        return ""


def shown(index: int) -> Image.Image:
    head, _, content = (thumbnail(Pictures(), index) or "").partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(content)))


@pytest.mark.parametrize("index", [0, 1, 4])
def test_a_thumbnail_is_the_square_that_the_model_sees(index):
    image = shown(index)
    assert (image.size, image.mode) == ((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS), "RGB")


def test_a_thumbnail_stands_upright():
    """The file's upper half is red, and EXIF says that it was taken with the camera on its head."""
    image = shown(4)
    top, bottom = image.getpixel((56, 10)), image.getpixel((56, 100))
    assert top[2] > 200 > 50 > top[0]
    assert bottom[0] > 200 > 50 > bottom[2]


@pytest.mark.parametrize("index", [2, 3])
def test_no_thumbnail_of_what_cannot_be_read(index):
    assert thumbnail(Pictures(), index) is None


def test_best_and_worst():
    losses = np.array([0.5, 0.1, 3.0, np.nan, 0.1, 2.0])
    found = Found(np.array([0, 0, 1, 1, 1, 0]), np.array([0, 0, 0, 0, 1, 1]), losses)
    told = describe_outcomes(found, Pictures(), 7)
    assert told["confusion"] == [[0, 0, 2], [0, 1, 1], [1, 0, 2], [1, 1, 1]]
    assert (told["samples"], told["update"], told["classes"]) == (6, 7, ["a", "b"])
    assert [one["index"] for one in told["best"]] == [1, 4, 0]
    assert [one["index"] for one in told["worst"]] == [3, 2, 5, 0, 4, 1]
    assert told["worst"][0]["loss"] is None
    json.dumps(told, allow_nan=False)


def test_few_are_shown_of_many(tmp_path):
    count = 40
    write_outcomes(
        tmp_path, Found(np.zeros(count, int), np.zeros(count, int), np.arange(count) / 7), Pictures(), 1
    )
    text = predictions(Run(tmp_path))
    assert text.count("<figure") == 24
    assert "No image was confused" in text
