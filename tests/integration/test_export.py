"""`distxcept export`: each format is loaded by its own program and asked the same questions as the model."""

import json
import zipfile
from pathlib import Path

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from ready_runs import noise_folders, random_weights, ready_run, run_on

from distxcept.checkpoint.store import Store
from distxcept.cli.main import main
from distxcept.config.schema import Config
from distxcept.data.sources import open_folder
from distxcept.export import exporting
from distxcept.export.card import read_embedded
from distxcept.export.comparing import read_squares
from distxcept.model.layout import Layout
from distxcept.model.weights import load_weights


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noise_folders(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def run_folder(pictures, tmp_path_factory) -> Path:
    return run_on(pictures, tmp_path_factory.mktemp("runs"))


def exported(capsys, run_folder: Path, *arguments: str) -> dict:
    assert main(["export", str(run_folder), "--json", "--force", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def answers(capsys, run_folder: Path, files: list[Path]) -> list[list[float]]:
    """Probabilities by `distxcept predict`, in the order of the classes."""
    assert main(["predict", str(run_folder), *map(str, files), "--format", "jsonl", "--top", "9"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [{one["label"]: one["probability"] for one in line["predictions"]} for line in lines]
    return [[row[name] for name in sorted(row)] for row in rows]


@pytest.fixture(scope="module")
def squares(pictures) -> tuple[list[Path], np.ndarray]:
    """Files, and their pixels as the model gets them."""
    source = open_folder(str(pictures / "validation"))
    files = [Path(source.name(index)) for index in range(len(source))]
    config = Config.model_validate(
        {"data": {"train": {"kind": "folder", "path": "."}}, "model": {"image_size": 71}}
    )
    return files, read_squares(source, len(files), config).images


def test_keras(capsys, run_folder, squares):
    result = exported(capsys, run_folder, "--format", "keras")
    path = Path(result["path"])
    assert path == run_folder / "export" / "model.keras"
    assert result["largest_difference"] < 1e-4
    assert result["images"] == 20
    assert result["accuracy_before"] == result["accuracy_after"]
    model = keras.models.load_model(path)
    assert model.input_shape == (None, 71, 71, 3)
    files, pixels = squares
    given = model.predict_on_batch(pixels.astype(np.float32))
    assert np.max(np.abs(given - answers(capsys, run_folder, files))) < 1e-4
    assert sum(int(np.prod(w.shape)) for w in model.weights) == sum(
        p.elements for p in Layout(classes=5, width=0.0625, middle_blocks=1).parameters
    )
    card = json.loads(path.with_name("model.keras.json").read_text())
    assert card["class_names"] == read_embedded(path)["class_names"]
    assert card["comparison"]["images"] == 20
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt").decode().split() == card["class_names"]


def test_a_pruned_model_tells_its_zeros(capsys, pictures, tmp_path):
    """The file is as large as ever; what zip makes of it is not."""
    run_folder = run_on(pictures, tmp_path)
    store = Store(run_folder)
    snapshot = store.choose().snapshot
    assert snapshot is not None
    tensors = snapshot.tensors()
    pruned = [name for name in tensors if name.endswith("pointwise_kernel")]
    for name in pruned:
        tensors[name] = np.where(np.abs(tensors[name]) < np.median(np.abs(tensors[name])), 0, tensors[name])
    store.save(4, tensors, snapshot.state, keep=1)
    assert main(["export", str(run_folder), "--format", "keras"]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    share = float(told.split("%")[0])
    kernels = [t for n, t in tensors.items() if n.endswith("kernel")]
    assert share == pytest.approx(
        100 * sum(np.sum(t == 0) for t in kernels) / sum(t.size for t in kernels), abs=0.1
    )
    size = (run_folder / "export" / "model.keras").stat().st_size / 1e6
    assert float(told.split(" MB")[0].split()[-1]) < 0.95 * size


def test_a_keras_export_is_weights_to_start_from(capsys, run_folder):
    path = exported(capsys, run_folder, "--format", "keras")["path"]
    layout = Layout(classes=5, width=0.0625, middle_blocks=1)
    loaded, original = load_weights(path, layout), random_weights(layout)
    assert loaded.keys() == original.keys()
    assert all(np.array_equal(loaded[name], original[name]) for name in original)


def test_saved_model_answers_for_the_bytes_of_files(capsys, run_folder, pictures):
    result = exported(capsys, run_folder, "--format", "savedmodel")
    assert result["largest_difference"] < 1e-4
    files = sorted((pictures / "validation").rglob("*.jpg"))[::3]
    served = tf.saved_model.load(result["path"]).signatures["serving_default"]
    given = served(images_bytes=tf.constant([file.read_bytes() for file in files]))
    expected = answers(capsys, run_folder, files)
    assert np.max(np.abs(given["probabilities"].numpy() - expected)) < 1e-4
    names = json.loads((Path(result["path"]) / "assets.extra" / "distxcept.json").read_text())["class_names"]
    assert [label.decode() for label in given["label"].numpy()] == [names[k] for k in np.argmax(expected, 1)]


@pytest.mark.parametrize(("quantize", "limit"), [("float16", 0.01), ("int8", 0.2)])
def test_tflite(capsys, run_folder, squares, quantize, limit):
    result = exported(capsys, run_folder, "--format", "tflite", "--quantize", quantize)
    assert result["largest_difference"] < limit
    path = Path(result["path"])
    interpreter = tf.lite.Interpreter(model_path=str(path))
    (given,), (told,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert given["dtype"] == (np.uint8 if quantize == "int8" else np.float32)
    assert (given["shape"].tolist(), told["shape"].tolist()) == ([1, 71, 71, 3], [1, 5])
    if quantize == "int8":
        assert given["quantization"] == (1.0, 0)  # pixels are taken as they are
    assert len(read_embedded(path)["class_names"]) == 5
    interpreter.allocate_tensors()
    files, pixels = squares
    answered = []
    for one in pixels:
        interpreter.set_tensor(given["index"], one[None].astype(given["dtype"]))
        interpreter.invoke()
        answered.append(interpreter.get_tensor(told["index"])[0])
    expected = np.array(answers(capsys, run_folder, files))
    assert np.max(np.abs(np.array(answered) - expected)) < limit
    assert np.std(answered, axis=0).max() > 0.5 * np.std(expected, axis=0).max()  # no constant answer


def test_onnx(capsys, run_folder, squares):
    result = exported(capsys, run_folder, "--format", "onnx")
    assert result["largest_difference"] < 1e-4
    files, pixels = squares
    session = onnxruntime.InferenceSession(result["path"])
    (given,) = session.run(None, {"images": pixels.astype(np.float32)})
    assert np.max(np.abs(given - answers(capsys, run_folder, files))) < 1e-4
    model = onnx.load(result["path"])
    card = json.loads({entry.key: entry.value for entry in model.metadata_props}["distxcept.json"])
    assert len(card["class_names"]) == 5
    assert {node.op_type for node in model.graph.node} <= {
        "Add", "Conv", "Div", "Flatten", "Gemm", "GlobalAveragePool", "MaxPool", "Mul", "Relu", "Softmax", "Sub", "Transpose"
    }  # fmt: skip


def test_what_differs_from_the_model_is_not_kept(capsys, run_folder, tmp_path, monkeypatch):
    build = exporting._keras_model

    def wrong(trained):
        model = build(trained)
        variable = model.get_layer("block5_sepconv2_bn").weights[0]
        variable.assign(variable * 1.1)
        return model

    monkeypatch.setattr(exporting, "_keras_model", wrong)
    code = main(["export", str(run_folder), "--format", "keras", "--output", str(tmp_path / "wrong.keras")])
    assert code == 1
    assert "more than rounding" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_is_replaced_unasked(capsys, run_folder, tmp_path):
    (tmp_path / "mine.keras").write_text("precious")
    code = main(["export", str(run_folder), "--format", "keras", "--output", str(tmp_path / "mine.keras")])
    assert code == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "mine.keras").read_text() == "precious"


@pytest.mark.parametrize("form", ["savedmodel", "tflite"])
def test_a_folder_that_is_no_saved_model_is_never_replaced(capsys, run_folder, tmp_path, form):
    (tmp_path / "precious").touch()
    assert main(["export", str(run_folder), "--format", form, "--output", str(tmp_path), "--force"]) == 2
    assert "it is not replaced" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_without_data_less_is_checked_and_int8_refused(capsys, tmp_path):
    gone = {"train": {"kind": "folder", "path": str(tmp_path / "gone")}}
    run = ready_run(tmp_path, ["a", "b"], data=gone)
    assert main(["export", str(run), "--format", "tflite", "--quantize", "int8"]) == 2
    assert "--data FOLDER" in capsys.readouterr().err
    assert main(["export", str(run), "--format", "keras", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["accuracy_before"] is None
    assert result["largest_difference"] < 1e-4
