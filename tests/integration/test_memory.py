"""What accumulation costs: one buffer of gradients, however many micro steps there are."""

import json
from functools import cache

import pytest
from launchers import python, run

ENVIRON = [
    "env",
    # By default glibc's threshold moves, and the same step peaks at 1.38 or 1.15 GB.
    "MALLOC_MMAP_THRESHOLD_=65536",
    # oneDNN's own allocator keeps what is freed and splits it: its peak is not what the tensors need.
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1",
    # Two threads, as TensorFlow has on two cores: micro steps could overlap if nothing kept them apart.
    "TF_NUM_INTRAOP_THREADS=2",
    "TF_NUM_INTEROP_THREADS=2",
]


@cache
def measured(micro_steps: int) -> dict:
    """Bytes above what the process has before its first update."""
    done = run([*ENVIRON, *python("measure_memory.py", micro_steps)], timeout_seconds=800)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout)
    print(f"{micro_steps} micro steps: {result}")
    assert result["applied"] == [True] * 2
    return result


@pytest.mark.timeout(1800)
def test_activations_dominate_so_that_the_bars_mean_something() -> None:
    assert measured(1)["peak"] > 20 * measured(1)["gradients"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("micro_steps", [4, pytest.param(8, marks=pytest.mark.soak)])
def test_many_micro_steps_cost_one_gradient_buffer(micro_steps: int) -> None:
    one, many = measured(1), measured(micro_steps)
    assert many["peak"] <= 1.05 * (one["peak"] + one["gradients"])


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_thirty_two_micro_steps_cost_no_more_than_eight() -> None:
    eight, thirty_two = measured(8), measured(32)
    assert thirty_two["peak"] <= 1.02 * eight["peak"]
