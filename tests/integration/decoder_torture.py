"""Sends mutated image files through the decoder and prints what came of it; run as a program by the tests.

python decoder_torture.py FILES SEED
"""

import json
import os
import sys
import time
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import odd_files
import tensorflow as tf

from distxcept.config.augment import Augment, Crop
from distxcept.data.augment import View, draw_views
from distxcept.data.decode import render, render_all
from distxcept.data.sources.base import BadSample, Pixels, Sample
from distxcept.memory.limit import peak_bytes

MAX_PIXELS = 4_000_000
SIZE = 71


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


def one(data: bytes, view: View, out: Pixels) -> int | Exception:
    try:
        return render(Sample(encoded=data), view, out, max_pixels=MAX_PIXELS)
    except Exception as error:
        return error


def told_apart(result: int | Exception, other: int | Exception, out: Pixels, other_out: Pixels) -> bool:
    """Whether the two ways to decode differ: in the verdict, or in a pixel."""
    if isinstance(result, Exception) or isinstance(other, Exception):
        return repr(result) != repr(other)
    return result != other or not np.array_equal(out, other_out)


def main(files: int, seed: int) -> dict[str, object]:
    counts = {"files": 0, "decoded": 0, "bad": 0, "told_apart": 0}
    odd: dict[str, int] = {}
    slowest, before = 0.0, 0
    batch: list[bytes] = []
    outs, other_outs = ([np.empty((SIZE, SIZE, 3), np.uint8) for _ in range(16)] for _ in range(2))

    def run() -> None:
        nonlocal slowest
        indices = np.arange(counts["files"], counts["files"] + len(batch))
        views = draw_views(Augment(crop=Crop(scale=(0.1, 1.0))), seed=seed, epoch=0, indices=indices)
        begun = time.perf_counter()
        with tf.device("/CPU:0"):
            samples = [Sample(encoded=data) for data in batch]
            results = render_all(samples, views, outs[: len(batch)], max_pixels=MAX_PIXELS)
            slowest = max(slowest, time.perf_counter() - begun)
            others = [one(*arguments) for arguments in zip(batch, views, other_outs, strict=False)]
        counts["told_apart"] += sum(map(told_apart, results, others, outs, other_outs))
        for result in results:
            counts["files"] += 1
            counts["bad" if isinstance(result, Exception) else "decoded"] += 1
            if isinstance(result, Exception) and not isinstance(result, BadSample):
                name = f"{type(result).__name__}: {result}"[:120]
                odd[name] = odd.get(name, 0) + 1
        batch.clear()

    for number, data in enumerate(mutated(files, seed)):
        batch.append(data)
        if len(batch) == 16:
            run()
        if number == 159:
            before = peak_bytes()
    if batch:
        run()
    return {
        **counts,
        "other_errors": odd,
        "slowest_16_seconds": round(slowest, 2),
        "memory_growth_MiB": round((peak_bytes() - before) / 2**20, 1),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
