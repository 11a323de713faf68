"""The command line itself: usage errors in one line, help at once."""

import argparse
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from distxcept.cli.main import COMMANDS, build_parser, main


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["cofig"], "distxcept: unknown command 'cofig'; did you mean config? (see `distxcept --help`)"),
        (
            ["config"],
            "distxcept config: the following arguments are required: ACTION (see `distxcept config --help`)",
        ),
        (
            ["pack", "a", "b", "--processes", "x"],
            "distxcept pack: argument --processes: 'x' is no whole number (see",
        ),
        (
            ["pack", "a", "b", "--quality", "96"],
            "distxcept pack: argument --quality: 96 is not from 1 to 95 (see",
        ),
        (["config", "shw"], "distxcept config: unknown action 'shw'; did you mean show? (see"),
        (["config", "xyz"], "distxcept config: unknown action 'xyz'; there are show, check, schema (see"),
        (["config", "show"], "distxcept config show: the following arguments are required: CONFIG (see"),
        (
            ["config", "show", "a", "--jsn"],
            "distxcept config show: unknown option '--jsn'; did you mean --json?",
        ),
        (
            ["config", "show", "a", "--js"],
            "distxcept config show: unknown option '--js'; did you mean --json?",
        ),
        (["config", "show", "a", "b"], "distxcept config: override 'b': has no '='; write key.path=value"),
        (["config", "schema", "x"], "distxcept config schema: unknown argument 'x'"),
        (["config", "show", "a\nb", "--c\nd"], "distxcept config show: unknown option "),
        (["--nothing"], "distxcept: unknown option '--nothing'"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(argv, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("data: {train: {kind: folder, path: x}}\n")
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert len(captured.err.splitlines()) == 1


def test_without_a_command_the_first_steps_are_shown(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    commands = re.findall(r"^  (?:distxcept|python -m distxcept)(\S*) (\S+)", out, re.MULTILINE)
    assert 3 <= len(commands) <= 5
    assert {word for module, word in commands if not module} <= set(COMMANDS)
    assert "distxcept --help" in out


def test_the_help_lists_every_command():
    assert all(f"    {command}" in build_parser().format_help() for command in COMMANDS)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


@pytest.mark.parametrize("parser", [*parsers(build_parser())], ids=lambda parser: parser.prog)
def test_every_help_gives_examples(parser):
    text = parser.format_help()
    _, found, examples = text.partition("first steps:\n" if parser.prog == "distxcept" else "examples:\n")
    assert found
    assert examples.strip().startswith("distxcept ")


@pytest.mark.parametrize("parser", [*parsers(build_parser())], ids=lambda parser: parser.prog)
def test_every_option_is_described_in_words(parser):
    """The default in brackets alone says nothing."""
    options = [action for action in parser._actions if action.option_strings]
    assert [one.dest for one in options if not re.sub(r"\(.*?\)", "", one.help or "").strip()] == []


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "distxcept.cli.main", "config", "schema"],
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_terminal_without_unicode_is_no_error():
    done = subprocess.run(
        [sys.executable, "-m", "distxcept.cli.main", "config", "schema", "--keys", "run.seed"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )
    assert done.returncode == 0
    assert b"an integer \\u2265 0" in done.stdout


HELP = [sys.executable, "-m", "distxcept.cli.main", "--help"]


def test_help_imports_nothing_heavy():
    probe = (
        "import sys; from distxcept.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tensorflow', 'keras', 'pydantic', 'numpy', 'yaml', 'rich', 'horovod', 'mpi4py'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0


def test_help_takes_no_more_than_300_ms():
    """Of the processor: how long one waits for that depends on what else the machine does."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(HELP, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(seconds) <= 0.3
