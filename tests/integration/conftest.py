"""Fixtures that start real things."""

from collections.abc import Iterator

import pytest
import slurm_cluster


@pytest.fixture(scope="session")
def _slurm_for_all_tests() -> Iterator[slurm_cluster.SlurmCluster]:
    missing = slurm_cluster.missing_programs()
    if missing:
        pytest.skip(f"no SLURM here ({', '.join(missing)} missing): {slurm_cluster.INSTALL_COMMAND}")
    with slurm_cluster.SlurmCluster(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def slurm(_slurm_for_all_tests: slurm_cluster.SlurmCluster) -> Iterator[slurm_cluster.SlurmCluster]:
    """A running two-node SLURM with nothing on it; jobs that the test leaves behind are cancelled."""
    yield _slurm_for_all_tests
    _slurm_for_all_tests.cancel_all()
