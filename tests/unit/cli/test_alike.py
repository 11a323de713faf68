"""What all ranks find alike is told once, and the exit code is that of all of them."""

import pytest

from distxcept.cli import alike
from distxcept.cli.main import main


def placed(rank: int, local_rank: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(alike.time, "sleep", seconds.append)
    return seconds


@pytest.mark.parametrize(
    ("rank", "local_rank", "tells", "waits"),
    [(0, 0, True, False), (1, 1, False, True), (2, 0, True, True), (3, 1, False, True)],
)
@pytest.mark.parametrize(
    "argv", [["train", "no.yaml"], ["train", "no.yaml", "--nothing"], ["evaluate", "nowhere"]]
)
def test_the_first_rank_of_each_host_tells(argv, rank, local_rank, tells, waits, waited, monkeypatch, capsys):
    for name, value in placed(rank, local_rank).items():
        monkeypatch.setenv(name, value)
    assert main(argv) == 2
    assert len(capsys.readouterr().err.splitlines()) == tells
    assert bool(waited) == waits


def test_whoever_cannot_know_tells():
    assert alike.is_teller({**placed(1, 1), "OMPI_COMM_WORLD_SIZE": "1"})
