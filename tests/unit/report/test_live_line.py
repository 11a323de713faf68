from dataclasses import replace

import pytest

from distxcept.report.live_line import Moment, Pace, Part, bar, clock, fit, live_line, short_clock


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–:––"),
        (75, "1:15"),
        (3599.7, "1.0h"),
        (5400, "1.5h"),
        (86400, "24h"),
        (3 * 86400, "3.0d"),
        (1e6, "12d"),
    ],
)
def test_short_clock(seconds, text):
    assert short_clock(seconds) == text


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
    assert (
        live_line(MOMENT, 99)
        == "epoch 2/6  12/30  loss 0.5478  top-1 78.4%  62.3 img/s  wait 2%  1.00 GiB  eta 0:12 / 1:20"
    )
    assert all(len(live_line(MOMENT, width)) <= width for width in range(1, 120))


LARGE = replace(
    MOMENT, epoch=100, epochs=100, done=9876, length=10_009, loss=6.9078, images_per_second=12_345.6, data_wait=0.12,
    memory_bytes=37 * 2**30, epoch_left=3700, run_left=4.2 * 86400,
)  # fmt: skip


@pytest.mark.parametrize(
    ("moment", "line"),
    [
        (MOMENT, "2/6 12/30  loss 0.5478  top-1 78.4%  62 img/s  wait 2%  1.0 GiB  0:12/1:20"),
        (replace(MOMENT, validating=True), "2/6 12/30  loss 0.5478  top-1 78.4%  62 img/s  wait 2%  1.0 GiB  validating …"),
        (LARGE, "100/100 99%  loss 6.908  top-1 78.4%  12346 img/s  wait 12%  37 GiB  1.0h/4.2d"),
        (replace(LARGE, validating=True), "100/100 99%  loss 6.908  top-1 78.4%  12346 img/s  wait 12%  validating …"),
    ],
)  # fmt: skip
def test_everything_fits_into_80_columns(moment, line):
    assert live_line(moment, 79) == line


def test_narrower_than_that_the_least_important_goes_first():
    assert live_line(MOMENT, 60) == "2/6 40%  loss 0.548  top-1 78.4%  62 img/s  0:12/1:20"
    assert all(len(live_line(LARGE, width)) <= width for width in range(1, 120))
