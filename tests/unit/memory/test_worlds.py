"""A plan on many devices: `distxcept plan --world N --network …`."""

import json

import pytest

from distxcept.cli.main import main
from distxcept.memory.worlds import worlds

CONFIG = """\
data: {train: {kind: folder, path: nowhere/train}}
batch: {global: 1024, virtual: 32}
"""


@pytest.fixture
def plan(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)

    def run(*argv: str) -> dict:
        assert main(["plan", str(path), "--device", "A100", *argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def row(found: dict, world: int) -> dict:
    return next(one for one in found["scaling"]["worlds"] if one["world"] == world)


@pytest.mark.parametrize(
    ("wanted", "more", "count"), [(None, [], 13), (64, [], 13), (24, [24], 14), (8192, [8192], 14)]
)
def test_which_worlds(wanted, more, count):
    found = worlds(wanted)
    assert found == sorted(found) and len(found) == count and {1, 4096, *more} <= set(found)


def test_one_device_has_the_speed_that_was_given(plan):
    found = plan("--world", "16", "--images-per-second", "500", "--network", "nvlink,100Gb")
    assert row(found, 1)["images_per_second"] == pytest.approx(500)
    assert row(found, 1)["efficiency"] == 1.0
    assert 0.5 < row(found, 16)["efficiency"] < 1.0
    assert row(found, 16)["samples"] == 64


def test_the_global_batch_is_a_limit(plan):
    found = plan("--world", "64", "--images-per-second", "500", "--network", "nvlink,100Gb")
    assert row(found, 32)["idle_part"] == 0.0
    assert row(found, 64)["idle_part"] == 0.5
    assert row(found, 64)["images_per_second"] <= row(found, 32)["images_per_second"] * 1.01
    (sentence,) = [one for one in found["scaling"]["limits"] if "global batch is the limit" in one]
    assert sentence.startswith("from 64 devices on") and "32 virtual batches of 32" in sentence


def test_the_network_is_a_limit_and_the_ways_out_are_counted(plan):
    slow = plan("--world", "16", "--images-per-second", "500", "--network", "1Gb")
    (sentence,) = [one for one in slow["scaling"]["limits"] if "network is the limit" in one]
    assert sentence.startswith("from 16 devices on") and "engine.compression=fp16 makes it" in sentence
    assert "a network of four times the speed makes it" in sentence
    fast = plan("--world", "16", "--images-per-second", "500", "--network", "nvlink,400Gb-rdma")
    assert not [one for one in fast["scaling"]["limits"] if "network" in one]
    assert row(fast, 16)["efficiency"] > row(slow, 16)["efficiency"]


def test_fewer_bytes_by_compression(plan):
    arguments = ("--world", "16", "--images-per-second", "500", "--network", "1Gb", "engine.overlap=off")
    plain, half = plan(*arguments), plan(*arguments, "engine.compression=fp16")
    assert row(half, 16)["reduction_seconds"] < 0.6 * row(plain, 16)["reduction_seconds"]


def test_without_a_speed_the_reduction_and_what_speeds_would_come_to(plan):
    arguments = ("--world", "16", "--network", "nvlink,100Gb", "-q")
    found = plan(*arguments)
    assert "scaling" not in found
    alone = found["reduction"]
    assert alone["world"] == 16 and alone["gradient_bytes"] == pytest.approx(91.4e6, rel=0.01)
    known = plan(*arguments, "--images-per-second", "400")
    assert "reduction" not in known
    assert alone["reduction_seconds"] == row(known, 16)["reduction_seconds"]
    (same,) = [one for one in alone["by_speed"] if one["device_images_per_second"] == 400]
    for name in ("seconds_per_update", "images_per_second", "efficiency", "exposed_seconds"):
        assert same[name] == row(known, 16)[name]


def test_without_a_speed_the_table(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    assert main(["plan", str(path), "--device", "A100", "--world", "16", "-q"]) == 0
    captured = capsys.readouterr()
    assert "gradients of 91 MB take" in captured.out and captured.err == ""
    assert "assumed: speeds of one device (--images-per-second tells" in captured.out
    assert "1,600" in captured.out
    assert main(["plan", str(path), "--device", "A100", "--world", "1"]) == 0
    assert "gradients of" not in capsys.readouterr().out


def test_the_table(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    assert main(["plan", str(path), "--device", "A100", "--world", "8", "--images-per-second", "500"]) == 0
    out = capsys.readouterr().out
    assert (
        "predicted speed, not measured" in out
        and "assumed: links: pcie within nodes of 8, 25Gb between" in out
    )
    assert "4096" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "fast"], "--network 'fast' is no link that is known"),
        (["--images-per-second", "none"], "'none' is no speed in images a second"),
        (["--jitter", "2"], "'2' is no part between 0 and 1"),
    ],
)
def test_wrong_usage(tmp_path, capsys, arguments, message):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    assert main(["plan", str(path), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
