"""Sends mutated image files through the decoder and prints what came of it; run as a program by the tests.

python decoder_torture.py FILES SEED
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import odd_files
import tensorflow as tf

from distxcept.data import op
from distxcept.data.decode import View, fill, render, upright_sizes
from distxcept.data.sources.base import BadSample, Pixels, Sample
from distxcept.data.window import Window
from distxcept.memory.limit import peak_bytes

MAX_PIXELS = 4_000_000
SIZE = 71
BATCH = 16
GOOD = (3, 10)
"""Places in a batch where a whole image stands among the mutated ones."""


def mutated(files: int, seed: int) -> Iterator[bytes]:
    """The same files for the same seed."""
    random = np.random.default_rng(seed)
    originals = [content for content, _, _ in odd_files.good_files().values()]
    originals += [odd_files.encode(odd_files.picture(k, 300, 200), "JPEG", quality=75) for k in range(3)]
    for _ in range(files):
        data = bytearray(originals[random.integers(len(originals))])
        for _ in range(random.integers(1, 4)):
            _MUTATIONS[random.integers(len(_MUTATIONS))](data, random, originals)
        yield bytes(data)


def _flip_bytes(data: bytearray, random: np.random.Generator, _: list[bytes]) -> None:
    for at in random.integers(0, max(1, len(data)), random.integers(1, 20)):
        if at < len(data):
            data[at] = random.integers(256)


def _flip_in_head(data: bytearray, random: np.random.Generator, _: list[bytes]) -> None:
    for at in random.integers(0, max(1, min(len(data), 700)), random.integers(1, 6)):
        if at < len(data):
            data[at] = random.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, random.integers(256)])


def _cut(data: bytearray, random: np.random.Generator, _: list[bytes]) -> None:
    del data[random.integers(len(data) + 1) :]


def _remove(data: bytearray, random: np.random.Generator, _: list[bytes]) -> None:
    start = random.integers(len(data) + 1)
    del data[start : start + random.integers(1, 200)]


def _repeat(data: bytearray, random: np.random.Generator, _: list[bytes]) -> None:
    start = random.integers(len(data) + 1)
    data[start:start] = data[start : start + random.integers(1, 300)] * random.integers(1, 5)


def _insert_noise(data: bytearray, random: np.random.Generator, _: list[bytes]) -> None:
    start = random.integers(len(data) + 1)
    data[start:start] = random.bytes(random.integers(1, 100))


def _splice(data: bytearray, random: np.random.Generator, originals: list[bytes]) -> None:
    other = originals[random.integers(len(originals))]
    data[random.integers(len(data) + 1) :] = other[random.integers(len(other)) :]


_MUTATIONS = (_flip_bytes, _flip_in_head, _cut, _remove, _repeat, _insert_noise, _splice)


@tf.function(input_signature=[tf.TensorSpec([BATCH], tf.string)])
def sizes_of(contents: tf.Tensor) -> tf.Tensor:
    return upright_sizes(contents, raw=False, max_pixels=MAX_PIXELS)


@tf.function(
    input_signature=[
        *(tf.TensorSpec([BATCH], tf.string), tf.TensorSpec([BATCH, 4], tf.int32)),
        tf.TensorSpec([BATCH], tf.bool),
    ]
)
def filled(contents: tf.Tensor, windows: tf.Tensor, flips: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return fill(contents, windows, flips, size=SIZE, raw=False, max_pixels=MAX_PIXELS)


def random_windows(sizes: Pixels, random: np.random.Generator) -> np.ndarray:
    """Of any shape; 0, 0, 0, 0 for what cannot be used."""
    extents = np.ceil(sizes * random.uniform(0.1, 1, sizes.shape)).astype(int)
    starts = np.floor((sizes - extents + 1) * random.random(sizes.shape)).astype(int)
    return np.where(sizes.any(1, keepdims=True), np.concatenate([starts, extents], 1), 0).astype(np.int32)


def alone(data: bytes, window: np.ndarray, flip: bool) -> Pixels | Exception:
    """The same image by itself and without the compiled operation."""
    out = np.empty((SIZE, SIZE, 3), np.uint8)
    try:
        view = View(lambda width, height: Window(*map(int, window)), bool(flip))
        render(Sample(encoded=data), view, out, max_pixels=MAX_PIXELS)
    except Exception as error:
        return error
    return out


def main(files: int, seed: int) -> dict[str, object]:
    counts = {"files": 0, "decoded": 0, "bad": 0, "told_apart": 0, "good_ones_harmed": 0}
    odd: dict[str, int] = {}
    slowest, before = 0.0, 0
    random = np.random.default_rng(seed)
    whole = odd_files.good_files()["plain.jpg"][0]
    compiled = op.library() is not None
    source = mutated(files, seed)
    while counts["files"] < files:
        mutants = list(itertools.islice(source, BATCH - len(GOOD)))
        batch = mutants + [b""] * (BATCH - len(GOOD) - len(mutants))
        for place in GOOD:
            batch.insert(place, whole)
        begun = time.perf_counter()
        windows = random_windows(sizes_of(tf.constant(batch)).numpy(), random)
        flips = random.random(BATCH) < 0.5
        images, ok = (part.numpy() for part in filled(tf.constant(batch), windows, flips))
        slowest = max(slowest, time.perf_counter() - begun)
        os.environ[op.VARIABLE] = "off"
        others = [alone(*arguments) for arguments in zip(batch, windows, flips, strict=True)]
        del os.environ[op.VARIABLE]
        for place, (image, good, other) in enumerate(zip(images, ok, others, strict=True)):
            failed = isinstance(other, Exception)
            same = not good and not image.any() if failed else good and np.array_equal(image, other)
            if place in GOOD:
                counts["good_ones_harmed"] += not same or failed
                continue
            counts["told_apart"] += not same
            if failed and not isinstance(other, BadSample):
                name = f"{type(other).__name__}: {other}"[:120]
                odd[name] = odd.get(name, 0) + 1
            if batch[place]:
                counts["decoded" if good else "bad"] += 1
        counts["files"] += len(mutants)
        before = before or (peak_bytes() if counts["files"] >= 160 else 0)
    return {
        **counts,
        "compiled": compiled,
        "other_errors": odd,
        "slowest_batch_seconds": round(slowest, 2),
        "memory_growth_MiB": round((peak_bytes() - before) / 2**20, 1),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
