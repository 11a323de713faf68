"""The programs in benchmarks/ and the race of `distxcept prove`: who takes part, what is concluded. Nothing is measured."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from benchmarks import accumulate, scale, step
from distxcept.prove import speed
from distxcept.prove.race import contestants, table
from distxcept.prove.race.serve import UPDATES_AT_START
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, Result, Turn

STUB = str(Path(__file__).with_name("stub.py"))
ROOT = str(Path(__file__).parents[3])


def result(ratio: float, *, peak: int = 100, images: int = 8, seconds: float = 1.0, **facts) -> Result:
    turns = [Turn(1, images, seconds, peak, facts) for _ in range(3)]
    return Result(Contestant("x", ()), turns, [ratio] * 3)


def arguments(**changes) -> argparse.Namespace:
    return argparse.Namespace(**{"only": None, "variant": [], "torch_python": sys.executable, **changes})


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setattr(
        step.subprocess, "run", lambda *a, **k: argparse.Namespace(returncode=1)
    )  # import torch fails


def test_everybody_but_those_that_cannot(no_torch, monkeypatch, capsys):
    monkeypatch.setattr(contestants, "why_no_ranks", lambda: "no MPI here")
    found = step.chosen(arguments(variant=["ours-ranks:engine.overlap=off"]))
    assert next(iter(found)) == "ours", "the first is what the others are compared with"
    assert set(found) == {
        "ours",
        "ours-stock",
        "fit-off",
        "fit-on",
        "fit-auto",
        "fit-onednn",
        "fit-plain",
        "fit-double",
        "ours-two",
        "ours-two-split",
        "loop",
        "loop-onednn",
    }
    said = capsys.readouterr().err
    assert f"left out: PyTorch eager, channels last: {sys.executable} cannot import torch" in said
    assert "left out: hand-written Horovod loop, 2 ranks: no MPI here" in said
    assert "left out: distxcept, 2 ranks with engine.overlap=off: no MPI here" in said


def test_ours_is_always_there(no_torch):
    assert list(step.chosen(arguments(only="loop"))) == ["ours", "loop"]
    with pytest.raises(SystemExit, match="lop; there are ours, ours-stock"):
        step.chosen(arguments(only="lop"))


def test_variants(no_torch):
    found = step.chosen(arguments(only="loop", variant=["TF_X=1", "engine.threads=1"]))
    assert found["TF_X=1"].environ["TF_X"] == "1"
    assert found["engine.threads=1"].command[-1] == "engine.threads=1"
    for wrong in ("engine", "=1", "loop:TF_X=1", "ours-rank:engine.overlap=off"):
        with pytest.raises(SystemExit, match="NAME=VALUE"):
            step.chosen(arguments(variant=[wrong]))


def test_a_variant_of_ranks(no_torch):
    variants = ["ours-ranks:engine.overlap=off", "ours-ranks:HOROVOD_X=1", "engine.devices=[GPU:0]"]
    found = step.chosen(arguments(only="loop", variant=variants))
    overlap, variable, devices = (found[variant] for variant in variants)
    assert overlap.command == (*step.all_contestants("python")["ours-ranks"].command, "engine.overlap=off")
    assert overlap.name == "distxcept, 2 ranks with engine.overlap=off"
    assert variable.environ["HOROVOD_X"] == "1" and variable.name == "distxcept, 2 ranks with HOROVOD_X=1"
    assert devices.command[-1] == "engine.devices=[GPU:0]"


def test_names_are_unique():
    names = [one.name for one in step.all_contestants("python").values()]
    assert len(set(names)) == len(names)


def test_who_accumulates_and_who_scales():
    found = accumulate.contestants([1, 2], keras=True)
    assert [one.name for one, _ in found.values()] == [
        "distxcept, k = 1", "distxcept, k = 2", "keras fit, k = 1", "keras fit, k = 2", "naive loop"
    ]  # fmt: skip
    assert [scale.contestant_of(ranks, 4).name for ranks in (1, 2, scale.MIRRORED)] == [
        "distxcept, 1 rank, batch 4",
        "distxcept, 2 ranks, batch 4",
        "distxcept, mirrored 2, batch 4",
    ]


def test_environments():
    """Ours completes the stock environment by itself; nobody inherits what the user has tried out in this shell."""
    own = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_XLA_FLAGS": "x", "PATH": "p"}
    assert contestants.ours().environment(own) == {"PATH": "p", "TF_CPP_MIN_LOG_LEVEL": "2"}
    assert contestants.loop(onednn=True).environment(own)["TF_ENABLE_ONEDNN_OPTS"] == "1"
    assert contestants.keras_fit("off", onednn=False).environment(own)["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert "TF_ENABLE_ONEDNN_OPTS" not in contestants.keras_fit("off").environment(own)


def test_an_update_without_micro_steps_is_refused(capsys):
    with pytest.raises(SystemExit):
        step.main(["--micro-steps", "0"])
    assert "--micro-steps 0: an update has at least one" in capsys.readouterr().err


def test_bars_of_a_step():
    found = {
        "ours": result(1.0),
        "fit-off": result(0.7),
        "fit-on": result(0.3),
        "fit-double": result(0.75),
        "loop-onednn": result(1.1),
        "ours-ranks": result(1.2),
        "torch-eager": result(1.1),
    }
    assert step.verdicts(found, 299) == [
        "1.43 × the best keras fit in its stock environment, the same batch (bar 1.3: reached)",
        "1.60 × the best keras fit in its stock environment, any batch (bar 1.3: reached)",
        "0.91 × the hand-written loop in our environment, one batch at a time (bar 0.98: MISSED)",
        "1.09 × PyTorch's best (bar 1: reached)",
        "2 ranks: 1.20 × one process (bar 1.1 at 299 px)",
    ]
    assert not [line for line in step.verdicts(found, 128) if "PyTorch" in line]
    limited = step.verdicts(found | {"ours-bare": result(1.25)}, 299)
    assert limited[-1] == "2 ranks: 1.20 × one process (bar 1.1 at 299 px; 1.25 if nothing is exchanged)"


def test_twice_the_batch_is_for_one_alone():
    setting, double = Setting(299, 8), contestants.keras_fit("off")
    assert step.batch_of(setting, double, double).batch == 16
    assert step.batch_of(setting, double, contestants.ours()) == setting
    assert step.batch_of(setting, None, contestants.ours()) == setting


def test_bars_of_accumulation():
    found = {f"ours {k}": result(0.97 if k == 8 else 1.0) for k in (1, 2, 8)}
    memory = {f"ours {k}": result(1.0, peak=1000 + 10 * k) for k in (1, 2, 8)}
    held = {f"ours {k}": result(1.0, peak=1000 + k) for k in (2, 8)}
    assert accumulate.verdicts(found, memory, held, [1, 2, 8]) == [
        "k = 8: 0.970 × the speed of k = 1 (bar 0.98: MISSED)",
        "memory, from k = 2 to 8: 1.059 × (bar 1.02: MISSED)",
        f"memory that operations hold at once, from k = 2 to 8: 1.006 × (bar 1.02: {table.verdict(True)})",
    ]


def test_a_table_of_who_ran_alone():
    alone = Result(Contestant("x", ()), result(1.0).turns)
    assert "| x | 8.00 (8.00 … 8.00) | – | 0 MiB |" in table.markdown([alone], "memory")


def test_a_slow_minute_of_the_machine_is_taken_out():
    """The machine ran at half its speed in the last round; so did the reference."""
    reference = result(1.0, images=8, seconds=1.0)
    reference.turns[2] = Turn(1, 8, 2.0, 100, {})
    other = result(0.5, images=8, seconds=2.0)
    other.turns[2] = Turn(1, 8, 4.0, 100, {})
    assert [turn.seconds for turn in scale.steadied(other, reference).turns] == [2.0, 2.0, 2.0]
    assert other.turns[2].seconds == 4.0


def test_bars_of_ranks():
    seconds = {(1, 4): 1.0, (2, 4): 1.6, (4, 4): 4.0, (scale.MIRRORED, 4): 2.0, (2, 8): 3.0}
    assert scale.verdicts(seconds) == [
        "2 ranks: 1.25 × the speed of 1 (bar 1.1: reached)",
        "4 ranks: 0.80 × the speed of 2 (bar 0.9: MISSED)",
    ]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_race_of_prove(monkeypatch, capsys, kind):
    """Together on a CPU, one after the other on a GPU."""
    stubs = [
        speed.Entry(who, "float32", Contestant(who, (sys.executable, STUB, seconds), {"PYTHONPATH": ROOT}))
        for who, seconds in (("distxcept", "0.5"), ("fit", "1.0"))
    ]
    monkeypatch.setattr(speed, "entries", lambda machine, quick: stubs)
    setting = vars(Setting(71, 4))
    speed.main({"machine": {"kind": kind, "capabilities": []}, "quick": True, "setting": setting})
    captured = capsys.readouterr()
    ours, fit = (json.loads(line) for line in captured.out.splitlines())
    assert (ours["who"], ours["speeds"], fit["speeds"]) == ("distxcept", [8.0] * 3, [4.0] * 3)
    assert speed.ratio(ours, fit) == 2.0
    assert ours["took_turns"] == fit["took_turns"] == (kind == "cpu")
    assert "round 3 of 3" in captured.err


def test_as_many_batches_at_once_as_asked():
    from distxcept.prove.race.ours import config_of

    assert contestants.ours_side_by_side(3).command[-4:-2] == ("--side-by-side", "3")
    batch = config_of(Setting(71, 4, micro_steps=2), 1, "each", 3, []).batch
    assert (batch.virtual, batch.micro, batch.global_) == (4, 12, 24)


def test_memory_is_read_after_as_many_micro_steps_of_each_k():
    run = {k: k * (UPDATES_AT_START + accumulate.updates_to_watch(256, k)) for k in (1, 2, 8, 32)}
    assert set(run.values()) == {256}


def test_too_few_micro_steps_to_compare_memory_are_refused(capsys):
    with pytest.raises(SystemExit):
        accumulate.main(["--steps", "1,8", "--watched", "24"])
    assert "--watched 24: 8 micro steps an update and the warm-up need at least 32" in capsys.readouterr().err
