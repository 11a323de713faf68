"""`distxcept plan`: exit codes, what it prints, and that it stays instant."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distxcept.cli.main import main
from distxcept.config.schema import MemorySection
from distxcept.data import host
from distxcept.memory import cuda_cards, measuring, target
from distxcept.memory.budget import host_budget
from distxcept.memory.nvml import GpuState
from distxcept.memory.probe import Measured

CONFIG = """\
data: {train: {kind: folder, path: nowhere/train}}
batch: {global: 64, virtual: 16}
"""
GIB = 2**30


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture(autouse=True)
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_cards, "cuda_devices", lambda numbers: {})


def plan(capsys, *argv: str, code: int = 0) -> dict:
    assert main(["plan", *argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_plan_that_fits(config, capsys):
    assert main(["plan", config, "--device", "RTX 3090"]) == 0
    out = capsys.readouterr().out
    assert "RTX 3090 (24.0 GiB, from the table of cards)" in out
    assert "global 64 = 1 replica × 64 samples, in 1 micro step of up to 64; batch norm over 16" in out
    assert "assumed: 1000 classes" in out
    assert "chosen" in out and "the fastest plan fits" in out
    assert "activations" in out and "█" in out
    assert "a margin of 25% for the allocator: " in out and "  margin of 25% " in out
    assert max(map(len, out.splitlines())) < 200


def test_nothing_fits(config, capsys):
    assert main(["plan", config, "--memory", "1.5GiB"]) == 4
    captured = capsys.readouterr()
    assert captured.err.startswith("distxcept plan: nothing fits: ")
    assert len(captured.err.splitlines()) == 1
    assert "ways out:" in captured.out
    for key in ("batch.virtual=", "precision=mixed_float16", "model.image_size="):
        assert key in captured.out
    assert "more devices alone do not help" in captured.out


def test_json_of_a_plan(config, capsys):
    found = plan(capsys, config, "--device", "2080 Ti", "model.classes=5")
    assert set(found) == {
        "device",
        "batch",
        "model",
        "assumptions",
        "candidates",
        "chosen",
        "reason",
        "ways_out",
    }
    assert found["device"]["kind"] == "gpu" and found["device"]["memory_bytes"] == 11 * GIB
    assert found["device"]["margin"] == 0.25
    assert found["assumptions"] == [] and found["ways_out"] == []
    assert found["model"]["classes"] == 5
    (chosen,) = [one for one in found["candidates"] if one["chosen"]]
    assert {key: chosen[key] for key in ("micro_batch", "remat")} == found["chosen"]
    for one in found["candidates"]:
        assert sum(one["bytes"].values()) == one["total_bytes"]
        assert one["fits"] == (one["total_bytes"] <= found["device"]["usable_bytes"])
    assert max(one["relative_speed"] for one in found["candidates"]) == 1.0


def test_json_when_nothing_fits(config, capsys):
    found = plan(capsys, config, "--memory", "1GiB", "memory.remat=off", code=4)
    assert found["chosen"] is None
    assert found["ways_out"][0] == {
        "settings": {"memory.remat": "auto"},
        "changes": None,
        "total_bytes": found["ways_out"][0]["total_bytes"],
        "saved_bytes": found["ways_out"][0]["saved_bytes"],
        "fits": False,
    }
    assert found["ways_out"][0]["saved_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "replicas", "micro"),
    [
        ([], 1, 64),
        (["--world", "4"], 4, 16),
        (["--world", "3"], 3, 32),
        (["--world", "64"], 64, 16),
        (["engine.devices=2"], 2, 32),
        (["engine.name=single", "--world", "1"], 1, 64),
    ],
)
def test_replicas_share_the_batch(config, capsys, arguments, replicas, micro):
    found = plan(capsys, config, "--device", "H100", *arguments)
    assert found["batch"]["replicas"] == replicas
    assert found["chosen"] == {"micro_batch": micro, "remat": False}


def test_reduction_buffers_only_with_several_replicas(config, capsys):
    small = ["--device", "T4", "model.image_size=71", "batch.global=2", "batch.virtual=1"]
    (alone, *_), (two, *_) = (
        plan(capsys, config, *small, *world)["candidates"] for world in ([], ["--world", "2"])
    )
    assert alone["bytes"]["reduction"] == 0 and two["bytes"]["reduction"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "much"], "--memory: 'much' is no size; write it like 16GiB or 500MB"),
        (["--device", "RTX 3091"], "--device 'RTX 3091' is not in the table of cards; did you mean RTX 3090"),
        (["--device", "T4", "--memory", "1GiB"], "not allowed with argument"),
        (["--world", "0"], "'0' is not 1 or more"),
        (["--world", "²"], "'²' is no whole number"),
        (["--world", "65537"], "65537 is more than 65536 replicas"),
        (["--world", "2", "engine.name=single"], "--world is 2, but engine.name is single"),
        (["batch.virtual=7"], "batch.global / batch.virtual = 64 / 7"),
    ],
)
def test_wrong_usage(config, capsys, arguments, message):
    assert main(["plan", config, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


@pytest.fixture
def two_cards(monkeypatch):
    """CUDA's first is the driver's second, which has more free memory."""
    cards = {
        ordinal: GpuState(
            index=1 - ordinal,
            driver_version="550",
            name="NVIDIA A10",
            memory_total_bytes=24 * GIB,
            memory_free_bytes=free * GIB,
        )
        for ordinal, free in enumerate((23, 9))
    }
    monkeypatch.setattr(target, "shown_cards", lambda: cards)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("arguments", "name", "replicas"),
    [
        ([], "GPU 0 of 2, the fullest, NVIDIA A10", 2),
        (["engine.name=single"], "GPU 1 NVIDIA A10: 23.0 GiB", 1),
        (["engine.devices=1"], "GPU 1 NVIDIA A10: 23.0 GiB", 1),
        (["engine.devices=2"], "GPU 0 of 2, the fullest,", 2),
        (["engine.devices=[GPU:0]"], "GPU 1 NVIDIA A10: 23.0 GiB", 1),
        (["engine.devices=[gpu:1]"], "GPU 0 NVIDIA A10: 9.0 GiB", 1),
        (["--world", "8"], "GPU 0 of 2, the fullest,", 8),
    ],
)
def test_the_cards_that_the_run_will_use(config, capsys, two_cards, arguments, name, replicas):
    found = plan(capsys, config, *arguments)
    assert found["device"]["name"].startswith(name)
    assert found["batch"]["replicas"] == replicas


def test_a_card_that_is_not_there(config, capsys, two_cards):
    assert main(["plan", config, "engine.devices=[GPU:2]"]) == 2
    assert "engine.devices names GPU:2, but CUDA shows GPU:0, GPU:1;" in capsys.readouterr().err


def test_a_card_on_a_machine_without_any(config, capsys):
    assert main(["plan", config, "engine.devices=[GPU:3]"]) == 2
    error = capsys.readouterr().err
    assert "engine.devices names GPU:3, but CUDA shows no GPU here;" in error and "--device" in error
    assert plan(capsys, config, "engine.devices=[GPU:3]", "--device", "A100")["device"]["kind"] == "gpu"


def test_the_first_card_that_the_run_will_use_is_tried(config, capsys, two_cards, trials, monkeypatch):
    tried = []
    trials(lambda micro, remat: 1.0)
    fits = measuring.run_child
    monkeypatch.setattr(
        measuring, "run_child", lambda request, micro: tried.append(request["device"]) or fits(request, micro)
    )
    plan(capsys, config, "--probe", "engine.devices=[GPU:1]")
    assert set(tried) == {"GPU:1"}


def test_a_cpu_beside_cards(config, capsys, two_cards, monkeypatch):
    small = ("model.image_size=71", "model.width=0.1")
    assert plan(capsys, config, "engine.devices=[CPU:0]", *small)["device"]["kind"] == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert plan(capsys, config, *small)["device"]["kind"] == "cpu"


def test_threads_of_the_config_count_as_in_the_training(config, capsys, monkeypatch):
    found = []
    for cores in (1, 64):
        monkeypatch.setattr(host, "usable_cores", lambda cores=cores: cores)
        found.append(plan(capsys, config, "model.image_size=71", "engine.threads=1")["candidates"])
    assert found[0] == found[1]


def test_the_host_where_there_is_no_card(config, capsys):
    found = plan(capsys, config, "model.image_size=71", "model.width=0.1", "engine.devices=2")
    assert found["device"]["kind"] == "cpu"
    assert "shared by 2 replicas" in found["device"]["name"]


def test_ranks_beyond_the_cores_of_a_host_are_elsewhere(config, capsys, monkeypatch):
    monkeypatch.setattr(host, "usable_cores", lambda: 4)
    monkeypatch.setattr(host, "free_memory", lambda: 80 * GIB)
    for world, per_node, each in (("2", (), 20), ("64", (), 10), ("64", ("--per-node", "8"), 5)):
        found = plan(capsys, config, "--world", world, *per_node, "model.image_size=71", "model.width=0.1")
        assert found["device"]["memory_bytes"] == each * GIB
        assert found["batch"]["replicas"] == int(world)


def test_a_host_is_planned_for_as_the_training_does(config, capsys, monkeypatch):
    """Both take half of what is free."""
    monkeypatch.setattr(host, "free_memory", lambda: 8 * GIB)
    half = plan(capsys, config, "model.image_size=71")["device"]["memory_bytes"]
    assert half == host_budget(8 * GIB, 1, 1, MemorySection()).memory_bytes == 4 * GIB
    assert (
        plan(capsys, config, "model.image_size=71", "memory.limit=6GiB")["device"]["memory_bytes"] == 8 * GIB
    )


def test_known_data_needs_no_assumption(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    for name in ("rose", "tulip", ".cache"):
        (tmp_path / "flowers" / name).mkdir(parents=True)
    path.write_text(f"data: {{train: {{kind: folder, path: {tmp_path / 'flowers'}}}}}\n")
    found = plan(capsys, str(path), "--device", "T4")
    assert found["model"]["classes"] == 2 and found["assumptions"] == []
    assert found["batch"]["updates_per_epoch"] is None
    path.write_text("data: {train: {kind: synthetic, samples: 100, classes: 7}}\n")
    found = plan(capsys, str(path), "--device", "T4")
    assert found["model"]["classes"] == 7 and found["batch"]["updates_per_epoch"] == 4


def test_no_tensorflow_is_loaded(config):
    code = (
        "import sys; from distxcept.cli.main import main; "
        f"code = main(['plan', {config!r}, '--device', 'T4']); "
        "heavy = {'tensorflow', 'keras', 'horovod'} & set(sys.modules); sys.exit(str(heavy) if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def trials(monkeypatch, tmp_path):
    """A host of 8 free GiB whose trials fit as told: from (micro batch, remat) to seconds, None where it does not fit."""
    monkeypatch.setattr(host, "free_memory", lambda: 8 * GIB)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def arrange(seconds_of):
        def run(request, micro):
            seconds = seconds_of(micro, request["remat"])
            if seconds is None:
                return Measured(micro, request["remat"], False, reason="memory ran out")
            return Measured(micro, request["remat"], True, 3 * GIB, seconds)

        monkeypatch.setattr(measuring, "run_child", run)

    return arrange


PROBED = ("--probe", "engine.threads=1", "model.image_size=128", "memory.limit=2500MiB")


def by_plan(found: dict) -> dict:
    return {(one["micro_batch"], one["remat"]): one for one in found["candidates"]}


def test_the_estimate_fits_and_no_trial_does(config, capsys, trials):
    trials(lambda micro, remat: None)
    found = plan(capsys, config, *PROBED, code=4)
    assert not any(one["fits"] for one in found["candidates"])
    assert by_plan(found)[16, True]["measured"] == {
        "fits": False,
        "peak_bytes": None,
        "seconds_per_update": None,
        "reason": "memory ran out",
    }
    least = min(one["total_bytes"] for one in found["candidates"])
    assert found["ways_out"] and all(way["total_bytes"] < least for way in found["ways_out"] if way["fits"])
    assert "in 4 micro steps of up to 16" in found["batch"]["equation"]
    assert main(["plan", config, *PROBED]) == 4
    captured = capsys.readouterr()
    assert "ways out:" in captured.out and "yes" not in captured.out
    assert captured.err.splitlines()[-1].startswith(
        "distxcept plan: nothing fits into the 1.7 GiB: micro batch 16 with"
    )


def test_the_estimate_does_not_fit_and_a_trial_does(config, capsys, trials):
    trials(lambda micro, remat: 100 / micro if micro <= 32 and not remat else None)
    tight = (*PROBED[:-1], "memory.limit=900MiB")
    assert plan(capsys, config, *tight[1:], code=4)["ways_out"]
    found = plan(capsys, config, *tight)
    assert found["chosen"] == {"micro_batch": 32, "remat": False} and found["ways_out"] == []
    assert "in 2 micro steps of up to 32" in found["batch"]["equation"]
    assert by_plan(found)[16, False]["fits"] and not by_plan(found)[64, False]["fits"]


def test_speed_and_peak_are_those_that_were_measured(config, capsys, trials):
    """Larger is slower here; what was not tried is assumed beside what was chosen."""
    trials(lambda micro, remat: {64: None, 32: 4.0, 16: 1.0}[micro])
    limited = (*PROBED[:-1], "memory.limit=1800MiB")
    found = plan(capsys, config, *limited)
    rows = by_plan(found)
    assert found["chosen"]["micro_batch"] == 16
    assert rows[32, False]["relative_speed"] == pytest.approx(rows[16, False]["relative_speed"] / 4, abs=1e-3)
    assert (
        rows[16, False]["measured"]["peak_bytes"] == 3 * GIB
        and rows[16, False]["measured"]["seconds_per_update"] == 1.0
    )
    assert rows[32, True]["measured"] is None
    assert (
        found["reason"] == "measured: the fastest of 2 that fit, of 3 tried: peak 3.0 GiB, 1.00 s an update"
    )
    assert main(["plan", config, *limited]) == 0
    out = capsys.readouterr().out
    assert "* measured, the peak of the whole process; the rest is estimated" in out
    assert "chosen*" in out and "yes*" in out and "no*" in out and "3072" in out


def test_one_trial_that_fits_does_not_deny_the_smaller_ones(config, capsys, trials):
    trials(lambda micro, remat: 1.0)
    found = plan(capsys, config, "--probe", "engine.threads=1", "model.image_size=128")
    assert found["reason"] == "measured: the one that fits, of 1 tried: peak 3.0 GiB, 1.00 s an update"
    assert all(one["fits"] for one in found["candidates"])
