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
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import IO, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from distxcept.data import files
from distxcept.data.header import inspect
from distxcept.data.pillow import decode_with_pillow
from distxcept.data.records.index import GOOD, ROW, VERSION, load_npy, npy_bytes, read_index, write_index
from distxcept.data.records.shard import encode_example, write_record
from distxcept.data.retry import read_with_retries, reason_of
from distxcept.data.sources import Source, open_source
from distxcept.data.sources.base import MAX_PIXELS, BadSample, Sample
from distxcept.data.sources.records import PACKED_INDEX, PACKING_PLAN
from distxcept.errors import DataError

SHARD_BYTES = 256 * 2**20
_PROBED = 64
"""Samples whose size is looked at to choose the number of shards."""
_PART = 2**20
"""Bytes of a file that are read at once."""


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
    dest: str | os.PathLike[str],
    *,
    settings: PackSettings | None = None,
    class_names: tuple[str, ...] | None = None,
    workers: int,
    progress: Progress | None = None,
) -> Packed:
    """Packs into a folder or a URL. With one worker this process does the work, else it starts as many processes."""
    settings, folder = settings or PackSettings(), files.tidy(os.fspath(dest))
    source = open_source(section, class_names=class_names)
    try:
        if files.exists(files.join(folder, PACKED_INDEX)):
            raise DataError(f"{folder} is packed already; choose another folder or remove it")
        files.make_folder(folder)
        shards = _plan(source, folder, settings)
        todo = [number for number in range(len(shards)) if not _is_done(folder, number, len(shards))]
        jobs = [(number, len(shards), shards[number]) for number in todo]
        done = len(source) - sum(len(samples) for _, _, samples in jobs)
        bad = _run(section, source, folder, settings, jobs, workers, _from(done, len(source), progress))
        return _finish(source, folder, len(shards), settings, bad, kept=len(shards) - len(todo))
    except OSError as error:
        raise DataError(f"packing: {files.problem(error)}") from None


def _from(done: int, total: int, progress: Progress | None) -> Callable[[int], None]:
    return lambda more: progress(done + more, total) if progress is not None else None


def _plan(source: Source, dest: str, settings: PackSettings) -> list[range]:
    """The samples of each shard; the same again when packing goes on after an interruption."""
    path = files.join(dest, PACKING_PLAN)
    wanted = {"version": VERSION, "source": source.digest(), "settings": asdict(settings)}
    if files.exists(path):
        found = json.loads(files.read(path))
        if {key: found.get(key) for key in wanted} != wanted:
            raise DataError(
                f"{dest} holds a packing of other data or settings, or of another version, not finished; remove it first"
            )
        each = int(found["samples_per_shard"])
    else:
        if files.list_names(dest):
            raise DataError(f"{dest} is not empty; choose a new folder")
        each = _samples_per_shard(source, settings)
        _write(path, json.dumps({**wanted, "samples_per_shard": each}).encode())
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


Job = tuple[int, int, range]
"""Number of a shard, how many there are, its samples."""


def _run(
    section: Any,
    source: Source,
    dest: str,
    settings: PackSettings,
    jobs: Sequence[Job],
    workers: int,
    progress: Callable[[int], None],
) -> list[tuple[str, str]]:
    if min(workers, len(jobs)) > 1:
        return sorted(_run_in_processes(section, source.class_names, dest, settings, jobs, workers, progress))
    written = 0

    def one_more() -> None:
        nonlocal written
        written += 1
        progress(written)

    return sorted(one for job in jobs for one in _write_shard(source, dest, settings, job, one_more))


def _run_in_processes(
    section: Any,
    class_names: tuple[str, ...],
    dest: str,
    settings: PackSettings,
    jobs: Sequence[Job],
    workers: int,
    progress: Callable[[int], None],
) -> list[tuple[str, str]]:
    # Fresh processes: a fork of one that has threads may hang.
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    bad: list[tuple[str, str]] = []
    with ProcessPoolExecutor(
        min(workers, len(jobs)), context, _open_in_worker, (section, class_names, counter)
    ) as pool:
        futures = [pool.submit(_write_in_worker, dest, settings, job) for job in jobs]
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
    return bad


_worker: dict[str, Any] = {}


def _open_in_worker(section: Any, class_names: tuple[str, ...], counter: Any) -> None:
    _worker.update(source=open_source(section, class_names=class_names), counter=counter)


def _write_in_worker(dest: str, settings: PackSettings, job: Job) -> list[tuple[str, str]]:
    counter = _worker["counter"]

    def one_more() -> None:
        with counter.get_lock():
            counter.value += 1

    return _write_shard(_worker["source"], dest, settings, job, one_more)


def _write_shard(
    source: Source, dest: str, settings: PackSettings, job: Job, one_more: Callable[[], None]
) -> list[tuple[str, str]]:
    """Rows first, then the shard under its name: both there means done."""
    number, shards, samples = job
    path = _shard_path(dest, number, shards)
    rows, bad = np.zeros(len(samples), ROW), []

    def write(file: IO[bytes]) -> None:
        end = 0
        for place, index in enumerate(samples):
            content, reason = _read_one(source, index, settings)
            if reason is not None:
                bad.append((source.name(index), reason))
            rows[place], end = _append(file, end, number, source, index, content)
            one_more()
        _write(_rows_path(path), npy_bytes(rows))

    files.write_aside(path, write, mark="part")
    return bad


def _append(
    file: IO[bytes], end: int, shard: int, source: Source, index: int, content: bytes
) -> tuple[tuple[int, ...], int]:
    """The row of the sample and the new end of the file."""
    label = int(source.labels[index])
    text = source.class_names[label].encode("utf-8", "surrogateescape") if label >= 0 else b""
    record = encode_example(
        {
            "image/filename": os.fsencode(source.name(index)),
            "image/class/label": label,
            "image/class/text": text,
            "image/encoded": content,
        }
    )
    offset, end = write_record(file, end, record)
    image, checksum = offset + record.find(content), google_crc32c.value(content)
    return (shard, offset, len(record), image, len(content), label, checksum, GOOD), end


def _read_one(source: Source, index: int, settings: PackSettings) -> tuple[bytes, str | None]:
    try:
        return _content(read_with_retries(lambda: source.read(index)), settings)
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
    source: Source, dest: str, shards: int, settings: PackSettings, bad: list[tuple[str, str]], *, kept: int
) -> Packed:
    paths = [_shard_path(dest, number, shards) for number in range(shards)]
    rows: NDArray[Any] = np.concatenate([load_npy(_rows_path(path)) for path in paths])
    extra = {
        "class_names": list(source.class_names),
        "packed_from": source.digest(),
        "settings": asdict(settings),
        "sha256": {files.name_of(path): _sha256(path) for path in paths},
    }
    head = files.join(dest, PACKED_INDEX)
    write_index(head, paths, rows, settings=extra)
    if read_index(head, paths, {}) is None:
        raise DataError(f"{head}: was written but cannot be read back; is the disk full?")
    for path in paths:
        files.remove(_rows_path(path))
    files.remove(files.join(dest, PACKING_PLAN))
    return Packed(len(source), shards, sum(files.sizes(paths)), bad, kept)


def _is_done(dest: str, number: int, shards: int) -> bool:
    path = _shard_path(dest, number, shards)
    return files.exists(path) and files.exists(_rows_path(path))


def _shard_path(dest: str, number: int, shards: int) -> str:
    return files.join(dest, f"shard-{number:05d}-of-{shards:05d}.tfrecord")


def _rows_path(shard: str) -> str:
    return shard.removesuffix(".tfrecord") + ".rows.npy"


def _sha256(path: str) -> str:
    state = hashlib.sha256()
    with files.open_file(path, "rb") as file:
        while part := file.read(_PART):
            state.update(part)
    return state.hexdigest()


def _write(path: str, content: bytes) -> None:
    files.write_aside(path, lambda file: file.write(content), mark="part")
