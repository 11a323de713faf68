"""Words for the Tab key: from a table, and by every shell that is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distxcept.cli.completion import SCRIPTS, candidates
from distxcept.cli.main import COMMANDS, build_parser, main


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", list(COMMANDS)),
        ("ex", ["export"]),
        ("config ", ["show", "check", "schema"]),
        ("nonsense ", []),
        ("export runs/one --for", ["--format", "--force"]),
        ("export runs/one --format ", ["keras", "savedmodel", "tflite", "onnx"]),
        ("export runs/one --format t", ["tflite"]),
        ("export runs/one --output ", []),  # a file
        ("train ", []),  # a file
        ("train a.yaml opt", ["optimizer."]),
        ("train a.yaml optimizer.s", ["optimizer.schedule=", "optimizer.schedule."]),
        (
            "train a.yaml optimizer.name=",
            [f"optimizer.name={n}" for n in ["sgd", "rmsprop", "adam", "adamw", "lamb"]],
        ),
        ("train a.yaml optimizer.name=adam batch.mi", ["batch.micro="]),
        ("train a.yaml batch.micro=", ["batch.micro=auto"]),
        ("train a.yaml --profile updates=1-2 data.augment.f", ["data.augment.flip="]),
        ("train a.yaml data.augment.flip=", ["data.augment.flip=true", "data.augment.flip=false"]),
        ("train a.yaml data.train.kind=r", ["data.train.kind=records"]),
        ("train a.yaml run.early_stopping=", ["run.early_stopping=null"]),
        ("train a.yaml no.such=", []),
        ("evaluate runs/one prec", ["precision="]),
        ("launch a.yaml --via m", ["mpirun"]),
        ("train a.yaml data.train.ki", ["data.train.kind="]),
        ("train a.yaml optimizer.schedule.k", ["optimizer.schedule.kind="]),
        ("completion ", [*SCRIPTS]),
    ],
)
def test_candidates(line, found):
    assert candidates(build_parser(), line.split(" ")) == found


def test_sections_come_one_at_a_time():
    found = candidates(build_parser(), ["train", "a.yaml", ""])
    assert {"run.", "model.", "data.", "batch.", "precision="} <= set(found)
    assert all(word.count(".") <= 1 for word in found)


def test_keys_need_no_tensorflow():
    probe = (
        "import sys; from distxcept.cli.main import main\n"
        "main(['completion', 'words', '--', 'train', 'a.yaml', 'engine.name='])\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "engine.name=mirrored\n" in done.stdout


def test_options_are_words_too(capsys):
    assert main(["completion", "words", "--", "runs", "--st"]) == 0
    assert capsys.readouterr().out == "--state\n"
    assert main(["completion", "words", "--", "train", ""]) == 0
    assert capsys.readouterr().out == ""  # an empty line would keep bash from offering files


def test_what_the_scripts_ask_for_is_no_shell(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "there are bash, zsh, fish (see" in capsys.readouterr().err


# Each types a line, asks its shell for completions and prints them, one a line.
ASK_BASH = """
eval "$(distxcept completion bash)"
COMP_LINE="distxcept $1" COMP_POINT=$((${#1} + 10))
compopt() { :; }
_distxcept
printf '%s\\n' "${COMPREPLY[@]}"
"""
ASK_ZSH = """
compdef() { :; }
compadd() { while [[ $1 != -- ]] { shift }; shift; (( $# )) && print -l -- "$@" }
_files() { print files }
eval "$(distxcept completion zsh)"
words=(distxcept "${(@s: :)1}"); CURRENT=$#words
_distxcept
"""
ASK_FISH = """
distxcept completion fish | source
complete -C "distxcept $argv[1]" | string replace -r '\\t.*' ''
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("expo", {"export"}),
        ("train a.yaml optimizer.na", {"optimizer.name="}),
        ("train a.yaml optimizer.name=ada", {"optimizer.name=adam", "optimizer.name=adamw"}),
    ],
)
@pytest.mark.parametrize("shell", SCRIPTS)
def test_in_a_real_shell(shell, line, found, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    ask = {"bash": ASK_BASH, "zsh": ASK_ZSH, "fish": ASK_FISH}[shell]
    (tmp_path / "ask").write_text(ask)
    (tmp_path / "distxcept").write_text(f'#!/bin/sh\nexec {sys.executable} -m distxcept.cli.main "$@"\n')
    (tmp_path / "distxcept").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [program, str(tmp_path / "ask"), line],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parent,
    )
    assert done.stderr == ""
    # bash takes words apart at "="
    expected = {word.removeprefix("optimizer.name=") or word for word in found} if shell == "bash" else found
    assert set(done.stdout.split()) == expected
