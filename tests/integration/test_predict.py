"""`distxcept predict` and `evaluate` on a run folder as a user has it, against each other."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import RANK_ENVIRON
from PIL import Image
from ready_runs import noise_folders, run_on

from distxcept.cli.main import main

DISTXCEPT = str(Path(sys.executable).with_name("distxcept"))


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noise_folders(tmp_path_factory.mktemp("flowers"))


@pytest.fixture(scope="module")
def run_folder(flowers, tmp_path_factory) -> Path:
    return run_on(flowers, tmp_path_factory.mktemp("runs"))


def predicted(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["predict", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_predictions_of_a_split_are_those_of_evaluate(capsys, run_folder, flowers):
    """The confusion matrix counted from predict's answers is evaluate's, by way of a folder and of a split."""
    code, out, _ = predicted(capsys, str(run_folder), str(flowers / "validation"), "--format", "jsonl")
    assert code == 0
    answers = [json.loads(line) for line in out.splitlines()]
    names = sorted(path.name for path in (flowers / "validation").iterdir())
    matrix = [[0] * len(names) for _ in names]
    for answer in answers:
        true = Path(answer["path"]).parent.name
        matrix[names.index(true)][names.index(answer["predictions"][0]["label"])] += 1
    assert main(["evaluate", str(run_folder), "--json"]) == 0
    split = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(run_folder), "--json", "--data", str(flowers / "validation")]) == 0
    folder = json.loads(capsys.readouterr().out)
    assert split["confusion_matrix"] == folder["confusion_matrix"] == matrix
    assert sum(map(sum, matrix)) == 20
    right = sum(matrix[k][k] for k in range(len(names)))
    assert split["validation_accuracy"] == pytest.approx(right / 20)
    assert len({answer["predictions"][0]["probability"] for answer in answers}) > 10  # no constant answer


def test_evaluate_of_the_training_split(capsys, run_folder, flowers):
    assert main(["evaluate", str(run_folder), "--split", "train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 20
    assert main(["evaluate", str(run_folder), "--split", "train", "--data", str(flowers)]) == 2


def test_bad_files_are_told_and_passed_over(capsys, run_folder, flowers, tmp_path):
    picture = next((flowers / "train").rglob("*.jpg"))
    (tmp_path / "broken.jpg").write_bytes(picture.read_bytes()[:200])
    files = [str(tmp_path / "broken.jpg"), str(picture), str(tmp_path / "none\x1b[2J.jpg")]
    code, out, err = predicted(capsys, str(run_folder), *files, "--format", "csv", "--top", "9")
    assert code == 3
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [bool(row["error"]) for row in rows] == [True, False, True]
    probabilities = [float(rows[1][key]) for key in rows[1] if key.startswith("probability")]
    assert len(probabilities) == 5  # as many as there are classes
    assert sum(probabilities) == pytest.approx(1.0, abs=1e-4)
    assert probabilities == sorted(probabilities, reverse=True)
    assert "broken.jpg: " in err and "2 of 3 files could not be read" in err
    assert "\x1b" not in err


def test_a_program_on_the_other_end_gets_each_answer_at_once(run_folder, tmp_path):
    Image.new("RGB", (90, 80), (200, 30, 30)).save(tmp_path / "red.png")
    process = subprocess.Popen(
        [DISTXCEPT, "predict", str(run_folder), "-", "--null", "--format", "jsonl"],
        env={**os.environ, **RANK_ENVIRON},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    for _ in range(3):
        process.stdin.write(f"{tmp_path / 'red.png'}\0")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["path"].endswith("red.png")
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_another_model_than_the_config_describes_is_refused(capsys, run_folder, tmp_path):
    config = (run_folder / "config.yaml").read_text().replace("width: 0.0625", "width: 0.125")
    (tmp_path / "other.yaml").write_text(config)
    code, out, err = predicted(capsys, str(run_folder), "x.jpg", "--config", str(tmp_path / "other.yaml"))
    assert (code, out) == (2, "")
    assert "give the config that it was trained with" in err
    assert len(err.splitlines()) == 1
