"""`distxcept config show|check|schema` as a user calls it."""

import json

import pytest
import yaml

from distxcept.cli.main import main

MINIMAL = "data:\n  train: {kind: folder, path: images}\n"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(MINIMAL)
    return "c.yaml"


def test_show_prints_yaml_that_shows_the_same(file, tmp_path, capsys):
    assert main(["config", "show", file, "batch.global=8"]) == 0
    first = capsys.readouterr()
    assert first.err == ""
    assert yaml.safe_load(first.out)["batch"] == {"global": 8, "virtual": 8, "micro": "auto"}
    (tmp_path / "resolved.yaml").write_text(first.out)
    assert main(["config", "show", "resolved.yaml"]) == 0
    assert capsys.readouterr().out == first.out


def test_show_json_with_overrides_before_and_after_the_option(file, capsys):
    assert main(["config", "show", file, "run.seed=1", "--json", "batch.global=8"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["run"]["seed"], shown["batch"]["global"]) == (1, 8)


def test_overrides_do_not_leak_into_the_next_call(file, capsys):
    assert main(["config", "show", file, "--json", "run.seed=5"]) == 0
    capsys.readouterr()
    assert main(["config", "show", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["seed"] == 0


def test_show_refuses_in_one_line_with_exit_2(file, capsys):
    assert main(["config", "show", file, "run.sed=1", "batch.micro=0"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "distxcept config: override 'run.sed=1': run.sed: unknown key; did you mean run.seed? "
        "(and 1 more; `distxcept config check` lists them)\n"
    )


def test_debug_shows_the_traceback(file, capsys):
    assert main(["config", "show", file, "--debug", "run.sed=1"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_check_prints_ok(file, capsys):
    assert main(["config", "check", file]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert main(["config", "check", file, "-q"]) == 0
    assert capsys.readouterr().out == ""


def test_check_prints_a_line_for_each_mistake(file, capsys):
    assert main(["config", "check", file, "run.sed=1", "batch.micro=0"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "override 'run.sed=1': run.sed: unknown key; did you mean run.seed?",
        "override 'batch.micro=0': batch.micro: expected auto or an integer ≥ 1, got 0",
    ]


def test_check_json(file, tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text(MINIMAL + "run: {sed: 1}\n")
    assert main(["config", "check", "bad.yaml", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "mistakes": [
            {"where": "bad.yaml:3", "key": "run.sed", "message": "unknown key; did you mean run.seed?"}
        ],
    }
    assert main(["config", "check", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "mistakes": []}


def test_schema_is_json_schema(capsys):
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["required"] == ["data"]
    assert schema["$defs"]["BatchSection"]["properties"]["global"]["description"]


def test_keys_are_a_table_that_a_prefix_narrows(capsys):
    assert main(["config", "schema", "--keys"]) == 0
    everything = capsys.readouterr().out
    assert main(["config", "schema", "--keys", "batch."]) == 0
    batch = capsys.readouterr().out
    assert batch.splitlines()[:2] == [
        "batch.global   samples of one weight update",
        "               an integer ≥ 1; default 32",
    ]
    assert "engine.name" in everything
    assert "engine.name" not in batch
    assert main(["config", "schema", "--keys", "zzz"]) == 2
