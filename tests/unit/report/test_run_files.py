"""What a run writes beside its snapshots, over several processes."""

import json
import os
import sys

from run_folders import make_run, started, validation_record, write_lines

from distxcept.cluster.tether import launcher_variables
from distxcept.report.run_folder import RunFiles, describe_environment
from distxcept.report.runs import Run


def test_a_bad_image_is_listed_once_in_all_processes_of_a_run(tmp_path):
    for found in (["a.jpg", "b.jpg"], ["b.jpg", "c.jpg"]):
        files = RunFiles(tmp_path)
        files.started(started())
        for path in found:
            files.bad_image(1, path, "cut off")
        files.ended({})
    listed = (tmp_path / "bad_images.jsonl").read_text().splitlines()
    assert [json.loads(line)["path"] for line in listed] == ["a.jpg", "b.jpg", "c.jpg"]


def test_a_training_that_begins_anew_has_nothing_of_the_one_before(tmp_path):
    folder = make_run(tmp_path / "run")
    for number in (1, 2):
        write_lines(folder / "metrics.jsonl", [validation_record(20, 0.5)])
        write_lines(folder / "bad_images.jsonl", [{"path": "a.jpg"}])
        write_lines(folder / "telemetry.jsonl", [{"kind": "sample"}])
        (folder / "predictions.json").write_text("{}")
        (folder / "tensorboard" / "train").mkdir(parents=True)
        files = RunFiles(folder)
        files.begins_anew()
        files.started(started(resume="never"))
        files.bad_image(1, "a.jpg", "cut off")
        files.ended({})
        run = Run(folder)
        assert (run.metrics, run.telemetry, len(run.bad_images), run.starts) == ([], [], 1, 1)
        assert not (folder / "predictions.json").exists()
        assert not (folder / "tensorboard").exists()
        aside = folder / "set-aside"
        assert (aside / f"tensorboard-{number}" / "train").is_dir()
        assert (aside / f"predictions.json-{number}").read_text() == "{}"


def test_files_that_cannot_be_set_aside_are_told(tmp_path):
    told = []
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "set-aside").touch()
    RunFiles(tmp_path, told.append).begins_anew()
    assert len(told) == 1
    assert "metrics.jsonl still has what an earlier training wrote" in told[0]


def test_how_a_run_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/bin/distxcept", "train", "a b.yaml"])
    found = describe_environment(["CPU:0"])
    assert (found["command"], found["directory"]) == (sys.argv, os.getcwd())
    assert (found["launcher"], found["ranks"]) == ("local", 1)


def test_a_rank_tells_the_command_that_launched_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/distxcept", "launch", "a b.yaml", "--np=2"])
    place = {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"}
    for name, value in {f"OMPI_COMM_WORLD_{key}": value for key, value in place.items()}.items():
        monkeypatch.setenv(name, value)
    for name, value in launcher_variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["distxcept", "train", "/abs/a b.yaml"])
    found = describe_environment(["CPU:0"])
    assert found["command"] == ["distxcept", "launch", "a b.yaml", "--np=2"]
    assert (found["launcher"], found["ranks"]) == ("mpirun", 2)
