import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.report.downsample import downsample, rounded

VALUES = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=300)


@given(VALUES, st.integers(4, 60))
def test_real_points_in_order_with_ends_and_extremes(ys, most):
    xs = [3 * k for k in range(len(ys))]
    got_x, got_y = downsample(xs, ys, most)
    assert len(got_x) == len(got_y) <= max(most, min(len(xs), most))
    assert got_x == sorted(set(got_x))
    assert all(ys[x // 3] == y for x, y in zip(got_x, got_y, strict=True))
    if ys:
        assert (got_x[0], got_x[-1]) == (xs[0], xs[-1])
    known, kept = [y for y in ys if y is not None], [y for y in got_y if y is not None]
    if known:
        assert (min(kept), max(kept)) == (min(known), max(known))


def test_a_single_spike_stays():
    ys = [0.0] * 10_000
    ys[6789] = 5.0
    xs, kept = downsample(range(10_000), ys, 100)
    assert 6789 in xs
    assert len(kept) <= 100
    with pytest.raises(ValueError, match="too few"):
        downsample([1], [1.0], 3)


@pytest.mark.parametrize(
    ("value", "short"), [(None, None), (0.1234567891, 0.123457), (2.0, 2), (1.5e-9, 1.5e-9), (1e300, 1e300)]
)
def test_rounded(value, short):
    assert rounded(value) == short
