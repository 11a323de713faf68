"""Run folders with a snapshot that nobody had to train for: random weights, of every kind that a run has."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from distxcept.checkpoint.store import Store
from distxcept.model.layout import Layout

CONFIG: dict[str, Any] = {
    "run": {"updates": 3},
    "model": {"image_size": 71, "width": 0.0625, "middle_blocks": 1},
    "data": {"train": {"kind": "folder", "path": "."}},
    "batch": {"global": 8, "virtual": 4},
}


def random_weights(layout: Layout, seed: int = 0) -> dict[str, np.ndarray]:
    """No layer at its initial value, of a size at which the answers differ and none is certain."""
    chance = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}
    for p in layout.parameters:
        fan_in = max(1, int(np.prod(p.shape[:-1])))
        match p.kind:
            case "gamma" | "moving_variance":
                value = chance.uniform(0.5, 1.5, p.shape)
            case "beta" | "moving_mean" | "bias":
                value = chance.normal(0.0, 0.1, p.shape)
            case "depthwise":
                value = chance.normal(0.0, 0.25, p.shape)
            case _:
                value = chance.normal(0.0, np.sqrt(2 / fan_in), p.shape)
        values[p.name] = value.astype(np.float32)
    return values


def ready_run(folder: Path, class_names: list[str], **sections: dict[str, Any]) -> Path:
    """A run folder with one snapshot, of update 3; `sections` are merged into those of CONFIG."""
    config = {key: {**CONFIG.get(key, {}), **sections.get(key, {})} for key in {*CONFIG, *sections}}
    run = folder / "run"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    shape = {key: config["model"][key] for key in ("width", "middle_blocks")}
    layout = Layout(classes=len(class_names), **shape)
    tensors = {f"weights/{name}": value for name, value in random_weights(layout).items()}
    Store(run).save(3, tensors, {"class_names": class_names}, keep=1)
    return run


def run_on(pictures: Path, folder: Path) -> Path:
    """A ready run whose data are train/ and validation/ of `pictures`."""
    splits = ("train", "validation")
    data = {split: {"kind": "folder", "path": str(pictures / split)} for split in splits}
    return ready_run(folder, sorted(path.name for path in (pictures / "train").iterdir()), data=data)


def noise_folders(folder: Path) -> Path:
    """train/ and validation/, each with four JPEG files in each of five classes: noise of five strengths."""
    chance = np.random.default_rng(1)
    for split in ("train", "validation"):
        for number, name in enumerate(("daisy", "lavender", "rose", "sunflower", "tulip")):
            (folder / split / name).mkdir(parents=True)
            for k in range(4):
                pixels = chance.integers(0, 60 + 40 * number, [80, 90, 3], np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{k}.jpg")
    return folder
