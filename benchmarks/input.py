"""Input pipelines side by side: JPEG files of 500 × 375 to batches of 299 px, images a second on all cores.

    python benchmarks/input.py [--quality 92] [--images 320] [--seconds 1.2] [--rounds 7] [--json]

All contestants read the same files in one process, by turns, several rounds; a ratio is the median over the rounds,
so that other work on the machine touches all of them alike. Processor time an image is given beside it: on a machine
that is busy with other things it says more than the clock.

Ours always includes random resized crop and flip. The aims compare it with the two TensorFlow pipelines as they are
commonly written, without any augmentation: less work, so the stricter comparison. The same two with augmentation
stand beside them, and Pillow does the same crop and flip.

The pictures are noise with the falling spectrum of photographs, and grain. At quality 92 a file has about 63 kB,
which is the mean of flower_photos (3,670 files in 221.83 MiB); `--quality 80` gives about 30 kB.
"""

import argparse
import io
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from distxcept.batching import plan_batches
from distxcept.config.schema import Augment, Crop, FolderSource, RecordsSource
from distxcept.data.pack import pack
from distxcept.data.pipeline import updates
from distxcept.data.scaling.bilinear import kernel
from distxcept.data.sources import Source, open_source

SIZE, BATCH = 299, 32
CROP = Crop(scale=(0.08, 1.0))
WARM_UP_SECONDS = 0.4
AUTO = tf.data.AUTOTUNE
AIMS = {
    "plain tf.data": 1.5,
    "image_dataset_from_directory": 1.5,
    "Pillow": 2.0,
    "decode alone": 0.6,
    "ours, folder": 1.0,
}
"""Least ratio of our speed, from the folder, to theirs; in the last line from records to from the folder."""

Contestant = Callable[[float], tuple[float, float]]
"""Runs for about so many seconds and returns images a second, and processor seconds an image."""


def write_images(folder: Path, count: int, quality: int) -> float:
    """Returns the mean size in kB."""

    def one(number: int) -> int:
        data = _picture(number, quality)
        target = folder / f"class_{number % 2}" / f"{number:05d}.jpg"
        target.write_bytes(data)
        return len(data)

    for label in range(2):
        (folder / f"class_{label}").mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        return statistics.mean(pool.map(one, range(count))) / 1000


def _picture(number: int, quality: int) -> bytes:
    """Structure at all scales, stronger the coarser it is, and fine grain."""
    draw = np.random.default_rng(number).standard_normal
    pixels = np.zeros((375, 500, 3), np.float32)
    for scale in (2, 4, 8, 16, 32, 64, 128):
        coarse = draw((3, 375 // scale + 2, 500 // scale + 2), np.float32)
        layers = [Image.fromarray(c).resize((500, 375), Image.Resampling.BICUBIC) for c in coarse]
        pixels += np.stack([np.asarray(layer) for layer in layers], -1) * scale**0.8
    pixels = 128 + 45 * pixels / pixels.std() + draw(pixels.shape, np.float32) * 7
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def measure(batches: Iterator[int], seconds: float) -> tuple[float, float]:
    """Speed and processor time, after a warm-up in which pipelines find their settings and fill their buffers."""
    until = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < until:
        next(batches)
    begun, worked, images = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        images += next(batches)
    return images / elapsed, (time.process_time() - worked) / max(1, images)


def ours(source: Source) -> Contestant:
    plan = plan_batches(samples=len(source), global_batch=BATCH, virtual_batch=BATCH, micro_batch=BATCH)

    def run(seconds: float) -> tuple[float, float]:
        with updates(
            source, plan, replicas=range(1), image_size=SIZE, seed=0, augment=Augment(flip=True, crop=CROP)
        ) as batches:
            return measure((batch.real_samples for batch in batches), seconds)

    return run


def of_dataset(dataset: tf.data.Dataset) -> Contestant:
    def run(seconds: float) -> tuple[float, float]:
        return measure((int(tf.shape(batch)[0]) for batch in dataset.repeat()), seconds)

    return run


def decode(path: tf.Tensor, **options: Any) -> tf.Tensor:
    return tf.io.decode_jpeg(tf.io.read_file(path), channels=3, **options)


def plain(path: tf.Tensor) -> tf.Tensor:
    return tf.image.resize(decode(path), [SIZE, SIZE]) / 255.0


def plain_augmented(path: tf.Tensor) -> tf.Tensor:
    image = decode(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros([1, 0, 4]),
        area_range=CROP.scale,
        aspect_ratio_range=CROP.ratio,
        use_image_if_no_bounding_boxes=True,
    )
    image = tf.image.resize(tf.slice(image, begin, size), [SIZE, SIZE])
    return tf.image.random_flip_left_right(image) / 255.0


def decoded(path: tf.Tensor) -> tf.Tensor:
    """Nothing but decoding, with the fast settings that ours has; one pixel, so that no batch has to be copied."""
    return decode(path, dct_method="INTEGER_FAST")[0, 0]


def directory(folder: Path, side: int = SIZE) -> tf.data.Dataset:
    return keras.utils.image_dataset_from_directory(
        folder, image_size=(side, side), batch_size=BATCH, shuffle=False, labels=None, verbose=False
    )


def directory_augmented(folder: Path) -> tf.data.Dataset:
    """As Keras' guides do it: load somewhat larger, then layers for a random crop and flip."""
    layers = [keras.layers.RandomCrop(SIZE, SIZE), keras.layers.RandomFlip("horizontal")]

    def change(images: tf.Tensor) -> tf.Tensor:
        for layer in layers:
            images = layer(images, training=True)
        return images

    return directory(folder, SIZE * 8 // 7).map(change, num_parallel_calls=AUTO).prefetch(AUTO)


def pillow(paths: list[str], workers: int) -> Contestant:
    def one(path: str) -> np.ndarray:
        with Image.open(path) as image:
            side = (image.width * image.height * random.uniform(*CROP.scale)) ** 0.5
            stretch = (random.uniform(*CROP.ratio)) ** 0.5
            w, h = min(image.width, side * stretch), min(image.height, side / stretch)
            left, top = random.uniform(0, image.width - w), random.uniform(0, image.height - h)
            cut = image.convert("RGB").resize(
                (SIZE, SIZE), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h)
            )
            if random.random() < 0.5:
                cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            return np.asarray(cut)

    def run(seconds: float) -> tuple[float, float]:
        with ThreadPoolExecutor(workers) as pool:
            return measure(_ahead(pool, one, paths), seconds)

    return run


def _ahead(pool: ThreadPoolExecutor, one: Callable[[str], np.ndarray], paths: list[str]) -> Iterator[int]:
    """Batches of `one`, with enough under way that no worker waits for the end of a batch."""
    waiting: deque[Future[np.ndarray]] = deque()
    for path in cycle(paths):
        waiting.append(pool.submit(one, path))
        if len(waiting) == 3 * BATCH:
            yield len(np.stack([waiting.popleft().result() for _ in range(BATCH)]))


def contestants(folder: Path, packed: Path, workers: int) -> dict[str, Contestant]:
    paths = sorted(str(path) for path in folder.glob("*/*.jpg"))

    def mapped(change: Callable[[tf.Tensor], tf.Tensor]) -> Contestant:
        files = tf.data.Dataset.from_tensor_slices(paths)
        return of_dataset(files.map(change, num_parallel_calls=AUTO).batch(BATCH).prefetch(AUTO))

    return {
        "ours, folder": ours(open_source(FolderSource(kind="folder", path=str(folder)))),
        "ours, records": ours(open_source(RecordsSource(kind="records", path=str(packed)))),
        "plain tf.data": mapped(plain),
        "plain tf.data, crop and flip": mapped(plain_augmented),
        "image_dataset_from_directory": of_dataset(directory(folder)),
        "the same, crop and flip": of_dataset(directory_augmented(folder)),
        "Pillow": pillow(paths, workers),
        "decode alone": mapped(decoded),
    }


def compete(
    running: dict[str, Contestant], seconds: float, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in running}
    for number in range(rounds + 1):
        # To and fro, so that nobody always comes after the same one.
        for name in list(running)[:: 1 if number % 2 else -1]:
            result = running[name](seconds)
            if number:  # the first round warms up
                results[name].append(result)
    return results


def run(images: int, quality: int, seconds: float, rounds: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="distxcept-input-"))
    workers = len(os.sched_getaffinity(0))
    try:
        kilobytes = write_images(home / "images", images, quality)
        pack(FolderSource(kind="folder", path=str(home / "images")), home / "packed", workers=workers)
        results = compete(contestants(home / "images", home / "packed", workers), seconds, rounds)
    finally:
        shutil.rmtree(home)
    speeds = {name: [speed for speed, _ in values] for name, values in results.items()}
    ratios = {name: _ratio(name, speeds) for name in speeds if name != "ours, records"}
    return {
        "cores": workers,
        "mean_file_kB": round(kilobytes, 1),
        "compiled_kernel": kernel() is not None,
        "images_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "processor_ms_per_image": {
            name: round(1000 * statistics.median(cost for _, cost in values), 2)
            for name, values in results.items()
        },
        "load_average": os.getloadavg()[0],
        "ours_against": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "wanted_at_least": AIMS,
        "reached": all(ratios[name] >= aim for name, aim in AIMS.items()),
    }


def _ratio(against: str, speeds: dict[str, list[float]]) -> float:
    own = speeds["ours, records" if against == "ours, folder" else "ours, folder"]
    return statistics.median(a / b for a, b in zip(own, speeds[against], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quality", type=int, default=92, help="of the JPEG files")
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=1.2, help="for each contestant in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = run(args.images, args.quality, args.seconds, args.rounds)
    if args.json:
        print(json.dumps(result, indent=1))
        return 0
    way = "compiled kernel" if result["compiled_kernel"] else "no compiled kernel"
    print(f"{result['cores']} cores, JPEG of {result['mean_file_kB']} kB on average, {way}")
    for name, speed in result["images_per_second"].items():
        milliseconds = result["processor_ms_per_image"][name]
        print(f"  {name:32s} {speed:6d} images/s   {milliseconds:6.2f} ms of processor time an image")
    for name, ratio in result["ours_against"].items():
        first = "ours, records" if name == "ours, folder" else "ours"
        aim = f" (aim: {AIMS[name]})" if name in AIMS else ""
        print(f"  {first} / {name}: {ratio:.2f}{aim}")
    return 0 if result["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
