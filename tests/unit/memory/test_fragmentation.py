"""benchmarks/fragmentation.py: the search for the smallest allocator. Nothing is measured here."""

import pytest

from benchmarks import fragmentation


@pytest.mark.parametrize("needed", [0.91, 1.0, 1.137, 1.5, 1.79])
def test_the_smallest_part_that_holds(needed):
    assert needed <= fragmentation.smallest(lambda part: part >= needed) < needed + fragmentation.STEP


def test_what_never_holds_is_an_error():
    with pytest.raises(RuntimeError, match="are not enough"):
        fragmentation.smallest(lambda part: False)


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (0, "", True),
        (1, "E  ResourceExhaustedError: OOM when allocating tensor", False),
        (1, "ImportError: x", None),
    ],
)
def test_only_want_of_memory_counts_as_too_small(monkeypatch, code, said, expected):
    done = fragmentation.subprocess.CompletedProcess([], code, "", said)
    monkeypatch.setattr(fragmentation.subprocess, "run", lambda *args, **more: done)
    case = fragmentation.CASES[0]
    if expected is None:
        with pytest.raises(RuntimeError, match="ImportError"):
            fragmentation.fits(case, 100)
    else:
        assert fragmentation.fits(case, 100) is expected
