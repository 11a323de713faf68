"""From file and overrides to a config, or to messages that name file, line and key."""

import errno
import os
import subprocess
import sys

import pytest

from distxcept.config.load import check_config, load_config, run_name
from distxcept.config.schema import Config
from distxcept.errors import ConfigError

MINIMAL = "data:\n  train: {kind: folder, path: images}\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_file(content: str | bytes, name: str = "c.yaml") -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write_file


def mistakes(path, overrides=()):
    result = check_config(path, overrides)
    assert isinstance(result, list)
    return [str(mistake) for mistake in result]


def test_file_wins_over_defaults_and_overrides_over_the_file(write):
    file = write(MINIMAL + "optimizer: {learning_rate: 1e-5, momentum: 0.5}\n")
    config = load_config(file, ["optimizer.momentum=0.25", "run.seed=7", "optimizer.momentum=0.75"])
    assert config.optimizer.learning_rate == 1e-5
    assert config.optimizer.momentum == 0.75
    assert config.run.seed == 7
    assert config.optimizer.rho == 0.9


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("optimizer.learning_rate=1e-5", "optimizer", "learning_rate", 1e-5),
        ("optimizer.learning_rate = 3", "optimizer", "learning_rate", 3.0),
        ("data.augment=null", "data", "augment", None),
        ("optimizer.betas=[0.8, 0.9]", "optimizer", "betas", (0.8, 0.9)),
        ("run.name='1e-5'", "run", "name", "1e-5"),
        ("run.dir=a=b", "run", "dir", "a=b"),
        ("engine.overlap=off", "engine", "overlap", "off"),
        ("model.class_weights.0=2", "model", "class_weights", {0: 2.0}),
        ("model.class_weights.rose=2", "model", "class_weights", {"rose": 2.0}),
    ],
)
def test_override_values_are_yaml(write, override, section, key, value):
    assert getattr(getattr(load_config(write(MINIMAL), [override]), section), key) == value


def test_override_reaches_below_a_null_and_into_a_kind(write):
    file = write(MINIMAL + "optimizer:\n  schedule: {kind: exponential}\n")
    overrides = ["data.augment.crop.scale=[0.5, 1]", "optimizer.schedule.decay=0.5"]
    config = load_config(file, overrides)
    assert config.data.augment.crop.scale == (0.5, 1.0)
    assert config.optimizer.schedule.decay == 0.5


def test_a_section_can_be_replaced_whole(write):
    config = load_config(write(MINIMAL), ["data.train={kind: synthetic, samples: 9, classes: 3}"])
    assert config.data.train.samples == 9


def test_the_run_is_named_after_the_file_unless_it_has_a_name(write):
    assert load_config(write(MINIMAL, "flowers v2.yaml")).run.name == "flowers-v2"
    assert load_config(write(MINIMAL + "run: {name: x}\n")).run.name == "x"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a/b.yaml", "b"),
        ("b.tar.yaml", "b.tar"),
        (".yaml", "yaml"),
        ("é è.yml", "run"),
        ("x" * 200, "x" * 100),
    ],
)
def test_run_name(file, name):
    assert run_name(file) == name


def test_the_resolved_config_starts_the_same_run(write):
    config = load_config(write(MINIMAL + "run: {updates: 5}\nbatch: {global: 8}\n"))
    again = load_config(write(config.to_yaml(), "other.yaml"))
    assert again == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL + "run:\n  sed: 3\n", "c.yaml:4: run.sed: unknown key; did you mean run.seed?"),
        (MINIMAL + "optimiser: {}\n", "c.yaml:3: optimiser: unknown key; did you mean optimizer?"),
        (MINIMAL + "lr: 3\n", "c.yaml:3: lr: unknown key; the keys here are run, model, data, batch, "),
        (MINIMAL + "momentum: 3\n", "c.yaml:3: momentum: unknown key; did you mean optimizer.momentum?"),
        (
            MINIMAL + "batch:\n\n  micro: -1\n",
            "c.yaml:5: batch.micro: expected auto or an integer ≥ 1, got -1",
        ),
        (MINIMAL + "engine:\n  devices:\n    - a\n    - 3\n", "c.yaml:6: engine.devices.1: expected a name"),
        (MINIMAL + "engine: {name: horovd}\n", "got 'horovd'; did you mean horovod?"),
        (MINIMAL + "run: {seed: 99999999999}\n", "got 99999999999; no integer may exceed 2147483647"),
        ("data:\n  train:\n    kind: folder\n", "c.yaml:2: data.train.path: missing; expected a path"),
        (
            "data:\n  train:\n    path: x\n",
            "c.yaml:2: data.train.kind: missing; expected arrays, folder, manifest, records, synthetic or tfds",
        ),
        (
            "data: {train: {kind: foldr, path: x}}\n",
            "c.yaml:1: data.train.kind: expected arrays, folder, manifest, records, synthetic or tfds",
        ),
        (
            "run:\n  seed: 1\n",
            "c.yaml:1: data.train: missing; expected a mapping of kind arrays | folder | manifest",
        ),
        (MINIMAL + "run:\n", "c.yaml:3: run: expected a mapping, got null; remove the line or write {}"),
        (MINIMAL + "engine:\n  reduction: ordered\n  shares: [1]\n", "c.yaml:5: engine.shares: an ordered"),
        (MINIMAL + "run: {}\nrun: {}\n", "c.yaml:4: run: given twice, first on line 3"),
        (MINIMAL + "run:\n\tseed: 1\n", "c.yaml:4: not YAML: a tab; indent with spaces"),
        ("", "c.yaml: is empty; it must at least say data.train"),
        ("# nothing\n", "c.yaml: is empty"),
        ("- a\n- b\n", "c.yaml:1: must be a mapping"),
        ("just text\n", "c.yaml:1: must be a mapping"),
        (b"run:\n  name: \xff\n", "c.yaml:2: is not UTF-8 text"),
        (MINIMAL.encode("utf-16"), "c.yaml:1: is not UTF-8 text"),
        (b"#" * (1 << 20) + b"\n", "c.yaml: is larger than 1024 KiB"),
    ],
)
def test_one_line_with_file_line_and_key(write, text, message):
    found = mistakes(write(text))
    assert len(found) == 1
    assert message in found[0]
    assert found[0].startswith("c.yaml")


def test_a_byte_order_mark_does_no_harm(write):
    assert isinstance(check_config(write(b"\xef\xbb\xbf" + MINIMAL.encode())), Config)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "optimizer.learning_rte=3",
            "optimizer.learning_rte: unknown key; did you mean optimizer.learning_rate?",
        ),
        ("optimzer.learning_rate=3", "optimzer: unknown key; did you mean optimizer?"),
        ("learning_rate=3", "learning_rate: unknown key; did you mean optimizer.learning_rate?"),
        ("run.seed.x=3", "run.seed: has no keys of its own, so no 'x'"),
        ("run.seed=-1", "run.seed: expected an integer ≥ 0, got -1"),
        ("run=3", "run: expected a mapping, got 3"),
        ("optimizer.schedule.decay=0.5", "optimizer.schedule.kind: missing; expected constant, cosine"),
        ("optimizer.schedule={kind: cosine, finl: 3}", "optimizer.schedule.finl: unknown key; did you mean"),
        ("model.freeze=block15", "model.freeze: expected backbone"),
        ("run.seed=[", "not YAML"),
        ("run.seed", "has no '='"),
        ("=3", "the key has an empty part"),
        ("run..seed=3", "the key has an empty part"),
        ("run.seed={a: 1, a: 2}", "a: given twice"),
        ("run.name=", "run.name: expected a name of letters"),
    ],
)
def test_override_mistakes_name_the_override(write, override, message):
    found = mistakes(write(MINIMAL), [override])
    assert len(found) == 1
    assert found[0].startswith(f"override '{override}': {message}")


def test_an_override_below_a_value_says_to_replace_it(write):
    file = write(MINIMAL + "model: {class_weights: balanced}\n")
    found = mistakes(file, ["model.class_weights.rose=2"])
    assert (
        "model.class_weights is no mapping in the file; override model.class_weights as a whole" in found[0]
    )


def test_an_override_hides_the_lines_that_it_replaced(write):
    file = write(MINIMAL + "optimizer:\n  schedule:\n    kind: exponential\n    decay: 7\n")
    assert mistakes(file) == ["c.yaml:6: optimizer.schedule.decay: expected a number > 0 and ≤ 1, got 7"]
    found = mistakes(file, ["optimizer.schedule={kind: exponential, decay: 8}"])
    assert found[0].startswith("override 'optimizer.schedule={kind: exponential, decay: 8}': ")
    assert mistakes(file, ["optimizer.schedule.kind=cosine"]) == [
        "c.yaml:6: optimizer.schedule.decay: unknown key; only kind exponential has it"
    ]


def test_all_mistakes_in_the_order_of_lines_and_the_first_with_a_count(write):
    file = write("zzz: 1\nrun: {seed: -1}\ndata: {train: {kind: folder}}\n")
    found = mistakes(file, ["batch.globl=3", "batch.micro=0"])
    assert [mistake.split(": ")[1] for mistake in found] == [
        "batch.globl",
        "zzz",
        "run.seed",
        "data.train.path",
        "batch.micro",
    ]
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).startswith("c.yaml:1: zzz: unknown key; ")
    assert str(caught.value).endswith("(and 2 more; `distxcept config check` lists them)")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing.yaml", "no such file"),
        (".", "is a directory"),
        ("a\0b", "null byte"),
        ("x" * 5000, "too long"),
    ],
)
def test_files_that_cannot_be_read(write, path, reason):
    found = mistakes(path)
    assert len(found) == 1
    assert "cannot be read" in found[0]
    assert reason in found[0]


def test_a_file_without_permission(write, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    file = write(MINIMAL)
    monkeypatch.setattr("builtins.open", refuse)  # root may read every file, so a mode would not do
    assert mistakes(file) == ["c.yaml: cannot be read: permission denied"]


def test_loading_a_config_imports_no_tensorflow():
    probe = (
        "import sys, distxcept.config.load; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


def test_an_endless_file_is_not_read_to_its_end():
    assert mistakes("/dev/zero") == ["/dev/zero: is larger than 1024 KiB; this is no config"]
