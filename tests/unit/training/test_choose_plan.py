import pytest

from distxcept.training.choose_plan import shares_by_speed


@pytest.mark.parametrize(
    ("seconds", "shares"),
    [
        ([1.0], None),
        ([1.0, 1.0], None),
        ([1.0, 1.05], None),  # alike, but for noise
        ([1.0, 2.0], (16, 8)),
        ([3.0, 1.0, 1.5], (8, 24, 16)),
        ([None, None], None),
        ([1.0, None], None),
    ],
)
def test_shares_follow_speed(seconds, shares):
    assert shares_by_speed(seconds) == shares
