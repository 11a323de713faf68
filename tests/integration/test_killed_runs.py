"""SIGKILL of a random rank at a random moment, then the same command: the bits of the run that nobody disturbed.

`test_train.py` kills one run in every `make test`.
"""

import random
from pathlib import Path

import numpy as np
import pytest
from launchers import skip_without
from small_runs import difference, finish, kill_a_rank, train

ENGINES = {"single": {}, "mirrored2": {"devices": 2}, "horovod2": {"ranks": 2}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The tensors of a whole run, by engine."""
    made = {}

    def of(engine: str) -> dict[str, np.ndarray]:
        if engine not in made:
            folder = tmp_path_factory.mktemp("whole") / engine
            made[engine] = finish(folder, train(folder, **ENGINES[engine]))
        return made[engine]

    return of


def cases():
    for number in range(10):
        for engine in ENGINES:
            yield pytest.param(
                engine, number, marks=[pytest.mark.mpi] if engine.startswith("horovod") else []
            )


@pytest.mark.soak
@pytest.mark.parametrize(("engine", "number"), list(cases()))
def test_killed_and_gone_on_with(engine: str, number: int, undisturbed, tmp_path: Path):
    if engine == "horovod2":
        skip_without("horovod", "mpirun")
    chance = random.Random(f"{engine}/{number}")
    folder = tmp_path / "run"
    command = train(folder, **ENGINES[engine])
    killed_at = [kill_a_rank(folder, command, chance) for _ in range(1 + number % 2)]
    found, whole = finish(folder, command), undisturbed(engine)
    print(f"killed after update {killed_at}")
    assert found.keys() == whole.keys()
    assert all(np.array_equal(found[name], whole[name]) for name in whole)


@pytest.mark.soak
@pytest.mark.mpi
def test_killed_and_gone_on_with_on_other_numbers_of_ranks(undisturbed, tmp_path: Path):
    """2 → 1 → 3 → 2 ranks, each killed before the next."""
    skip_without("horovod", "mpirun")
    chance = random.Random(7)
    folder = tmp_path / "run"
    killed_at = [kill_a_rank(folder, train(folder, ranks=ranks), chance) for ranks in (2, 1, 3)]
    found = finish(folder, train(folder, ranks=2))
    whole = undisturbed("horovod2")
    print(f"killed after update {killed_at}; difference {difference(whole, found):.1e}")
    assert difference(whole, found) < 1e-11
