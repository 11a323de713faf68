"""A thousand generated bad configs: exit 2, one line that names file and key, never a traceback."""

import contextlib
import copy
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distxcept.cli.main import main
from distxcept.config.describe import all_keys
from distxcept.config.schema import Config
from distxcept.config.yaml_text import dump_yaml, shorten

# Says something in every section, and nothing that a change of one other key could contradict.
GOOD: dict[str, Any] = {
    "run": {"name": "x", "seed": 3, "epochs": 4, "log_every": 5},
    "model": {"image_size": 96, "width": 0.5, "class_weights": {"rose": 2.0, 1: 0.5}},
    "data": {
        "train": {"kind": "folder", "path": "images/train"},
        "validation": {"kind": "synthetic", "samples": 100, "classes": 5},
        "augment": {"flip": True, "crop": {"scale": [0.5, 1.0]}},
    },
    "batch": {"global": 64, "virtual": 16, "micro": 32},
    "optimizer": {
        "name": "sgd",
        "learning_rate": 0.1,
        "betas": [0.9, 0.99],
        "schedule": {"kind": "exponential", "decay": 0.9},
    },
    "precision": "float32",
    "engine": {"name": "mirrored", "devices": ["GPU:0", "GPU:1"], "overlap": "auto"},
    "checkpoint": {"every_minutes": 5, "keep": 2},
}
GOOD_TEXT = dump_yaml(GOOD)


class Bad(NamedTuple):
    """What the file holds, and the key that the message must name (None: it does not parse, so there is none)."""

    content: bytes
    key: str | None


def sections(data: dict[Any, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for key, value in data.items():
        if isinstance(value, dict) and key != "class_weights":
            yield from sections(value, (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    section: Any = data
    for part in path[:-1]:
        if not isinstance(section.get(part), dict):
            section[part] = {}
        section = section[part]
    section[path[-1]] = value
    return data


def is_refused(data: dict[str, Any]) -> bool:
    try:
        Config.model_validate(data)
    except ValidationError:
        return True
    return False


key_names = sorted({str(key.path[-1]) for key in all_keys()})


@st.composite
def typos(draw) -> str:
    word = draw(st.sampled_from(key_names))
    at = draw(st.integers(0, len(word)))
    return word[:at] + draw(st.sampled_from(["", "_", "x", "-", word[at : at + 1] * 2])) + word[at + 1 :]


@st.composite
def unknown_keys(draw) -> Bad:
    section = draw(st.sampled_from(list(sections(GOOD))))
    key = draw(
        typos() | st.text(min_size=1, max_size=80) | st.integers(0, 10**9) | st.sampled_from(key_names)
    )
    data = changed((*section, key), draw(junk_values))
    assume(is_refused(data))
    name = ".".join([*section, shorten(str(key))])
    return Bad(dump_yaml(data).encode(), " ".join(name.split()))


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**39), 10**39)
    | st.sampled_from([0, 1, -1, 2, 15, 70, 2**31, 2**63])
    | st.floats()
    | st.text(max_size=100)
    | st.sampled_from(["auto", "none", "1", "1e-5", "null", "", "\0", "a\nb", "folder", "x" * 5000])
)
junk_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def wrong_values(draw) -> Bad:
    path = draw(st.sampled_from([key.path for key in all_keys()] + [p for p in sections(GOOD) if p]))
    data = changed(path, draw(junk_values))
    assume(is_refused(data))
    return Bad(dump_yaml(data).encode(), ".".join(map(str, path[:2])))


@st.composite
def missing_keys(draw) -> Bad:
    data = copy.deepcopy(GOOD)
    path = draw(
        st.sampled_from([("data",), ("data", "train"), ("data", "train", "path"), ("data", "train", "kind")])
    )
    section: Any = data
    for part in path[:-1]:
        section = section[part]
    del section[path[-1]]
    return Bad(dump_yaml(data).encode(), ".".join(path))


@st.composite
def duplicate_keys(draw) -> Bad:
    lines = GOOD_TEXT.splitlines()
    at = draw(st.sampled_from([i for i, line in enumerate(lines) if not line.endswith(":")]))
    copied = lines[at]
    level = len(copied) - len(copied.lstrip())
    return Bad("\n".join([*lines[:at], copied, *lines[at:]]).encode(), copied[level:].split(":")[0])


@st.composite
def broken_text(draw) -> Bad:
    """Random damage may leave a good config, so what damage is chosen here never does."""
    lines = GOOD_TEXT.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    noise = draw(
        st.sampled_from(
            ["\t x: 1", "]", "}", "@", "`", "a: b: c", '"', "%x", "\x07", "\ufffe", ": :", "*z", "- x"]
        )
    )
    return Bad("\n".join([*lines[:at], noise, *lines[at:]]).encode(), None)


@st.composite
def damaged_bytes(draw) -> Bad:
    """Bytes of a good config replaced, by some that UTF-8 does not have."""
    content = bytearray(GOOD_TEXT.encode())
    for at in draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=20)):
        content[at] = draw(st.sampled_from([0x00, 0x80, 0xC0, 0xFE, 0xFF]))
    return Bad(bytes(content), None)


@st.composite
def bombs(draw) -> Bad:
    depth, width = draw(st.integers(21, 3000)), draw(st.integers(5, 30))
    alias_rows = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, 12)]
    text = draw(
        st.sampled_from(
            [
                "run: " + "[" * depth,
                "run: " + "{a: " * depth,
                "run: " + "[" * depth + "]" * depth,
                "run: " + "- " * depth,
                "a0: &a0 [x, x, x]\n" + "\n".join(alias_rows),
                "run: &r {seed: *r}",
                "run: " + "9" * (40 + depth),
                "#" * ((1 << 20) + depth),
                "<<: {run: 3}",
                "run: !!python/object/apply:os.system [exit 1]",
                "run: !!python/name:os.system",
                "run: !!binary aGVsbG8=",
            ]
        )
    )
    return Bad(text.encode(), None)


junk = (st.binary(max_size=2000) | st.text(max_size=500).map(str.encode)).map(
    lambda content: Bad(content, None)
)
bad_configs = st.one_of(
    unknown_keys(),
    unknown_keys(),
    wrong_values(),
    wrong_values(),
    wrong_values(),
    missing_keys(),
    duplicate_keys(),
    broken_text(),
    damaged_bytes(),
    bombs(),
    junk,
)


def run(argv: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "c.yaml"


def test_the_config_that_is_spoiled_is_good(file):
    file.write_text(GOOD_TEXT)
    code, out, err = run(["config", "show", str(file)])
    assert (code, err) == (0, "")
    assert "global: 64" in out


@settings(
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(bad_configs)
def test_bad_configs_end_in_one_line_with_file_and_key(file, bad):
    file.write_bytes(bad.content)
    code, out, err = run(["config", "show", str(file)])
    assert code == 2, out
    assert out == ""
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
    assert len(err) < 2000
    assert err.startswith(f"distxcept config: {file}")
    if bad.key is not None:
        place, key = err.removeprefix(f"distxcept config: {file}").split(": ", 2)[:2]
        assert place[:1] == ":"
        assert place[1:].isdigit()
        assert bad.key in err if " " in bad.key or ":" in bad.key else bad.key in key


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.text(max_size=200)
    | st.sampled_from([k.name for k in all_keys()]).flatmap(lambda k: st.text().map(lambda t: f"{k}={t}"))
)
def test_any_override_ends_in_a_config_or_one_line(file, override):
    assume(not override.startswith("-"))
    file.write_text(GOOD_TEXT)
    code, out, err = run(["config", "show", str(file), override])
    assert code in (0, 2)
    assert len(err.splitlines()) == (1 if code else 0)
    assert (out == "") == (code == 2)
    if code:
        assert "override '" in err or str(file) in err
