"""Every command and Python block in README and docs/ is run here, or by the test that a table names.

Cheap ones run here as they are written, one after the other in one process, in a folder that has what the pages speak of:
photos, the shipped recipes (those that are trained, made small), a finished run.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from documented import Command, commands, inline_commands, python_blocks, stray_commands
from ready_runs import noise_folders

from distxcept.cli.main import COMMANDS, build_parser, main
from distxcept.config.load import load_config
from tests.pages import REPOSITORY

# Who runs what, by patterns of the command; each must match something.
RUN_BY: dict[str, tuple[str, ...]] = {
    "integration/test_doctor.py::test_doctor_on_this_machine": (r"distxcept doctor",),
    "integration/test_prove.py::test_quick": (r"distxcept prove",),
    "integration/test_train.py::test_run_folder": (r"distxcept train cfg\.yaml$",),
    "integration/test_train.py::test_interrupted_killed_and_gone_on_with_on_any_engine": (
        r"distxcept train cfg\.yaml engine\.devices=2$",
        r"mpirun .*distxcept train",
    ),
    "integration/test_train.py::test_evaluate_counts_every_sample_once_on_any_engine": (
        r"distxcept evaluate .*engine\.devices=2",
        r"mpirun .*distxcept evaluate",
    ),
    "integration/test_train.py::test_pruned_weights_are_zero": (r"distxcept train .*optimizer\.pruning=",),
    "integration/test_equivalence.py::test_same_weights": (
        r"distxcept train cfg\.yaml run\.name=(one|two) ",
    ),
    "integration/test_data_pack.py::test_packed_data_makes_the_same_updates": (
        r"distxcept train configs/flowers\.yaml 'data\.train=\{kind: records",
    ),
    "integration/test_launch.py::test_a_request_to_stop_lets_every_rank_save": (
        r"horovodrun .*distxcept train",
    ),
    "integration/test_launch.py::test_goes_on_without_a_lost_host": (r"distxcept launch .*--hosts",),
    "integration/test_launch_train.py::test_goes_on_after_a_lost_rank": (
        r"distxcept launch cfg\.yaml --np 4$",
    ),
    "integration/test_memory_limit.py::test_the_supervisor_recovers_where_tensorflow_dies": (
        r"distxcept launch .*memory\.limit=",
    ),
    "integration/test_slurm_train.py::test_two_nodes": (r"srun .*distxcept train",),
    "integration/test_slurm_train.py::test_the_documented_jobs": (r"distxcept submit (?!.*--dry-run)",),
    "integration/test_sbatch.py::test_array": (r"sbatch --array",),
    "integration/test_sbatch.py::test_runs_to_its_end": (r"sbatch slurm/train", r"sbatch slurm/single"),
    "integration/test_export.py::test_keras": (r"distxcept export .*--format keras",),
    "integration/test_export.py::test_saved_model_answers_for_the_bytes_of_files": (
        r"distxcept export .*--format savedmodel",
    ),
    "integration/test_export.py::test_tflite": (r"distxcept export .*--format tflite",),
    "integration/test_export.py::test_onnx": (r"distxcept export .*--format onnx",),
    "integration/test_predict.py::test_a_program_on_the_other_end_gets_each_answer_at_once": (
        r"find .*\| distxcept predict .* -",
    ),
    "unit/data/test_flowers.py::test_a_second_run_keeps_it_and_other_settings_are_refused": (
        r"python -m distxcept\.data\.flowers",
    ),
    "integration/test_tensorboard.py::test_the_server_opens_what_was_written": (r"tensorboard --logdir",),
    "integration/test_horovod_build.py::test_the_whole_gpu_wheel_builds_links_and_loads": (
        r"launch/build_horovod\.sh --gpu",
    ),
    "integration/test_set_up.py::test_quickstart_and_the_proof": (
        r"make quickstart",
        r"make same",
        r"\. \.venv/bin/activate",
    ),
    "integration/test_set_up.py::test_every_measurement_runs": (r"QUICK=1 benchmarks/everything\.sh",),
    "integration/test_set_up.py::test_extras_can_be_had": (r"pip install",),
}

# Of these, what no everyday test runs: TensorFlow dies of want of memory, or something is built, installed or measured for
# minutes.
SOAK_ONLY = {
    "test_quick",
    "test_the_supervisor_recovers_where_tensorflow_dies",
    "test_the_whole_gpu_wheel_builds_links_and_loads",
    "test_quickstart_and_the_proof",
    "test_every_measurement_runs",
    "test_extras_can_be_had",
}

# What no test runs, and why.
NOT_RUN = {
    r"launch/build_horovod\.sh$": "`make test` itself runs it, before any test",
    r"make test": "it runs this",
    r"make bench": "hours; with QUICK=1 the same script runs",
}

EVERY = commands()


PATTERNS = [*(pattern for patterns in RUN_BY.values() for pattern in patterns), *NOT_RUN]


def row_of(command: Command) -> str | None:
    return next((pattern for pattern in PATTERNS if re.match(pattern, command.text)), None)


def test_every_command_has_somebody_who_runs_it():
    assert len(EVERY) > 60
    nobody = [f"{c.where}: {c.text}" for c in EVERY if row_of(c) is None and c.words[0] != "distxcept"]
    assert not nobody


def test_every_command_stands_where_it_is_looked_for():
    assert [f"{line.where}: {line.text}" for line in stray_commands()] == []


def test_the_table_names_tests_that_exist():
    assert {row_of(command) for command in EVERY} >= set(PATTERNS), "rows without a command"
    assert {name.partition("::")[2] for name in RUN_BY if is_soak_only(name)} == SOAK_ONLY


def is_soak_only(name: str) -> bool:
    file, _, function = name.partition("::")
    tree = ast.parse((REPOSITORY / "tests" / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    assert found, f"{name} does not exist"
    of_module = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    ]
    marks = [ast.unparse(mark) for mark in (*found[0].decorator_list, *of_module)]
    return any("pytest.mark.soak" in mark for mark in marks)


@pytest.mark.parametrize("command", [c for c in EVERY if c.words[0] == "make"], ids=lambda c: c.where)
def test_make_knows_its_target(command):
    done = subprocess.run(["make", "-n", *command.words[1:]], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in EVERY if c.words[0] == "pip"], ids=lambda c: c.where)
def test_pip_installs_what_there_is(command):
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    extra = re.fullmatch(r"distxcept\[(\w+)\]", command.words[-1])
    assert extra[1] in extras if extra else command.words[-1] in known_packages(extras)


def known_packages(extras: dict[str, list[str]]) -> set[str]:
    return {re.split(r"[^\w-]", one)[0] for ones in extras.values() for one in ones}


@pytest.mark.parametrize("command", inline_commands(), ids=lambda command: command.where)
def test_commands_in_running_text_are_known(command):
    words = re.split(r"\s+", command.text)[1:]
    if words[0] in ("COMMAND", "--help"):
        return
    assert words[0] in COMMANDS
    parser = build_parser()._subparsers._group_actions[0].choices[words[0]]
    text = parser.format_help()
    for below in (a.choices for a in parser._actions if a.dest == "action"):
        text += "".join(action.format_help() for action in below.values())
    for option in (word.partition("=")[0] for word in words if word.startswith("-") and word != "-"):
        assert option in re.findall(r"--?[\w-]+", text), command.text


@pytest.mark.parametrize(
    "command", [c for c in EVERY if re.match(r"distxcept( |$)", c.text)], ids=lambda c: c.where
)
def test_options_are_known(command):
    """Those too that are run in another form by another test."""
    words = [word for word in command.words[1:] if word != "..."]
    build_parser().parse_args(words[: words.index(">")] if ">" in words else words)


@pytest.mark.parametrize(
    "command", [c for c in EVERY if re.match(r"distxcept .*configs/\w+\.yaml", c.text)], ids=lambda c: c.where
)
def test_overrides_suit_the_recipe_as_it_is_shipped(command):
    """The runs below take a small one."""
    words = command.words[: command.words.index(">")] if ">" in command.words else command.words
    args = build_parser().parse_args(words[1:])
    load_config(str(REPOSITORY / args.config), args.overrides)


SMALL = {
    "run": {"epochs": 4, "evaluate_every": 1000, "telemetry_every": None},
    # Frozen, because a short backward pass is traced faster.
    "model": {"image_size": 71, "width": 0.0625, "middle_blocks": 1, "freeze": "block13", "weights": None},
    "batch": {"global": 4, "virtual": 4, "micro": 4},
    "memory": {"remat": "off"},  # one candidate for `plan --probe`
}


def make_small(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    for section, values in SMALL.items():
        config[section] = {**config.get(section, {}), **values}
    path.write_text(yaml.safe_dump(config))


TRAINED_FIRST = (
    "distxcept train configs/quickstart.yaml --profile updates=10-15",
    "distxcept train configs/finetune.yaml data.train.path=photos",
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages speak of, with the two runs that several of them go on from."""
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(REPOSITORY / "configs", folder / "configs")
    for name in ("quickstart", "finetune", "flowers"):
        make_small(folder / "configs" / f"{name}.yaml")
    shutil.copy(folder / "configs" / "quickstart.yaml", folder / "cfg.yaml")
    for name in ("data/flowers", "photos"):
        noise_folders(folder / name)
    photos = folder / "photos"
    shutil.copytree(photos / "validation", photos / "test")
    for name in ("new-photos", "more-photos"):
        shutil.copytree(photos / "validation" / "rose", folder / name)
    shutil.copy(folder / "new-photos" / "0.jpg", folder / "photo.jpg")
    assert {command.text for command in EVERY} >= set(TRAINED_FIRST)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for text in TRAINED_FIRST:
            assert main([*shlex.split(text)[1:], "-q"]) == 0
    assert list(folder.glob("runs/quickstart/tensorboard/**/*.xplane.pb"))
    for name in ("one", "two"):
        shutil.copytree(folder / "runs" / "quickstart", folder / "runs" / name)
    return folder


def test_the_profile_is_a_trace_of_the_training(prepared):
    """What the profiler's pages read: a host with threads on which the network's convolutions ran, forward and backward."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (file,) = (prepared / "runs" / "quickstart").glob("tensorboard/plugins/profile/*/*.xplane.pb")
    planes = {plane.name: plane for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes}
    host = planes["/host:CPU"]
    ran = [host.event_metadata[event.metadata_id].name for line in host.lines for event in line.events]
    kinds = {name.rpartition(":")[2] for name in ran}
    assert any(kind.endswith("DepthwiseConv2dNative") for kind in kinds)
    assert any(kind.endswith("DepthwiseConv2dNativeBackpropFilter") for kind in kinds)
    stages = {name for name in ran if name.startswith("Iterator::")}
    assert any("ParallelMap" in name for name in stages), (
        "reading and decoding, for TensorBoard's input analysis"
    )


def cheap_commands() -> dict[str, list[Command]]:
    """Of each page those that nobody else runs."""
    pages: dict[str, list[Command]] = {}
    for command in EVERY:
        if command.words[0] == "distxcept" and row_of(command) is None:
            pages.setdefault(command.where.split(":")[0], []).append(command)
    return pages


@pytest.mark.parametrize(
    ("page", "found"), cheap_commands().items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_run_as_written(page, found, prepared, tmp_path, monkeypatch, capsys):
    """In their order, since one makes what the next one reads."""
    folder = shutil.copytree(prepared, tmp_path / "folder")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # `plan --probe` finds nothing measured
    left_out = []
    for command in found:
        words, output = command.words[1:], None
        if words[0] == "launch" and shutil.which("mpirun") is None:
            left_out.append(command.text)
            continue
        if ">" in words:
            words, output = words[: words.index(">")], folder / words[-1]
        code = main(words)
        captured = capsys.readouterr()
        assert code == 0, f"{command.where}: {command.text}: exit {code}\n{captured.err}"
        if output is not None:
            output.write_text(captured.out)
    if left_out:
        pytest.skip(f"no mpirun (apt-get install openmpi-bin); all but these ran well: {left_out}")


# Python blocks that another test runs, by a piece of each; all others run below as they stand.
BLOCK_RUN_BY = {
    "class ZipSource": "unit/test_architecture_page.py::test_the_example_of_a_source",
    "def build": "integration/test_own_model.py::test_the_answers_are_those_of_the_model_that_comes_back",
}
MADE_FIRST = {
    'load("models/flowers/1")': "distxcept export runs/quickstart --format savedmodel --output models/flowers/1",
}
LEAVES = {'run.export("tflite"': "runs/finetune/export/*.tflite", "(Callback)": "runs/cfg/report.html"}


def test_the_table_names_one_block_and_one_everyday_test_each():
    for piece, name in BLOCK_RUN_BY.items():
        assert len([block.where for block in python_blocks() if piece in block.text]) == 1, piece
        assert not is_soak_only(name)
    assert {command.text for command in EVERY} >= set(MADE_FIRST.values())
    for piece in (*MADE_FIRST, *LEAVES):
        assert any(piece in block.text for block in python_blocks()), piece


@pytest.mark.parametrize(
    "block",
    [b for b in python_blocks() if not any(piece in b.text for piece in BLOCK_RUN_BY)],
    ids=lambda block: block.where,
)
def test_python_runs_as_written(block, prepared, tmp_path, monkeypatch):
    """Each as a program of its own, as if copied from the page; what it trains is not there yet."""
    folder = shutil.copytree(prepared, tmp_path / "folder")
    shutil.rmtree(folder / "runs" / "finetune")
    monkeypatch.chdir(folder)
    for piece, command in MADE_FIRST.items():
        if piece in block.text:
            assert main(shlex.split(command)[1:]) == 0
    (folder / "program.py").write_text(block.text)
    done = subprocess.run(
        [sys.executable, "program.py"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{block.where}: {done.stderr[-4000:]}"
    for piece, left in LEAVES.items():
        assert piece not in block.text or list(folder.glob(left)), done.stderr[-4000:]
