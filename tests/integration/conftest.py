"""Fixtures that start real things."""

from collections.abc import Iterator

import pytest
import slurm_cluster
from launchers import skip_without_slurm

# The workers take whole files, in this order: long ones first, so that none is left with one at the end.
LONG = ("test_equivalence", "test_train", "test_launch", "test_out_of_memory", "test_ordered", "test_horovod_build",
        "test_launch_train", "test_lost_peers", "test_slurm_train", "test_sbatch", "test_memory", "test_nonfinite",
        "test_bad_images", "test_memory_estimate", "test_ranks", "test_against_keras", "test_documented_commands",
        "test_supervision", "test_memory_phases", "test_memory_limit", "test_jit", "test_data_memory")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session")
def _slurm_for_all_tests() -> Iterator[slurm_cluster.SlurmCluster]:
    skip_without_slurm()
    with slurm_cluster.SlurmCluster(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def slurm(_slurm_for_all_tests: slurm_cluster.SlurmCluster) -> Iterator[slurm_cluster.SlurmCluster]:
    """A running two-node SLURM with nothing on it; jobs that the test leaves behind are cancelled."""
    yield _slurm_for_all_tests
    _slurm_for_all_tests.cancel_all()
