import pytest

from distxcept.report.live_line import Moment, Pace, Part, bar, clock, fit, live_line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–:––"),
        (0.2, "0:00"),
        (75, "1:15"),
        (3600 + 61, "1:01:01"),
        (86400, "24:00:00"),
        (3 * 86400, "3.0 d"),
    ],
)
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_the_first_update_tells_nothing_of_the_pace():
    pace = Pace()
    pace.add(11, 100.0)  # took long: it was traced
    assert pace.left(10) is None
    pace.add(12, 102.0)
    pace.add(15, 106.0)
    assert pace.left(10) == pytest.approx(15.0)
    assert pace.left(-1) == 0


@pytest.mark.parametrize(("part", "text"), [(0, "────"), (0.5, "━━──"), (1.7, "━━━━")])
def test_bar(part, text):
    assert bar(part, 4) == text


def test_what_matters_least_goes_first():
    parts = [Part("aaaa", 3), Part("", 9), Part("bbbb", 1), Part("cccc", 2)]
    assert [fit(parts, width) for width in (20, 15, 9, 3)] == [
        "aaaa  bbbb  cccc",
        "aaaa  cccc",
        "aaaa",
        "aaa",
    ]


MOMENT = Moment(
    epoch=2, epochs=6, done=12, length=30, loss=0.5478, accuracy=0.784, images_per_second=62.3, data_wait=0.02,
    memory_bytes=2**30, epoch_left=12, run_left=80,
)  # fmt: skip


def test_live_line():
    assert (
        live_line(MOMENT, 200)
        == "epoch 2/6  ━━━━━───────  12/30  loss 0.5478  top-1 78.4%  62.3 img/s  wait 2%  1.00 GiB  eta 0:12 / 1:20"
    )
    assert live_line(MOMENT, 79) == "epoch 2/6  12/30  loss 0.5478  top-1 78.4%  62.3 img/s  eta 0:12 / 1:20"
    assert all(len(live_line(MOMENT, width)) <= width for width in range(1, 120))
