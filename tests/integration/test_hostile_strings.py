"""Strings that would do harm in a shell, an ssh command line or an sbatch file, everywhere a user can put one.

Each would create the file `canary` if anybody interpreted it. They either arrive unchanged or are refused with exit code 2.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from launchers import PROGRAMS, REPOSITORY, skip_without

from distxcept.cli.main import main

TOUCH = "touch canary"
HOSTILE = [
    f"; {TOUCH}", f";{TOUCH};", f"& {TOUCH}", f"&& {TOUCH}", f"| {TOUCH}", f"|| {TOUCH}", f"$({TOUCH})", f"`{TOUCH}`",
    f"a$({TOUCH})b", f"${{x:-$({TOUCH})}}", f"'; {TOUCH}; '", f'"; {TOUCH}; "', f"'\"; {TOUCH}; \"'", f"\\'; {TOUCH} #",
    f"a' $({TOUCH}) 'b", f'a" $({TOUCH}) "b', "> canary", ">> canary", "2> canary", "a > canary", "<(touch${IFS}canary)",
    "$'\\x74ouch canary'", f"-oProxyCommand={TOUCH}", "--mca plm_rsh_agent touch", f"-x;{TOUCH}", "--help", "-c",
    f"--wrap={TOUCH}", "../canary", "/dev/null", "~", "*", "?", "%j%x%n", "#SBATCH --wrap", "!!", f"a\\\n{TOUCH}",
    f"a\n{TOUCH}", f"a\n#SBATCH --wrap={TOUCH}", f"a\r\n{TOUCH}", f"a\x00{TOUCH}", f"a\x1b]0;{TOUCH}\x07",
]  # fmt: skip
BROKEN = [text for text in HOSTILE if any(ord(character) < 32 for character in text)]
CONFIG = {"run": {"updates": 1}, "data": {"train": {"kind": "synthetic", "samples": 8, "classes": 2}}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.rglob("canary*"))


def run_dry(capsys, *arguments: str) -> tuple[int, str]:
    code = main([*arguments, "--dry-run"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out


def override(key: str, text: str) -> str:
    return f"{key}={json.dumps(text)}"


def test_there_are_enough():
    assert len(set(HOSTILE)) >= 40


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("command", [["launch", "--np", "2"], ["submit", "--time", "10", "--nodes", "2"]])
def test_names_of_runs_are_refused(folder, capsys, command, text):
    assert run_dry(capsys, command[0], "cfg.yaml", *command[1:], override("run.name", text))[0] == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_hosts_interfaces_and_variables_are_refused(folder, capsys, text):
    (folder / "hosts").write_text(text)
    for option in (
        f"--hosts={text}",
        f"--hosts=a:2,{text}:2",
        "--hostfile=hosts",
        f"--interface={text}",
        f"--env={text}",
    ):
        assert run_dry(capsys, "launch", "cfg.yaml", "--np=2", option) == (2, ""), option


@pytest.mark.parametrize("text", HOSTILE)
def test_words_of_sbatch_are_refused(folder, capsys, text):
    for option in ("--partition", "--account", "--qos", "--mem", "--dependency"):
        command = ["submit", "cfg.yaml", "--time=10", f"{option}={text}"]
        assert run_dry(capsys, *command) == (2, ""), option
    assert run_dry(capsys, "submit", "cfg.yaml", f"--time={text}") == (2, "")
    if text not in ("--help",):  # an option that sbatch has
        assert run_dry(capsys, "submit", "cfg.yaml", "--time=10", f"--sbatch-option={text}") == (2, "")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_batch_script_hands_on_paths_and_overrides_unchanged(folder, capsys, text):
    key = override("model.weights", text)
    code, script = run_dry(capsys, "submit", "cfg.yaml", "--time=10", f"--container={text}", key)
    if text in BROKEN:
        assert (code, script) == (2, "")
        return
    assert code == 0
    shown = script.replace(
        f"exec {shlex.quote(sys.executable)} ", f"exec {shlex.quote(str(show_arguments(folder)))} "
    )
    done = subprocess.run(["bash"], input=shown, capture_output=True, text=True)
    arguments = json.loads(done.stdout)
    assert arguments[-1] == key
    assert arguments[arguments.index("--container") + 1] == os.path.abspath(text)


def show_arguments(folder: Path) -> Path:
    program = folder / "show"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    return program


@pytest.mark.mpi
@pytest.mark.parametrize("via", ["mpirun", "horovodrun"])
def test_real_launchers_hand_on_overrides_and_paths_unchanged(folder, via):
    """horovodrun builds a shell command of what it is given."""
    skip_without("mpirun", *(["horovod"] if via == "horovodrun" else []))
    place = folder / f"; {TOUCH} $({TOUCH}) '\" -o"
    place.mkdir()
    config = place / f"-c; {TOUCH}.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    overrides = [override("model.weights", text) for text in HOSTILE if text not in BROKEN]
    overrides += ["run.name=x", override("run.dir", str(place)), "run.updates=1"]
    stub = str(PROGRAMS / "stub_distxcept.py")
    done = subprocess.run(
        [sys.executable, stub, "launch", "--np=2", f"--via={via}", "--", str(config), *overrides],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    arrived = json.loads((place / "x" / "arguments.json").read_text())
    assert arrived == [str(place / "x"), *overrides]
