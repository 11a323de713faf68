"""Generated images: learnable, the same on every machine, nothing to download. For tests, benchmarks, first steps.

A class is a direction and a width of stripes; position, colours, contrast and noise vary from image to image.
All arithmetic is on integers, so that no processor rounds differently.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.keyed import hashes, key
from distxcept.data.sources.base import Sample, Source, digest_of

_SIDE = 96
# Integer direction vectors, ordered so that few classes get clearly different ones.
_DIRECTIONS = np.array([(4, 0), (0, 4), (3, 3), (3, -3), (4, 2), (2, 4), (4, -2), (2, -4)], np.int64)


class SyntheticSource(Source):
    raw = True

    def __init__(self, samples: int, classes: int, stream: int):
        self._samples = samples
        self._stream = stream
        self._labels = (np.arange(samples, dtype=np.int64) % classes).astype(np.int32)
        self.class_names = tuple(f"class_{k:0{len(str(classes - 1))}d}" for k in range(classes))

    def __len__(self) -> int:
        return self._samples

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._labels

    def name(self, index: int) -> str:
        return f"synthetic image {index}"

    def read(self, index: int) -> Sample:
        return Sample(pixels=_draw(int(self._labels[index]), self._stream, index))

    def digest(self) -> str:
        return digest_of("synthetic", [1, self._samples, len(self.class_names), self._stream])


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> SyntheticSource:
    """Training and validation draw from different streams, so they never share an image."""
    del class_names
    return SyntheticSource(section.samples, section.classes, key(*split.encode()))


def _draw(label: int, stream: int, index: int) -> NDArray[np.uint8]:
    bits = hashes(key(stream, index), np.arange(16)) >> np.uint64(40)
    draw = bits.astype(np.int64)
    direction = _DIRECTIONS[label % len(_DIRECTIONS)]
    period = 64 + 48 * (label // len(_DIRECTIONS))
    y, x = np.meshgrid(np.arange(_SIDE), np.arange(_SIDE), indexing="ij")
    phase = (direction[0] * x + direction[1] * y + draw[0]) % period
    wave = np.abs(2 * phase - period) * 256 // period
    low = draw[1:4] % 128
    span = 48 + draw[4:7] % 80
    noise = (hashes(key(stream, index, 1), np.arange(_SIDE * _SIDE * 3)) >> np.uint64(58)).astype(np.int64)
    pixels = low + wave[..., None] * span // 256 + noise.reshape(_SIDE, _SIDE, 3)
    return np.clip(pixels, 0, 255).astype(np.uint8)
