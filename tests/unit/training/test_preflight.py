"""What the ranks found before the first update → what the user is told."""

import pytest

from distxcept.errors import ConfigError
from distxcept.training.preflight import RankFacts, judge


def facts(rank, **changes):
    usual = dict(
        host="a", versions={"tensorflow": "2.21.0"}, clock=100.0, work_seconds=0.01, reduction_seconds=0.5
    )
    return RankFacts(rank=rank, **{**usual, **changes})


def test_a_clean_start_is_one_line():
    assert judge([facts(0), facts(1, host="b"), facts(2, work_seconds=0.015)], 100_000_000) == [
        "preflight: 3 ranks on 2 hosts, 100 MB reduced in 0.50 s (0.20 GB/s)"
    ]


def test_the_link_is_told_as_plan_takes_it():
    """Of 4 ranks each sends 6 quarters of 100 MB in half a second, in 6 messages that alone take 0.6 ms."""
    (line,) = judge(
        [facts(rank, reduction_seconds=0.5006, tiny_seconds=0.0006) for rank in range(4)], 100_000_000
    )
    assert line.endswith("(0.20 GB/s), plan --network 0.30GB/s@100us")


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([facts(0), facts(1, work_seconds=0.03), facts(2)], "rank 1 on a takes 3.0 × as long"),
        ([facts(0), facts(1, clock=110.0)], "clocks of rank 0 on a and rank 1 on a differ by 10.0 s"),
        (
            [facts(0, free_gpu_bytes=2**31), facts(1, free_gpu_bytes=2**30)],
            "free GPU memory 1.0 GiB (rank 1 on a)",
        ),
    ],
)
def test_what_is_said(ranks, words):
    assert words in " / ".join(judge(ranks, 100_000_000))


@pytest.mark.parametrize(
    "versions", [{"tensorflow": "2.20.0"}, {}, {"tensorflow": "2.21.0", "horovod": "0.28.1"}]
)
def test_different_versions_are_refused(versions):
    with pytest.raises(ConfigError, match="rank 1 on b has"):
        judge([facts(0), facts(1, host="b", versions=versions)], 1)
