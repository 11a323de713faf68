"""Memory of the input, and advice on slow input."""

import re

import pytest

from distxcept.data.advice import InputStats, advice
from distxcept.data.host import free_memory, input_bytes
from distxcept.errors import DoesNotFitError

GIB = 2**30


def test_budget_of_memory():
    assert input_bytes("10MiB", 2**20, 1) == 10 * 2**20
    assert input_bytes("2MiB", 2**20, 1) == 2 * 2**20
    with pytest.raises(DoesNotFitError, match=r"takes 1\.0 MiB and two must fit .* at least 2\.0 MiB"):
        input_bytes("1.9MiB", 2**20, 1)
    assert input_bytes("auto", 2**60, 1) == 2**61
    assert input_bytes("auto", 2**20, 1) > input_bytes("auto", 2**20, 8) >= 2**21


def test_a_containers_limit_counts(tmp_path):
    def container(limit, used, file=0):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\nfile {file}\nshmem 0\n")
        return free_memory(tmp_path)

    assert container(1000, 400) == 600
    assert container(1000, 900, file=300) == 400
    assert container(1000, 2000) == 0
    assert container("max", 400) > GIB / 8
    assert free_memory(tmp_path / "none") > GIB / 8


def stats(**changes):
    base = {
        "wait_share": 0.4,
        "stage_seconds": {"decode": 0.02, "read": 0.001},
        "pixels": 500 * 375,
        "image_size": 299,
        "samples": 10_000,
        "cached": False,
        "free_bytes": 64 * GIB,
    }
    return InputStats(**(base | changes))


READS_SLOWLY = {"decode": 0.001, "read": 0.05}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"wait_share": 0.09}, None),
        ({"stage_seconds": {}}, None),
        ({"stage_seconds": READS_SLOWLY}, r"the slowest stage is read .*read 50\.0 ms.*distxcept pack"),
        ({"stage_seconds": READS_SLOWLY, "cached": True}, "a local one, or data.cache=memory"),
        ({"pixels": 4000 * 3000}, "12.0 million pixels .* --longest-side 598"),
        ({}, r"the slowest stage is decode .*decode 20\.0 ms.*data\.cache=memory would hold .* 5\.2 GiB"),
        ({"free_bytes": 4 * GIB}, "more cores"),
        ({"cached": True}, "more cores"),
        ({"pixels": 0.0}, "more cores"),
    ],
)
def test_advice_names_the_slow_stage_and_what_helps(changes, sentence):
    said = advice(stats(**changes))
    if sentence is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("the training waited 40% of the time for data; the slowest stage is")
        assert re.search(sentence, said)
