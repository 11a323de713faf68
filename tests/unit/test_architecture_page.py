"""docs/architecture.md: its picture is that of the imports, its example works."""

import importlib.util
import io
import re
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from distxcept.data import sources
from distxcept.data.sources import open_source

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "architecture.md").read_text()


@pytest.fixture(scope="module")
def drawing() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("draw_architecture", DOCS / "draw_architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_up_to_date(drawing):
    assert "-->" in PAGE
    assert drawing.page(PAGE) == PAGE, "draw it anew: python docs/draw_architecture.py"


def test_arrows_that_follow_from_others_are_left_out(drawing):
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert drawing.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_the_example_of_a_source(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module = types.ModuleType("zip_source")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "zip_source", module)
    monkeypatch.setitem(sources.KINDS, "zip", "zip_source")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name, grey in (("rose/1.png", 10), ("daisy/1.png", 20), ("daisy/2.png", 30)):
            file = io.BytesIO()
            Image.fromarray(np.full([8, 8, 3], grey, np.uint8)).save(file, "png")
            archive.writestr(name, file.getvalue())
    section = types.SimpleNamespace(kind="zip", path=tmp_path / "images.zip")
    source = open_source(section)
    assert source.class_names == ("daisy", "rose")
    assert source.labels.tolist() == [0, 0, 1]
    greys = [np.asarray(Image.open(io.BytesIO(source.read(k).encoded or b"")))[0, 0, 0] for k in range(3)]
    assert greys == [20, 30, 10]
    assert source.digest() == open_source(section).digest()
    assert open_source(section, class_names=("rose",)).labels.tolist() == [-1, -1, 0]
