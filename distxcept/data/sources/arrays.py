"""Images and labels as numpy arrays on disk, memory-mapped: only what is asked for is read."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data import files
from distxcept.data.sources.base import Sample, Source, digest_of
from distxcept.errors import DataError

_LOCAL_HEADER = 30
"""Fixed part of a zip member's header; name and extra field follow, then the stored bytes."""


class ArraysSource(Source):
    raw = True

    def __init__(self, path: Path, images: NDArray[np.uint8], labels: NDArray[np.int32], classes: int):
        self._path, self._images, self._labels = path, images, labels
        self.class_names = tuple(str(number) for number in range(classes))

    def __len__(self) -> int:
        return len(self._images)

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._labels

    def name(self, index: int) -> str:
        return f"{self._path}[{index}]"

    def read(self, index: int) -> Sample:
        pixels = self._images[index]
        if pixels.ndim == 2 or pixels.shape[-1] == 1:
            pixels = np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
        return Sample(pixels=np.asarray(pixels))

    def digest(self) -> str:
        """Over labels, shape and some of the images: all of them would mean reading the whole file."""
        step = max(1, len(self._images) // 64)
        shape = ",".join(map(str, self._images.shape))
        return digest_of("arrays", [shape, self._labels.astype("<i4"), np.asarray(self._images[::step][:64])])


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> ArraysSource:
    path, where = Path(section.path), f"data.{split}.path"
    for name in (section.path, section.labels or ""):
        if files.is_remote(name):
            raise DataError(f"{where}: {name} cannot be mapped into memory; copy it here, or pack the images")
    try:
        if path.suffix == ".npz":
            images, labels = (_map_member(path, key) for key in (section.image_key, section.label_key))
        elif section.labels is None:
            raise DataError(f"data.{split}.labels: missing; give the .npy file with the labels of {path}")
        else:
            images = np.load(path, mmap_mode="r", allow_pickle=False)
            labels = np.load(section.labels, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{where}: {path} cannot be read as numpy arrays: {error}") from None
    if (
        images.dtype != np.uint8
        or images.ndim not in (3, 4)
        or (images.ndim == 4 and images.shape[3] not in (1, 3))
    ):
        raise DataError(
            f"{where}: images are {images.dtype} {list(images.shape)}, but uint8 [n, height, width, 3] "
            "(or 1, or no channels) is needed; save them as 0 to 255"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images) or not len(labels):
        raise DataError(
            f"{where}: {len(images)} images, but labels are {labels.dtype} {list(labels.shape)}; integers [n] needed"
        )
    classes = len(class_names) if class_names is not None else max(2, int(labels.max()) + 1)
    in_range = (labels >= 0) & (labels < classes)
    return ArraysSource(path, images, np.where(in_range, labels, -1).astype(np.int32), classes)


def _map_member(path: Path, key: str) -> NDArray[Any]:
    """An array of an .npz, mapped in place. That needs a member that is stored, not compressed."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if f"{key}.npy" not in names:
            held = ", ".join(name.removesuffix(".npy") for name in names)
            raise DataError(f"{path} holds {held}, but no array {key!r}; set image_key and label_key")
        member = archive.getinfo(f"{key}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            raise DataError(f"{path} is compressed and cannot be mapped; write it with np.savez instead")
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise DataError(f"{path}: {key} holds Python objects; only plain arrays are read")
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if fortran else "C")
