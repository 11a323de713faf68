"""Two Horovod ranks under every launcher we support: same start, same end, and the result of one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import MPIRUN, RANK_ENVIRON, python, run, skip_without

HOROVODRUN = [str(Path(sys.executable).with_name("horovodrun")), "--mpi", "-np", "2"]


def under_mpirun(request: pytest.FixtureRequest, program: list[str]) -> subprocess.CompletedProcess[str]:
    return run([*MPIRUN, "-np", "2", *program])


def under_horovodrun(request: pytest.FixtureRequest, program: list[str]) -> subprocess.CompletedProcess[str]:
    return run([*HOROVODRUN, *program])


def under_srun(request: pytest.FixtureRequest, program: list[str]) -> subprocess.CompletedProcess[str]:
    cluster = request.getfixturevalue("slurm")
    return cluster.run(
        ["srun", "--mpi=pmix", "-N2", "-n2", *program], extra_environ=RANK_ENVIRON, timeout_seconds=400
    )


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("launch", "launcher", "hosts"),
    [
        pytest.param(under_mpirun, "mpirun", 1, id="mpirun"),
        pytest.param(under_horovodrun, "mpirun", 1, id="horovodrun"),
        pytest.param(under_srun, "srun", 2, id="srun", marks=pytest.mark.slurm),
    ],
)
def test_two_ranks_give_the_result_of_one_process(
    request: pytest.FixtureRequest, tmp_path: Path, launch, launcher: str, hosts: int
) -> None:
    skip_without("horovod", "mpi4py", "mpirun")
    done = launch(request, python("two_ranks.py", tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [rank["placement"] for rank in ranks] == [[launcher, 0, 2], [launcher, 1, 2]]
    assert [rank["horovod"] for rank in ranks] == [[0, 2], [1, 2]]
    assert all(rank["mpi_operations"] for rank in ranks)
    # the broadcast had something to do, and did it
    assert ranks[0]["before"] != ranks[1]["before"]
    assert ranks[0]["start"] == ranks[1]["start"] == ranks[0]["before"]
    # the same bits on both ranks, away from the start, where one process over all data arrives
    assert ranks[0]["end"] == ranks[1]["end"] != ranks[0]["start"]
    assert ranks[0]["losses"] == pytest.approx(ranks[0]["reference_losses"], rel=1e-12)
    assert ranks[0]["losses"][-1] < ranks[0]["losses"][0]
    assert max(rank["difference"] for rank in ranks) < 1e-12
    # mpi4py in the same job
    assert ranks[0]["hosts"] == ranks[1]["hosts"]
    assert [host["rank"] for host in ranks[0]["hosts"]] == [0, 1]
    assert len({host["host"] for host in ranks[0]["hosts"]}) == hosts
    assert [rank["agreed"] for rank in ranks] == [["from", 1]] * 2


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "cfg.yaml", "optimizer.nam=adam"], "optimizer.nam"),
        (["train", "cfg.yaml", "--nothing"], "unknown option"),
        (["evaluate", "nowhere"], "there is no run nowhere"),
        (["train", "cfg.yaml", "engine.devices=[TPU:0]"], "names 'TPU:0', which is no device"),
    ],
    ids=["config", "usage", "evaluate", "devices"],
)
def test_what_is_wrong_on_all_ranks_is_told_once(arguments, said, tmp_path, monkeypatch) -> None:
    skip_without("mpirun")
    monkeypatch.chdir(tmp_path)
    Path("cfg.yaml").write_text("data: {train: {kind: synthetic, samples: 9, classes: 3}}\n")
    done = run([*MPIRUN, "-np", "2", sys.executable, "-m", "distxcept.cli.main", *arguments])
    assert done.returncode == 2
    assert len([line for line in done.stderr.splitlines() if said in line]) == 1, done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    "visible", [("0,1", "0,1"), ("0", "1"), ("MIG-0", "MIG-1")], ids=["all", "own", "slices"]
)
def test_ranks_with_a_card_each(visible, fake_cuda_folder: Path) -> None:
    skip_without("horovod", "mpirun")
    done = run([*MPIRUN, "-np", "2", *python("card_of_rank.py", fake_cuda_folder / "libcuda.so.1", *visible)])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} has a card of its own" for rank in range(2)]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("visible", "said"),
    [
        (("0", "0"), "use the same card (PCI bus id 0000:01:00.0); start at most one rank for each GPU"),
        (("MIG-1", "MIG-1"), "use the same card (PCI bus id 0000:01:00.0)"),
        (("0", "none"), "has no GPU, but rank 0 on"),
    ],
    ids=["card", "slice", "none"],
)
def test_ranks_without_a_card_of_their_own(visible, said, fake_cuda_folder: Path) -> None:
    skip_without("horovod", "mpirun")
    done = run([*MPIRUN, "-np", "2", *python("card_of_rank.py", fake_cuda_folder / "libcuda.so.1", *visible)])
    assert done.returncode == 2
    assert any(said in line for line in done.stderr.splitlines()), done.stderr
