"""What each key accepts and refuses, what it defaults to, and which keys exclude each other."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from distxcept.config.base import MAX_INT, larger_is_better
from distxcept.config.describe import all_keys
from distxcept.config.problems import find_problems
from distxcept.config.schema import Config, CosineSchedule, FolderSource
from distxcept.config.yaml_text import parse_yaml

MINIMAL = {"data": {"train": {"kind": "folder", "path": "images"}}}
INF, NAN = float("inf"), float("nan")


def with_key(name: str, value: Any, base: dict[str, Any] = MINIMAL) -> dict[str, Any]:
    raw = copy.deepcopy(base)
    section = raw
    *sections, last = name.split(".")
    for part in sections:
        section = section.setdefault(part, {})
    section[last] = value
    return raw


def read(config: Config, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, "global_" if part == "global" else part)
    return value


def problems(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(raw)
    return [str(problem) for problem in find_problems(caught.value)]


CROP = {"data.augment.crop": {}}
# key, values accepted, values refused. Every key of the schema has a row: see the test below.
NO_COUNT = [0, -1, MAX_INT + 1, True, "1", 1.0, None, INF, [1]]
NO_FRACTION = [-0.1, INF, NAN, True, "0.5", None]
COLOR_FACTORS = ["brightness", "contrast", "saturation"]
METRICS = ["validation_loss", "validation_accuracy", "validation_top5_accuracy"]
SCALARS: list[tuple[str, list[Any], list[Any]]] = [
    ("run.name", ["a", "A-1_b.c", "_"], ["", "a/b", "..", "-a", "a b", "a\n", 3, None, "x" * 101]),
    ("run.dir", ["runs", "/tmp/ä b"], ["", "a\nb", "a\0", 3, None]),
    ("run.seed", [0, MAX_INT], [-1, MAX_INT + 1, True, "0", 1.0, None]),
    ("run.resume", ["auto", "never", "runs/x"], ["", True, None, 3]),
    ("run.epochs", [1, MAX_INT], NO_COUNT),
    ("run.updates", [None], [0, -1, MAX_INT + 1, True, "1", 1.0]),
    ("run.early_stopping", [None], [True, 3, "validation_loss", []]),
    ("run.evaluate_every", [None, 1], [0, -1, True, 1.5]),
    ("run.log_every", [1], NO_COUNT),
    ("run.telemetry_every", [None, 0.1, 5], [0, 0.05, -1, INF, NAN, True, "5"]),
    ("run.writers", [[], ["tensorboard", "wandb", "mlflow"]], ["tensorboard", ["board"], [3], None, True]),
    ("run.max_nonfinite_updates", [1], NO_COUNT),
    ("model.image_size", [71, 299, 4096], [70, 4097, 71.0, True, None, "299"]),
    ("model.width", [0.125, 1, 2], [0, -1, 2.01, INF, NAN, True, "1", None]),
    ("model.middle_blocks", [0, 1, 8], [-1, 9, True, 1.0, None, "8"]),
    ("model.classes", ["auto", 2, 1000], [1, 0, -1, True, "2", "Auto", None, 2.0]),
    ("model.dropout", [0, 0.99], [1, 1.0, *NO_FRACTION]),
    ("model.weights", [None, "imagenet", "w.safetensors"], ["", 3, True]),
    (
        "model.freeze",
        [None, "backbone", "block1", "block9", "block10", "block14"],
        ["block0", "block15", "block01", "block", "all", "", True, 3],
    ),
    ("model.label_smoothing", [0, 0.1], [1, *NO_FRACTION]),
    ("model.batchnorm_momentum", [0, 0.99], [1, *NO_FRACTION]),
    (
        "model.class_weights",
        [None, "balanced", {}, {"rose": 2, 0: 0.5}],
        ["balance", {"rose": 0}, {"rose": -1}, {"rose": INF}, {"rose": "x"}, {-1: 1.0}, [1, 2], 1, True],
    ),
    ("data.train", [{"kind": "synthetic", "samples": 1, "classes": 2}], [None, {}, 3, {"kind": "folder"}]),
    (
        "data.validation",
        [None, {"kind": "folder", "path": "v"}],
        [{}, 3, {"kind": "nothing"}, {"kind": None}],
    ),
    ("data.augment", [None, {}], [True, 3]),
    ("data.augment.autoaugment", [True, False], [0, 1, "true", None]),
    ("data.augment.trivialaugment", [True, False], [0, 1, "true", None]),
    ("data.evaluate.crop", [0.875, 1], [0, 1.1, *NO_FRACTION]),
    ("data.evaluate.interpolation", ["bilinear", "bicubic"], ["cubic", True, None, 3]),
    ("data.augment.flip", [True, False], [0, 1, "true", "yes", None]),
    ("data.augment.crop", [None, {}], [True, [0.3, 1]]),
    (
        "data.augment.crop.scale",
        [[0.1, 1], [1, 1]],
        [[0, 1], [1, 0.5], [0.5, 1.1], [0.5], [0.1, 0.5, 1], 0.5, None],
    ),
    ("data.augment.crop.ratio", [[0.5, 2]], [[2, 0.5], [0, 1], [-1, 1], [1, INF], ["a", 1], {}, None]),
    ("data.augment.rotate", [0, 180], [-1, 181, INF, True, None]),
    ("data.augment.shift", [0, 1], [1.1, *NO_FRACTION]),
    ("data.augment.shear", [0, 60], [-1, 61, INF, True, None]),
    ("data.augment.zoom", [None, [0.8, 1.25]], [[1.25, 0.8], [0, 1], [1], 1, True]),
    ("data.augment.color", [None, {}], [True, 0.4]),
    *((f"data.augment.color.{key}", [0, 1], [1.1, *NO_FRACTION]) for key in COLOR_FACTORS),
    ("data.augment.color.hue", [0, 0.5], [0.6, *NO_FRACTION]),
    ("data.augment.randaugment", [None, {}], [True, 2]),
    ("data.augment.randaugment.operations", [1, 3], NO_COUNT),
    ("data.augment.randaugment.magnitude", [0, 10, 5.5], [-1, 11, INF, True, None]),
    ("data.augment.erase", [None, {}], [True, 0.25]),
    ("data.augment.erase.probability", [0, 1], [1.1, *NO_FRACTION]),
    ("data.augment.erase.area", [[0.02, 0.3], [1, 1]], [[0.3, 0.02], [0, 1], [0.5, 1.1], 0.5, None]),
    ("data.augment.mixup", [0, 0.2], [-0.1, INF, True, None]),
    ("data.augment.cutmix", [0, 1], [-0.1, INF, True, None]),
    ("data.remainder", ["keep", "drop"], ["Keep", "", None, True]),
    ("data.on_bad_image", ["skip", "fail"], ["ignore", None, True]),
    ("data.max_bad_fraction", [0, 1, 0.01], [1.1, *NO_FRACTION]),
    ("data.validation_fraction", [None, 0.1], [0, 1, -0.1, INF, True, "0.1"]),
    ("data.max_pixels", [1], NO_COUNT),
    ("data.cache", ["none", "memory", "/scratch/cache"], ["", None, True, 3]),
    ("data.workers", ["auto", 1], [0, "1", "Auto", True, None]),
    ("data.host_memory", ["auto", "4GiB", "500 MB"], ["4", "4 gigs", "-1GiB", "", 4, None]),
    ("batch.global", [1, 4096], NO_COUNT),
    ("batch.virtual", [1, 64], NO_COUNT),
    ("batch.micro", ["auto", 1], [0, -1, "1", True, None, 1.0, "Auto"]),
    ("optimizer.name", ["sgd", "rmsprop", "adam", "adamw", "lamb"], ["SGD", "lars", None, True]),
    ("optimizer.learning_rate", [1e-9, 1], [0, -0.1, INF, NAN, True, "0.1", None]),
    ("optimizer.momentum", [0, 0.9], [1, *NO_FRACTION]),
    ("optimizer.nesterov", [True, False], [1, "true", None]),
    ("optimizer.weight_decay", [0, 1e-5], [-1e-5, INF, NAN, True, None]),
    ("optimizer.clip_norm", [None, 1], [0, -1, INF, True]),
    ("optimizer.ema", [None, 0.999], [0, 1, INF, True]),
    ("optimizer.betas", [[0, 0.5]], [[0.9], [0.9, 1], [0.9, -0.1], [0.9, 0.9, 0.9], 0.9, None]),
    ("optimizer.epsilon", [1e-8], [0, -1, INF, None]),
    ("optimizer.rho", [0, 0.9], [1, *NO_FRACTION]),
    ("optimizer.schedule", [{"kind": "constant"}], [None, {}, "cosine", {"kind": "linear"}]),
    ("optimizer.warmup_updates", [0, 100], [-1, True, None, 1.5]),
    ("optimizer.base_batch", [None, 256], [0, -1, True, 1.5]),
    ("optimizer.plateau", [None], [True, 3]),
    ("optimizer.pruning", [None, {"end_update": 10}], [True, 0.5, []]),
    ("precision", ["float32", "mixed_float16", "mixed_bfloat16", "float64"], ["float16", None, 32]),
    ("engine.name", ["auto", "single", "mirrored", "horovod"], ["gloo", None, True]),
    ("engine.devices", ["auto", 2, ["GPU:0", "GPU:1"]], [0, "GPU:0", [], [1], [""], True, None, {}]),
    ("engine.shares", [None, [2, 1]], [[], [0], [1.5], [True], 2, "2:1"]),
    ("engine.threads", [None, 1], [0, True, 1.0]),
    ("engine.compression", ["none", "fp16"], [None, "bf16", False]),
    ("engine.require_nccl", [True, False], [1, "yes", None]),
    ("engine.reduction", ["fast", "ordered"], [None, "tree"]),
    ("engine.lanes", [1, 8], NO_COUNT),
    ("engine.jit", ["auto", "on", "off"], ["yes", None, 1]),
    ("engine.tf32", ["auto", "on", "off"], ["yes", None, 1]),
    ("engine.deterministic", ["auto", "on", "off"], ["yes", None, 1]),
    ("engine.overlap", ["auto", "on", "off"], ["yes", None, 1]),
    ("engine.check_every", [1], NO_COUNT),
    ("engine.peer_timeout", [2.0, 30], [1, 0, -1, INF, NAN, True, "30 s", None]),
    ("engine.stall_timeout", [10.0, 1800], [9, 0, -1, INF, NAN, True, None]),
    ("engine.network.fusion_threshold", [None, "32MiB"], ["0", 5, "x"]),
    ("engine.network.cycle_time", [None, 0.5, 5], [0, -1, 1e5, "1", INF]),
    ("engine.network.hierarchical", [None, True, False], [1, "yes"]),
    ("engine.network.interface", [None, "ib0"], ["", 1]),
    ("engine.network.infiniband", [None, False], [0, "no"]),
    ("engine.network.nccl_debug", [None, "info", "warn"], ["INFO", "all", 1]),
    ("memory.limit", [None, "16GiB", "500MB"], [0, "16", "lots", True]),
    ("memory.reserve", ["300MiB", "0B"], [None, "x", True]),
    ("memory.remat", ["auto", "on", "off"], ["yes", 1, None]),
    ("checkpoint.every_updates", [None, 1], [0, True, 1.0]),
    ("checkpoint.every_minutes", [None, 0.5, 10], [0, -1, INF, True]),
    ("checkpoint.keep", [1], NO_COUNT),
    ("checkpoint.max_failures", [1], NO_COUNT),
    ("checkpoint.best_metric", [None, *METRICS], ["loss", "train_loss", True]),
]

TEXT = [["x"], ["", "a\nb", None, 3, True]]
TEXT_OR_NULL = [["x", None], ["", "a\nb", 3, True]]


def source_rows(section: str) -> list[tuple[str, dict[str, Any], list[Any], list[Any]]]:
    """Keys of every kind of source; a key that several kinds share is tried in one of them."""
    manifest, records, tfds, arrays, synthetic = (
        with_key(section, {"kind": kind, **needed})
        for kind, needed in (
            ("manifest", {"path": "x"}),
            ("records", {"path": "x"}),
            ("tfds", {"name": "x"}),
            ("arrays", {"path": "x"}),
            ("synthetic", {"samples": 2, "classes": 2}),
        )
    )
    rows: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
        ("path", with_key(section, {"kind": "folder"}), *TEXT),
        ("root", manifest, *TEXT_OR_NULL),
        ("path_column", manifest, *TEXT),
        ("label_column", manifest, *TEXT),
        ("image_key", records, *TEXT),
        ("label_key", records, *TEXT),
        ("first_label", records, [0, 1], [-1, True, None, 1.0]),
        ("index", records, *TEXT_OR_NULL),
        ("name", tfds, *TEXT),
        ("split", tfds, *TEXT),
        ("data_dir", tfds, *TEXT_OR_NULL),
        ("labels", arrays, *TEXT_OR_NULL),
        ("samples", synthetic, [1], NO_COUNT),
        ("classes", synthetic, [2], [1, *NO_COUNT]),
    ]
    return [(f"{section}.{key}", base, good, bad) for key, base, good, bad in rows]


VALIDATED = with_key("data.validation", {"kind": "synthetic", "samples": 4, "classes": 2})
PRUNED = with_key("optimizer.pruning", {"end_update": 10})
IN_BRANCH: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("run.early_stopping.metric", VALIDATED, METRICS, ["loss", None]),
    ("run.early_stopping.patience", VALIDATED, [1], NO_COUNT),
    ("run.early_stopping.min_delta", VALIDATED, [0, 0.1], [-0.1, INF, True, None]),
    *(row for split in ("train", "validation") for row in source_rows(f"data.{split}")),
    ("optimizer.schedule.decay", with_key("optimizer.schedule.kind", "exponential"), [0.9, 1], [0, 1.1, INF]),
    (
        "optimizer.schedule.every_epochs",
        with_key("optimizer.schedule.kind", "exponential"),
        [1, 0.5],
        [0, INF],
    ),
    ("optimizer.schedule.staircase", with_key("optimizer.schedule.kind", "exponential"), [True], [1, None]),
    (
        "optimizer.schedule.at_epochs",
        with_key("optimizer.schedule.kind", "step"),
        [[1], [1, 2.5]],
        [[], [0], [2, 1], [1, 1], 3, None, ["a"], [INF]],
    ),
    (
        "optimizer.schedule.factor",
        with_key("optimizer.schedule", {"kind": "step", "at_epochs": [1]}),
        [0.1, 2],
        [0, -1, None],
    ),
    ("optimizer.schedule.final", with_key("optimizer.schedule.kind", "cosine"), [0, 1], [-0.1, 1.1, None]),
    ("optimizer.plateau.metric", VALIDATED, METRICS, ["loss", None]),
    ("optimizer.plateau.factor", VALIDATED, [0.1], [0, 1, None]),
    ("optimizer.plateau.patience", VALIDATED, [1], NO_COUNT),
    ("optimizer.plateau.min_learning_rate", VALIDATED, [0, 1e-5], [-1, INF, None]),
    ("optimizer.pruning.final_sparsity", PRUNED, [0.01, 0.99], [0, 1, -0.1, NAN, None, "half"]),
    ("optimizer.pruning.begin_update", PRUNED, [0, 9], [-1, True, None, 1.5]),
    ("optimizer.pruning.end_update", PRUNED, [1, 1000], NO_COUNT),
    ("optimizer.pruning.every_updates", PRUNED, [1, 500], NO_COUNT),
]
ROWS = [(key, MINIMAL, good, bad) for key, good, bad in SCALARS] + IN_BRANCH


def test_the_table_has_every_key_of_the_schema():
    assert {row[0] for row in ROWS} == {key.name for key in all_keys()}


@pytest.mark.parametrize(("key", "base", "value"), [(k, base, v) for k, base, good, _ in ROWS for v in good])
def test_accepts(key, base, value):
    config = Config.model_validate(with_key(key, value, base))
    assert parse_yaml(config.to_yaml()).data is not None
    again = Config.model_validate(parse_yaml(config.to_yaml()).data)
    assert again == config
    if isinstance(value, int | float | str | None):
        assert read(config, key) == value


@pytest.mark.parametrize(("key", "base", "value"), [(k, base, v) for k, base, _, bad in ROWS for v in bad])
def test_refuses_naming_the_key_alone(key, base, value):
    found = problems(with_key(key, value, base))
    assert len(found) == 1
    assert found[0].startswith(key)


def test_defaults_are_those_of_the_design():
    config = Config.model_validate(MINIMAL)
    assert config.run.epochs == 10
    assert config.run.updates is None
    assert config.data.train == FolderSource(kind="folder", path="images")
    assert config.data.augment is not None
    assert config.data.augment.flip
    assert config.data.augment.crop is None
    assert (config.batch.global_, config.batch.virtual, config.batch.micro) == (32, 32, "auto")
    assert config.optimizer.schedule.kind == "constant"


@pytest.mark.parametrize(("global_batch", "virtual"), [(8, 8), (32, 32), (33, 32), (256, 32)])
def test_virtual_is_the_smaller_of_32_and_global(global_batch, virtual):
    assert Config.model_validate(with_key("batch.global", global_batch)).batch.virtual == virtual


def test_updates_alone_turn_epochs_off():
    config = Config.model_validate(with_key("run.updates", 100))
    assert (config.run.epochs, config.run.updates) == (None, 100)


def test_a_part_of_the_training_data_is_validation_data_too():
    config = Config.model_validate(
        {
            **MINIMAL,
            "data": {**MINIMAL["data"], "validation_fraction": 0.2},
            "run": {"early_stopping": {}},
            "optimizer": {"plateau": {}},
        }
    )
    assert config.run.early_stopping is not None


def test_on_and_off_may_come_as_booleans_from_other_yaml_tools():
    assert Config.model_validate(with_key("engine.overlap", True)).engine.overlap == "on"
    assert Config.model_validate(with_key("engine.overlap", False)).engine.overlap == "off"


@pytest.mark.parametrize(
    ("engine", "tf32", "deterministic"),
    [
        ({}, True, False),
        ({"tf32": "off"}, False, False),
        ({"deterministic": "on"}, True, True),
        ({"reduction": "ordered"}, False, True),
        ({"reduction": "ordered", "tf32": "off", "deterministic": "on"}, False, True),
    ],
)
def test_an_ordered_reduction_implies_exact_kernels(engine, tf32, deterministic):
    section = Config.model_validate({**MINIMAL, "engine": engine}).engine
    assert (section.allows_tf32, section.is_deterministic) == (tf32, deterministic)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"run": {"epochs": 1, "updates": 1}}, "run.updates: given together with epochs"),
        ({"run": {"epochs": None}}, "run.epochs: null, and updates too"),
        (
            {"model": {"weights": "imagenet", "width": 0.5}},
            "model.weights: imagenet needs width 1.0, not 0.5",
        ),
        ({"optimizer": {"nesterov": True, "momentum": 0}}, "optimizer.nesterov: true needs momentum above 0"),
        (
            {"engine": {"reduction": "ordered", "compression": "fp16"}},
            "engine.reduction: ordered needs compression none, not fp16",
        ),
        ({"engine": {"reduction": "ordered", "shares": [1, 2]}}, "engine.shares: an ordered reduction"),
        (
            {"engine": {"reduction": "ordered", "tf32": "on"}},
            "engine.tf32: an ordered reduction needs tf32 off (or auto), not on",
        ),
        (
            {"engine": {"reduction": "ordered", "deterministic": "off"}},
            "engine.deterministic: an ordered reduction needs deterministic on (or auto), not off",
        ),
        ({"engine": {"deterministic": "on", "jit": "on"}}, "engine.jit: deterministic kernels need jit off"),
        ({"engine": {"reduction": "ordered", "jit": "on"}}, "engine.jit: deterministic kernels need jit off"),
        (
            {"run": {"early_stopping": {}}},
            "run.early_stopping: validation_loss needs data.validation or validation_fraction",
        ),
        (
            {"optimizer": {"pruning": {"begin_update": 5, "end_update": 5}}},
            "optimizer.pruning.end_update: 5 must come after begin_update 5",
        ),
        ({"optimizer": {"plateau": {}}}, "optimizer.plateau: validation_loss needs data.validation"),
    ],
)
def test_keys_that_exclude_each_other(sections, message):
    found = problems({**MINIMAL, **sections})
    assert len(found) == 1
    assert found[0].startswith(message)


def test_unknown_key_in_a_branch_is_reported_for_that_branch_only():
    raw = with_key("optimizer.schedule", {"kind": "cosine", "decay": 0.9})
    assert problems(raw) == ["optimizer.schedule.decay: unknown key; only kind exponential has it"]


def test_a_key_named_like_its_branch_is_not_taken_for_it():
    raw = with_key("data.train", {"kind": "folder", "folder": {"path": "x"}})
    assert [problem.split(":")[0] for problem in problems(raw)] == ["data.train.path", "data.train.folder"]


def test_the_config_is_frozen():
    config = Config.model_validate(MINIMAL)
    with pytest.raises(ValidationError):
        config.run.seed = 3  # the type forbids it too


def test_the_python_name_of_global_is_no_key():
    assert problems(with_key("batch.global_", 3)) == [
        "batch.global_: unknown key; did you mean batch.global?"
    ]


def test_a_number_is_an_unknown_key_of_a_section():
    assert problems(with_key("batch", {7: 1})) == [
        "batch.7: unknown key; the keys here are global, virtual, micro"
    ]


def test_sections_can_be_built_in_code():
    assert CosineSchedule(kind="cosine").final == 0.0
    with pytest.raises(ValidationError):
        CosineSchedule(kind="cosine", final=2.0)


def test_only_the_loss_gets_better_by_falling():
    assert [metric for metric in METRICS if not larger_is_better(metric)] == ["validation_loss"]
