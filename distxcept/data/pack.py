"""Packs any source into TFRecord shards with an index: few large files, any sample one read away.

    plan (kept in the folder)  →  shards, each by one process: written aside, renamed  →  index, which makes it valid

Samples keep their numbers, so a run on the packed data makes the same updates as one on the original. What was
finished before an interruption is kept; a folder without its index is refused by the reader.
"""

import hashlib
import io
import json
import multiprocessing
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from distxcept.data.header import inspect
from distxcept.data.patience import read_patiently, reason_of
from distxcept.data.pillow import decode_with_pillow
from distxcept.data.records.example import encode_example, find_features
from distxcept.data.records.index import GOOD, ROW, read_index, write_index
from distxcept.data.records.shard import write_record
from distxcept.data.sources import Source, open_source
from distxcept.data.sources.base import BadSample, Sample
from distxcept.data.sources.records import PACKED_INDEX, PACKING_PLAN
from distxcept.errors import DataError

MAX_PIXELS = 100_000_000
SHARD_BYTES = 256 * 2**20
_PROBED = 64
"""Samples whose size is looked at to choose the number of shards."""


@dataclass(frozen=True)
class PackSettings:
    longest_side: int | None = None
    """Larger images are shrunk to it and stored as JPEG; others keep their bytes."""
    quality: int = 90
    shard_bytes: int = SHARD_BYTES


@dataclass(frozen=True)
class Packed:
    samples: int
    shards: int
    bytes: int
    bad: list[tuple[str, str]]
    """Name and reason of what cannot be decoded; it is packed all the same and counts as bad in training."""
    kept_shards: int
    """Shards that an earlier run had finished."""


Progress = Callable[[int, int], None]
"""Called with (samples done, all samples) now and then."""


def pack(
    section: Any,
    dest: Path,
    *,
    settings: PackSettings | None = None,
    class_names: tuple[str, ...] | None = None,
    workers: int,
    progress: Progress | None = None,
) -> Packed:
    settings = settings or PackSettings()
    source = open_source(section, class_names=class_names)
    if (dest / PACKED_INDEX).exists():
        raise DataError(f"{dest} is packed already; choose another folder or remove it")
    dest.mkdir(parents=True, exist_ok=True)
    shards = _plan(source, dest, settings)
    todo = [number for number in range(len(shards)) if not _is_done(dest, number, len(shards))]
    jobs = [(number, len(shards), shards[number]) for number in todo]
    done = len(source) - sum(len(samples) for _, _, samples in jobs)
    bad = _run(section, class_names, dest, settings, jobs, workers, _from(done, len(source), progress))
    return _finish(source, dest, len(shards), settings, bad, kept=len(shards) - len(todo))


def _from(done: int, total: int, progress: Progress | None) -> Callable[[int], None]:
    return lambda more: progress(done + more, total) if progress is not None else None


def _plan(source: Source, dest: Path, settings: PackSettings) -> list[range]:
    """The samples of each shard; the same again when packing goes on after an interruption."""
    path = dest / PACKING_PLAN
    wanted = {"source": source.digest(), "settings": asdict(settings)}
    if path.exists():
        found = json.loads(path.read_bytes())
        if {key: found.get(key) for key in wanted} != wanted:
            raise DataError(
                f"{dest} holds a packing of other data or settings, not finished; remove it first"
            )
        each = int(found["samples_per_shard"])
    else:
        if any(dest.iterdir()):
            raise DataError(f"{dest} is not empty; choose a new folder")
        each = _samples_per_shard(source, settings)
        _write_aside(path, json.dumps({**wanted, "samples_per_shard": each}).encode())
    return [range(start, min(start + each, len(source))) for start in range(0, len(source), each)]


def _samples_per_shard(source: Source, settings: PackSettings) -> int:
    sizes = []
    for index in np.linspace(0, len(source) - 1, min(_PROBED, len(source))).astype(int):
        try:
            sizes.append(len(_content(source.read(int(index)), settings)[0]))
        except (OSError, BadSample):
            continue
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    return max(1, int(settings.shard_bytes / max(mean, 1.0)))


def _run(
    section: Any,
    class_names: tuple[str, ...] | None,
    dest: Path,
    settings: PackSettings,
    jobs: list[tuple[int, int, range]],
    workers: int,
    progress: Callable[[int], None],
) -> list[tuple[str, str]]:
    # Fresh processes: a fork of one that has threads may hang.
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    bad: list[tuple[str, str]] = []
    with ProcessPoolExecutor(
        max(1, min(workers, len(jobs))), context, _open_in_worker, (section, class_names, counter)
    ) as pool:
        futures = [pool.submit(_write_shard, dest, settings, *job) for job in jobs]
        try:
            pending = set(futures)
            while pending:
                try:
                    for future in as_completed(pending, timeout=0.2):
                        bad += future.result()
                        pending.remove(future)
                except TimeoutError:
                    pass
                progress(counter.value)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return sorted(bad)


_worker: dict[str, Any] = {}


def _open_in_worker(section: Any, class_names: tuple[str, ...] | None, counter: Any) -> None:
    _worker.update(source=open_source(section, class_names=class_names), counter=counter)


def _write_shard(
    dest: Path, settings: PackSettings, number: int, shards: int, samples: range
) -> list[tuple[str, str]]:
    """Runs in a worker process. Rows first, then the shard under its name: both there means done."""
    source: Source = _worker["source"]
    path = _shard_path(dest, number, shards)
    aside = path.with_name(f".{path.name}.part")
    rows, bad = np.zeros(len(samples), ROW), []
    with aside.open("wb") as file:
        for place, index in enumerate(samples):
            content, reason = _read_one(source, index, settings)
            if reason is not None:
                bad.append((source.name(index), reason))
            rows[place] = _append(file, number, source, index, content)
            with _worker["counter"].get_lock():
                _worker["counter"].value += 1
        file.flush()
        os.fsync(file.fileno())
    buffer = io.BytesIO()
    np.save(buffer, rows)
    _write_aside(_rows_path(path), buffer.getvalue())
    aside.rename(path)
    return bad


def _append(file: Any, shard: int, source: Source, index: int, content: bytes) -> tuple[int, ...]:
    label = int(source.labels[index])
    record = encode_example(
        {
            "image/filename": os.fsencode(source.name(index)),
            "image/class/label": label,
            "image/class/text": source.class_names[label].encode("utf-8", "surrogateescape")
            if label >= 0
            else b"",
            "image/encoded": content,
        }
    )
    offset = write_record(file, record)
    feature = find_features(record, {"image/encoded"})["image/encoded"]
    length = feature.stop - feature.start
    return shard, offset, len(record), offset + feature.start, length, label, zlib.crc32(content), GOOD


def _read_one(source: Source, index: int, settings: PackSettings) -> tuple[bytes, str | None]:
    try:
        return _content(read_patiently(lambda: source.read(index)), settings)
    except (OSError, BadSample) as error:
        return b"", reason_of(error)


def _content(sample: Sample, settings: PackSettings) -> tuple[bytes, str | None]:
    """Bytes to store, and why they are bad if they are."""
    if sample.encoded is None:
        assert sample.pixels is not None
        return _encode(Image.fromarray(sample.pixels), settings, "PNG"), None
    try:
        header = inspect(sample.encoded, max_pixels=MAX_PIXELS)
        if settings.longest_side is None or max(header.width, header.height) <= settings.longest_side:
            return sample.encoded, None
        return _encode(Image.fromarray(decode_with_pillow(sample.encoded, header)), settings, "JPEG"), None
    except BadSample as error:
        return sample.encoded, str(error)


def _encode(image: Image.Image, settings: PackSettings, kind: str) -> bytes:
    if settings.longest_side is not None:
        image.thumbnail((settings.longest_side, settings.longest_side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, kind, quality=settings.quality)
    return file.getvalue()


def _finish(
    source: Source, dest: Path, shards: int, settings: PackSettings, bad: list[tuple[str, str]], *, kept: int
) -> Packed:
    paths = [_shard_path(dest, number, shards) for number in range(shards)]
    rows: NDArray[Any] = np.concatenate([np.load(_rows_path(path), allow_pickle=False) for path in paths])
    extra = {
        "class_names": list(source.class_names),
        "packed_from": source.digest(),
        "settings": asdict(settings),
        "sha256": {path.name: _sha256(path) for path in paths},
    }
    write_index(dest / PACKED_INDEX, paths, rows, settings=extra)
    if read_index(dest / PACKED_INDEX, paths, {}) is None:
        raise DataError(f"{dest / PACKED_INDEX}: was written but cannot be read back; is the disk full?")
    for path in paths:
        _rows_path(path).unlink()
    (dest / PACKING_PLAN).unlink()
    size = sum(path.stat().st_size for path in paths)
    return Packed(len(source), shards, size, bad, kept)


def _is_done(dest: Path, number: int, shards: int) -> bool:
    path = _shard_path(dest, number, shards)
    return path.exists() and _rows_path(path).exists()


def _shard_path(dest: Path, number: int, shards: int) -> Path:
    return dest / f"shard-{number:05d}-of-{shards:05d}.tfrecord"


def _rows_path(shard: Path) -> Path:
    return shard.with_suffix(".rows.npy")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_aside(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.part")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
