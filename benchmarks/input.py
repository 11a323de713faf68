"""Input pipelines side by side: JPEG files of 500 × 375 to batches of 299 px, images a second on all cores.

    python benchmarks/input.py [--images 400] [--seconds 2] [--rounds 7] [--json]

All contestants run in one process, by turns, several rounds; a ratio is the median over the rounds, so that other
work on the machine touches all of them alike. Processor time an image is given beside it: on a machine that is busy
with other things it says more than the clock. Ours and Pillow include random resized crop and flip; the tf.data
pipelines do less work (no crop, no flip), as they are commonly written.
"""

import argparse
import io
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from PIL import Image

from distxcept.batching import plan_batches
from distxcept.config.schema import Augment, Crop, FolderSource, RecordsSource
from distxcept.data.pack import pack
from distxcept.data.pipeline import updates
from distxcept.data.sources import Source, open_source

SIZE, BATCH = 299, 32
CROP = Crop(scale=(0.08, 1.0))
TARGETS = {
    "plain tf.data": 1.5,
    "image_dataset_from_directory": 1.5,
    "Pillow": 2.0,
    "decode alone": 0.6,
    "ours, folder": 1.0,
}

Contestant = Callable[[float], tuple[float, float]]
"""Runs for about so many seconds and returns images a second, and processor seconds an image."""


def write_images(folder: Path, count: int) -> float:
    """Photograph-like pictures: structure at all scales and fine grain. Returns the mean size in kB."""
    random = np.random.default_rng(0)
    sizes = []
    for number in range(count):
        pixels = np.zeros((375, 500, 3), np.float32)
        for scale in (2, 4, 8, 16, 32, 64, 128):
            coarse = random.standard_normal((375 // scale + 2, 500 // scale + 2, 3), np.float32)
            layers = [
                Image.fromarray(coarse[..., c]).resize((500, 375), Image.Resampling.BICUBIC) for c in range(3)
            ]
            pixels += np.stack([np.asarray(layer) for layer in layers], -1) * scale**0.8
        pixels = 128 + 45 * pixels / pixels.std() + random.standard_normal(pixels.shape, np.float32) * 7
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
        target = folder / f"class_{number % 2}" / f"{number:05d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.getvalue())
        sizes.append(len(file.getvalue()) / 1000)
    return statistics.mean(sizes)


def measure(batches: Iterator[int], seconds: float) -> tuple[float, float]:
    """Speed and processor time, after a first batch that does not count."""
    next(batches)
    begun, worked, images = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        images += next(batches)
    return images / elapsed, (time.process_time() - worked) / max(1, images)


def of_dataset(dataset: tf.data.Dataset) -> Contestant:
    def run(seconds: float) -> tuple[float, float]:
        return measure((int(tf.shape(batch)[0]) for batch in dataset.repeat()), seconds)

    return run


def ours(source: Source) -> Contestant:
    plan = plan_batches(samples=len(source), global_batch=BATCH, virtual_batch=BATCH, micro_batch=BATCH)

    def run(seconds: float) -> tuple[float, float]:
        with updates(
            source, plan, replicas=range(1), image_size=SIZE, seed=0, augment=Augment(flip=True, crop=CROP)
        ) as batches:
            return measure((batch.real_samples for batch in batches), seconds)

    return run


def pillow(paths: list[str], workers: int) -> Contestant:
    def one(path: str) -> np.ndarray:
        random = np.random.default_rng()
        with Image.open(path) as image:
            side = np.sqrt(image.width * image.height * random.uniform(0.08, 1))
            stretch = np.exp(random.uniform(-0.14, 0.14))
            w, h = min(image.width, side * stretch), min(image.height, side / stretch)
            left, top = random.uniform(0, image.width - w), random.uniform(0, image.height - h)
            cut = image.convert("RGB").resize(
                (SIZE, SIZE), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h)
            )
            if random.random() < 0.5:
                cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            return np.asarray(cut)

    def run(seconds: float) -> tuple[float, float]:
        def batches(pool: ThreadPoolExecutor) -> Iterator[int]:
            while True:
                for start in range(0, len(paths) - BATCH + 1, BATCH):
                    yield len(np.stack(list(pool.map(one, paths[start : start + BATCH]))))

        with ThreadPoolExecutor(workers) as pool:
            return measure(batches(pool), seconds)

    return run


def contestants(folder: Path, packed: Path, workers: int) -> dict[str, Contestant]:
    paths = sorted(str(path) for path in folder.glob("*/*.jpg"))
    files = tf.data.Dataset.from_tensor_slices(paths)
    auto = tf.data.AUTOTUNE

    def decode(path: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=3)

    def plain(path: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(decode(path), [SIZE, SIZE]) / 255.0

    import keras

    directory = keras.utils.image_dataset_from_directory(
        folder, image_size=(SIZE, SIZE), batch_size=BATCH, shuffle=False, labels=None, verbose=False
    )
    return {
        "ours, folder": ours(open_source(FolderSource(kind="folder", path=str(folder)))),
        "ours, records": ours(open_source(RecordsSource(kind="records", path=str(packed)))),
        "plain tf.data": of_dataset(files.map(plain, num_parallel_calls=auto).batch(BATCH).prefetch(auto)),
        "image_dataset_from_directory": of_dataset(directory),
        "Pillow": pillow(paths, workers),
        "decode alone": of_dataset(
            files.map(lambda path: decode(path)[0, 0], num_parallel_calls=auto).batch(BATCH).prefetch(auto)
        ),
    }


def run(images: int, seconds: float, rounds: int) -> dict[str, object]:
    home = Path(tempfile.mkdtemp(prefix="distxcept-input-"))
    workers = len(os.sched_getaffinity(0))
    try:
        kilobytes = write_images(home / "images", images)
        pack(FolderSource(kind="folder", path=str(home / "images")), home / "packed", workers=workers)
        running = contestants(home / "images", home / "packed", workers)
        speeds: dict[str, list[float]] = {name: [] for name in running}
        processor: dict[str, list[float]] = {name: [] for name in running}
        for number in range(rounds + 1):
            for name, contestant in running.items():
                speed, processor_seconds = contestant(seconds)
                if number:  # the first round warms up
                    speeds[name].append(speed)
                    processor[name].append(processor_seconds)
    finally:
        shutil.rmtree(home)
    ratios = {
        name: statistics.median(a / b for a, b in zip(_ours(name, speeds), speeds[name], strict=True))
        for name in TARGETS
    }
    return {
        "cores": workers,
        "mean_file_kB": round(kilobytes, 1),
        "images_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "processor_ms_per_image": {
            name: round(1000 * statistics.median(values), 2) for name, values in processor.items()
        },
        "load_average": os.getloadavg()[0],
        "ours_against": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "wanted_at_least": TARGETS,
        "reached": all(ratio >= TARGETS[name] for name, ratio in ratios.items()),
    }


def _ours(against: str, speeds: dict[str, list[float]]) -> list[float]:
    return speeds["ours, records" if against == "ours, folder" else "ours, folder"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each contestant in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = run(args.images, args.seconds, args.rounds)
    if args.json:
        print(json.dumps(result, indent=1))
        return 0
    print(f"{result['cores']} cores, JPEG of {result['mean_file_kB']} kB on average")
    for name, speed in result["images_per_second"].items():  # type: ignore[attr-defined]
        milliseconds = result["processor_ms_per_image"][name]  # type: ignore[index]
        print(f"  {name:32s} {speed:6d} images/s   {milliseconds:6.2f} ms of processor time an image")
    for name, ratio in result["ours_against"].items():  # type: ignore[attr-defined]
        first = "ours, records" if name == "ours, folder" else "ours"
        print(f"  {first} / {name}: {ratio:.2f} (wanted: {TARGETS[name]})")
    return 0 if result["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
