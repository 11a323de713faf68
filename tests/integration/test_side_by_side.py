"""On a CPU the parts of a micro step run side by side, a core each: never more at once, and to the same bits."""

import json

import pytest
from launchers import python, run


@pytest.fixture(scope="module")
def done() -> dict:
    process = run(["env", "TF_NUM_INTEROP_THREADS=3", *python("side_by_side.py")])
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(process.stdout)


@pytest.mark.parametrize("cores", ["1", "2", "3"])
def test_as_many_at_once_as_there_are_cores(done: dict, cores: str) -> None:
    assert done[cores]["most_at_once"] == int(cores)


def test_same_bits(done: dict) -> None:
    """The parts are the same, and are added in their order, whichever is ready first."""
    assert {tuple(of["parts"]) for of in done.values()} == {(1,) * 6}
    assert len({of["digest"] for of in done.values()}) == 1
