"""What travels with an exported model: class names, preprocessing, where it comes from, how it was checked. No TensorFlow.

A Keras file is a zip archive, and a TFLite file may have one behind its end, where TFLite's own tools put labels too. So in
both the card lies inside the one file that people copy; beside it stands the same as JSON.
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distxcept import __version__
from distxcept.config.schema import Evaluate
from distxcept.training.trained import Trained

CARD, LABELS = "distxcept.json", "labels.txt"


def preprocessing(evaluate: Evaluate) -> str:
    square = "the largest centred square"
    if evaluate.crop < 1:
        square = f"the centred square whose side is {evaluate.crop:g} of the shorter side"
    scaling = (
        "averaged over whole blocks of pixels while at least twice too large; "
        "bilinear scaling with pixel centres at one half"
    )
    if evaluate.interpolation == "bicubic":
        scaling = "bicubic scaling with antialiasing"
    return (
        f"upright by EXIF orientation; {square}; {scaling}; RGB from 0 to 255; the model normalises by itself"
    )


def make_card(trained: Trained, form: str, inputs: dict[str, Any], **details: Any) -> dict[str, Any]:
    snapshot, size = trained.snapshot, trained.config.model.image_size
    return {
        "format": form,
        "distxcept": __version__,
        "snapshot": snapshot.path.name,
        "update": snapshot.update,
        "config_digest": snapshot.state.get("config_digest"),
        "class_names": list(trained.class_names),
        "image_size": size,
        "width": trained.config.model.width,
        "middle_blocks": trained.config.model.middle_blocks,
        "preprocessing": preprocessing(trained.config.data.evaluate),
        "inputs": inputs,
        "outputs": "probabilities of the classes, in the order of class_names",
        **details,
    }


def labels_text(trained: Trained) -> str:
    """A line a class; a name that has line breaks in it must not become two."""
    return "".join(" ".join(name.splitlines() or [""]) + "\n" for name in trained.class_names)


def embed(path: Path, members: dict[str, str]) -> None:
    """Adds text files to a zip archive, or makes one behind the end of a file that is none."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            # A fixed time, so that the same model gives the same bytes.
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            archive.writestr(member, text.encode("utf-8", "surrogateescape"))


def read_embedded(path: Path) -> dict[str, Any]:
    """The card inside of an exported file."""
    with zipfile.ZipFile(path) as archive:
        card = json.loads(archive.read(CARD))
    assert isinstance(card, dict)
    return card


def card_text(card: dict[str, Any]) -> str:
    return json.dumps(card, indent=1) + "\n"


def sha256_of_export(path: Path) -> str:
    """Of a file; of a folder, over its files in the order of their names."""
    state = hashlib.sha256()
    for file in _files(path):
        if path.is_dir():
            state.update(file.relative_to(path).as_posix().encode() + b"\0")
        for chunk in _chunks(file):
            state.update(chunk)
    return state.hexdigest()


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path))


def packed_size_of(path: Path) -> int:
    """As a zip archive would have it: what pruning wins, since zeros take their place in the file itself."""
    total = 0
    for file in _files(path):
        packer = zlib.compressobj()
        total += sum(len(packer.compress(chunk)) for chunk in _chunks(file))
        total += len(packer.flush())
    return total


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            yield chunk
