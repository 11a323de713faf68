"""`distxcept plan --world N --network …`: what the devices exchange, and nothing about the speed of the job."""

import json

import pytest

from distxcept.cli.main import main
from distxcept.memory.reduction import worlds

CONFIG = """\
data: {train: {kind: folder, path: nowhere/train}}
batch: {global: 1024, virtual: 32}
"""


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture
def plan(config, capsys):
    def run(*argv: str) -> dict:
        assert main(["plan", config, "--device", "A100", *argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def row(found: dict, world: int) -> dict:
    return next(one for one in found["reduction"]["worlds"] if one["world"] == world)


@pytest.mark.parametrize(
    ("virtual_batches", "wanted", "expected"),
    [
        (32, None, [2, 4, 8, 16, 32]),
        (32, 24, [2, 4, 8, 16, 24, 32]),
        (32, 64, [2, 4, 8, 16, 32, 64]),
        (33, 1, [2, 4, 8, 16, 32]),
        (1, None, [2]),
        (1, 3, [2, 3]),
    ],
)
def test_which_worlds(virtual_batches, wanted, expected):
    assert worlds(virtual_batches, wanted) == expected


def test_only_where_several_devices_are_asked_for(plan):
    assert "reduction" not in plan() and "reduction" not in plan("--world", "1")
    assert "reduction" in plan("--world", "2") and "reduction" in plan("--network", "100Gb")


def test_bytes_and_seconds_by_hand(plan):
    """A ring over two nodes of one device: each of the packs takes two messages, and its bytes cross once."""
    found = plan("--world", "2", "--per-node", "1", "--network", "1GB/s@500us")["reduction"]
    weights = plan("--world", "2")["model"]["parameters"]
    assert found["gradient_bytes"] == 4 * weights == 91_423_808
    (two, *_) = found["worlds"]
    assert two["reduction_seconds"] == pytest.approx(5 * 2 * 500e-6 + found["gradient_bytes"] / 1e9)


def test_the_global_batch_is_a_limit(plan):
    found = plan("--world", "64", "--network", "nvlink,100Gb")
    assert (row(found, 16)["samples"], row(found, 16)["idle_part"]) == (64, 0.0)
    assert (row(found, 64)["samples"], row(found, 64)["idle_part"]) == (32, 0.5)
    assert found["reduction"]["limit"].startswith("With 64 devices 50% of their time would be idle")
    assert "32 virtual batches of 32" in found["reduction"]["limit"]
    assert plan("--world", "32")["reduction"]["limit"] is None


def test_fewer_bytes_by_compression_and_by_freezing(plan):
    arguments = ("--world", "16", "--network", "1Gb")
    plain, half, head = (
        plan(*arguments, *more) for more in ([], ["engine.compression=fp16"], ["model.freeze=backbone"])
    )
    assert 2 * half["reduction"]["gradient_bytes"] == plain["reduction"]["gradient_bytes"]
    assert row(half, 16)["reduction_seconds"] < 0.6 * row(plain, 16)["reduction_seconds"]
    assert head["reduction"]["gradient_bytes"] == 4 * (2048 + 1) * 1000


def test_rings_within_the_nodes_are_faster(plan):
    plain, rings = (
        plan("--world", "16", "--network", "nvlink,1Gb", *more)
        for more in ([], ["engine.network.hierarchical=true"])
    )
    assert row(rings, 16)["reduction_seconds"] < row(plain, 16)["reduction_seconds"]
    assert rings["reduction"]["network"]["algorithm"] == "hierarchical"


def test_the_table(config, capsys):
    assert main(["plan", config, "--device", "A100", "--world", "8", "-q"]) == 0
    captured = capsys.readouterr()
    assert "reduction: 91 MB of gradients an update" in captured.out and captured.err == ""
    assert "assumed: links: pcie within nodes of 8, 25Gb between them" in captured.out
    assert "This is no speed of the job" in captured.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "fast"], "--network: 'fast' is no known link"),
        (["--images-per-second", "600"], "unknown option '--images-per-second'"),
    ],
)
def test_wrong_usage(config, capsys, arguments, message):
    assert main(["plan", config, "--device", "A100", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
