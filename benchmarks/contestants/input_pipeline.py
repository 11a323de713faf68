"""A contestant of benchmarks/input.py: one input pipeline, in a process that imports nothing else.

    input_pipeline.py NAME ROOT FOLDER PACKED SETTING      ROOT: where the distxcept lies that this process imports

It speaks the protocol of distxcept.prove.race.serve by itself, because an older distxcept has no such module:

    < 3                                   three steps, please
    > {"seconds": 0.9, "peak_bytes": …}   done
    < stop                                or the end of stdin

Every turn opens the pipeline anew and runs it for a moment before the clock starts: so nobody begins with batches that
were read out of turn, and tf.data, which measures its stages by the clock, never counts the time it stood still.
"""

import itertools
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

STEP_BATCHES = 8
WARM_UP_SECONDS = 0.8
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Of a random crop: part of the area, width / height."""

Opened = AbstractContextManager[Iterator[int]]
"""A pipeline that runs: the number of images of each batch."""


def main(name: str, root: str, folder: str, packed: str, setting: str) -> None:
    given = json.loads(setting)
    size, batch = given["image_size"], given["batch"]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    chosen: dict[str, Callable[[], tuple[Callable[[], Opened], dict[str, Any]]]] = {
        "ours-folder": lambda: ours(root, "folder", folder, size, batch),
        "ours-records": lambda: ours(root, "records", packed, size, batch),
        "earlier": lambda: earlier(root, folder, size, batch),
        "plain": lambda: mapped(plain, folder, size, batch),
        "plain-crop": lambda: mapped(plain_augmented, folder, size, batch),
        "directory": lambda: directory(folder, size, batch),
        "directory-crop": lambda: directory_augmented(folder, size, batch),
        "decode": lambda: mapped(decoded, folder, size, batch),
        "pillow": lambda: pillow(folder, size, batch),
    }
    images = STEP_BATCHES * batch
    opened, about = chosen[name]()
    measure(opened, 1, images)
    first = measure(opened, 1, images)
    start = {"images": images, "step_seconds": first["seconds"], **about, **first}
    print(json.dumps(start), file=answers, flush=True)
    while (line := sys.stdin.readline().strip()) not in ("", "stop"):
        print(json.dumps(measure(opened, int(line), int(line) * images)), file=answers, flush=True)


def measure(opened: Callable[[], Opened], steps: int, wanted: int) -> dict[str, float]:
    """`wanted`: how many images these steps have."""
    with opened() as batches:
        until = time.perf_counter() + WARM_UP_SECONDS
        while time.perf_counter() < until:
            next(batches)
        begun, worked = time.perf_counter(), time.process_time()
        images = sum(itertools.islice(batches, steps * STEP_BATCHES))
        seconds, work = time.perf_counter() - begun, time.process_time() - worked
    if images != wanted:
        sys.exit(f"{images} images where {wanted} were expected")
    return {"seconds": seconds, "processor_seconds": work, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


# ---- distxcept: as it is, and as it was ----


def ours(
    root: str, kind: str, path: str, size: int, batch: int
) -> tuple[Callable[[], Opened], dict[str, Any]]:
    from distxcept.batching import plan_batches
    from distxcept.config.schema import FolderSource, RecordsSource
    from distxcept.data import op
    from distxcept.data.dataset import Input, Reading
    from distxcept.data.sources import open_source
    from distxcept.data.sources.base import MAX_PIXELS

    check_import(root)
    section = (
        FolderSource(kind="folder", path=path)
        if kind == "folder"
        else RecordsSource(kind="records", path=path)
    )
    source = open_source(section)
    plan = plan_batches(samples=len(source), global_batch=batch, virtual_batch=batch, micro_batch=batch)
    reading = Reading(source=source, image_size=size, seed=0, augment=augment(), max_pixels=MAX_PIXELS)

    @contextmanager
    def opened() -> Iterator[Iterator[int]]:
        with Input(reading, plan, range(1)) as updates:
            yield (int(update[0].weights.numpy().sum()) for update in updates)

    return opened, {"compiled": op.library() is not None}


def earlier(root: str, folder: str, size: int, batch: int) -> tuple[Callable[[], Opened], dict[str, Any]]:
    """The thread pool that this package had before."""
    from distxcept.batching import plan_batches
    from distxcept.config.schema import FolderSource
    from distxcept.data.sources import open_source

    check_import(root)
    pipeline = import_module("distxcept.data.pipeline")
    kernel = import_module("distxcept.data.scaling.bilinear").kernel()
    source = open_source(FolderSource(kind="folder", path=folder))
    plan = plan_batches(samples=len(source), global_batch=batch, virtual_batch=batch, micro_batch=batch)

    @contextmanager
    def opened() -> Iterator[Iterator[int]]:
        with pipeline.updates(
            source, plan, replicas=range(1), image_size=size, seed=0, augment=augment()
        ) as updates:
            yield (update.real_samples for update in updates)

    return opened, {"compiled": kernel is not None}


def augment() -> Any:
    from distxcept.config.schema import Augment, Crop

    return Augment(flip=True, crop=Crop(scale=SCALE, ratio=RATIO))


def check_import(root: str) -> None:
    import distxcept

    found = Path(distxcept.__file__).parents[1]
    if found != Path(root):
        sys.exit(f"imported the distxcept of {found}, not of {root}")


# ---- what others do ----


def paths_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*/*.jpg"))


def running(dataset: Any) -> Callable[[], Opened]:
    @contextmanager
    def opened() -> Iterator[Iterator[int]]:
        yield (int(batch.shape[0]) for batch in dataset.repeat())

    return opened


def mapped(
    change: Callable[[Any, int], Any], folder: str, size: int, batch: int
) -> tuple[Callable[[], Opened], dict[str, Any]]:
    import tensorflow as tf

    files = tf.data.Dataset.from_tensor_slices(paths_in(folder))
    images = files.map(lambda path: change(path, size), num_parallel_calls=tf.data.AUTOTUNE)
    return running(images.batch(batch).prefetch(tf.data.AUTOTUNE)), {}


def decode(path: Any, **options: Any) -> Any:
    import tensorflow as tf

    return tf.io.decode_jpeg(tf.io.read_file(path), channels=3, **options)


def plain(path: Any, size: int) -> Any:
    import tensorflow as tf

    return tf.image.resize(decode(path), [size, size]) / 255.0


def plain_augmented(path: Any, size: int) -> Any:
    import tensorflow as tf

    image = decode(path)
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros([1, 0, 4]),
        area_range=SCALE,
        aspect_ratio_range=RATIO,
        use_image_if_no_bounding_boxes=True,
    )
    image = tf.image.resize(tf.slice(image, begin, extent), [size, size])
    return tf.image.random_flip_left_right(image) / 255.0


def decoded(path: Any, size: int) -> Any:
    """Nothing but decoding, with the fast settings that ours has; one pixel, so that no batch has to be copied."""
    return decode(path, dct_method="INTEGER_FAST")[0, 0]


def directory_dataset(folder: str, side: int, batch: int) -> Any:
    import keras

    return keras.utils.image_dataset_from_directory(
        folder, image_size=(side, side), batch_size=batch, shuffle=False, labels=None, verbose=False
    )


def directory(folder: str, size: int, batch: int) -> tuple[Callable[[], Opened], dict[str, Any]]:
    return running(directory_dataset(folder, size, batch)), {}


def directory_augmented(folder: str, size: int, batch: int) -> tuple[Callable[[], Opened], dict[str, Any]]:
    """As Keras' guides do it: load somewhat larger, then layers for a random crop and flip."""
    import keras
    import tensorflow as tf

    layers = [keras.layers.RandomCrop(size, size), keras.layers.RandomFlip("horizontal")]

    def change(images: Any) -> Any:
        for layer in layers:
            images = layer(images, training=True)
        return images

    larger = directory_dataset(folder, size * 8 // 7, batch)
    return running(larger.map(change, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)), {}


def pillow(folder: str, size: int, batch: int) -> tuple[Callable[[], Opened], dict[str, Any]]:
    import numpy as np
    from PIL import Image

    def one(path: str) -> Any:
        with Image.open(path) as image:
            side = (image.width * image.height * random.uniform(*SCALE)) ** 0.5
            stretch = (random.uniform(*RATIO)) ** 0.5
            w, h = min(image.width, side * stretch), min(image.height, side / stretch)
            left, top = random.uniform(0, image.width - w), random.uniform(0, image.height - h)
            box = (left, top, left + w, top + h)
            cut = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box)
            if random.random() < 0.5:
                cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            return np.asarray(cut)

    def ahead(pool: ThreadPoolExecutor) -> Iterator[int]:
        """Enough under way that no thread waits for the end of a batch."""
        waiting: deque[Future[Any]] = deque()
        for path in itertools.cycle(paths_in(folder)):
            waiting.append(pool.submit(one, path))
            if len(waiting) == 3 * batch:
                yield len(np.stack([waiting.popleft().result() for _ in range(batch)]))

    @contextmanager
    def opened() -> Iterator[Iterator[int]]:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            yield ahead(pool)

    return opened, {}


if __name__ == "__main__":
    main(*sys.argv[1:])
