"""The report in a real browser: no message, no request, the figures of metrics.jsonl, zoom, phone and dark mode."""

import json
from collections.abc import Iterator

import pytest
from browser import Browser, find_chromium
from long_run import CARDS, RANKS, UPDATES, UPDATES_PER_EPOCH, WITHOUT_NUMBER, make_long_run

from distxcept.report.comparison import compare
from distxcept.report.html import write_comparison, write_report
from distxcept.report.predictions_file import FILE, SHOWN
from distxcept.report.runs import Run, read_json
from tests.unit.report.run_folders import STARTED, make_run

HOSTILE = (
    "</script><script>console.error('x')</script><img src=http://example.com/x onerror=console.error(1)>&\"'"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With hostile names, and two pictures that are none."""
    run = make_long_run(tmp_path_factory.mktemp("report") / "long", HOSTILE)
    found = read_json(run.folder / FILE)
    found["worst"] += [{**found["worst"][0], "thumbnail": odd} for odd in (None, "http://example.com/y")]
    (run.folder / FILE).write_text(json.dumps(found))
    return run


@pytest.fixture(scope="module")
def page(run: Run) -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip("no Chromium: apt-get install chromium")
    path = write_report(run)
    assert path.stat().st_size <= 3_000_000
    with Browser() as browser:
        browser.open(path)
        yield browser


def test_no_message_and_no_request(page, run):
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    text = page.run("document.body.textContent")  # innerText leaves out what is not laid out yet
    assert HOSTILE in text
    assert page.run("document.querySelectorAll('script').length") == 2


CHARTS = {
    "loss": {"training": "loss", "validation": "loss"},
    "accuracy": {"training": "accuracy", "validation": "accuracy", "validation top-5": "top5_accuracy"},
    "learning-rate": {"learning rate": "learning_rate"},
    "gradient-norm": {"norm": "gradient_norm"},
    "speed": {"images/s": "images_per_second"},
    "data-wait": {"waiting": "data_wait"},
}
DEVICES = {
    "card-memory": lambda sample, card: sample["cards"][card]["memory_used_bytes"] / 2**30,
    "card-use": lambda sample, card: sample["cards"][card]["utilisation_percent"] / 100,
    "process-memory": lambda sample, _: sample["rss_bytes"] / 2**30,
    "process-use": lambda sample, _: sample["cpu_share"],
}


def drawn_series(page: Browser, chart: str) -> dict[str, list[tuple[float, float | None]]]:
    found = page.run(f"charts['{chart}'].spec.series.map(s => [s.name, s.x, s.y])")
    return {name: list(zip(xs, ys, strict=True)) for name, xs, ys in found}


@pytest.mark.parametrize("chart", CHARTS)
def test_curves_are_those_of_the_metrics(page, run, chart):
    assert run.train[WITHOUT_NUMBER - 1]["loss"] is None
    drawn = drawn_series(page, chart)
    assert list(drawn) == list(CHARTS[chart])
    for name, points in drawn.items():
        entries = run.validation if name.startswith("validation") else run.train
        by_update = {entry["update"]: entry[CHARTS[chart][name]] for entry in entries}
        assert len(points) == min(2000, len(by_update))
        assert (points[0][0], points[-1][0]) == (min(by_update), UPDATES)
        for x, y in points:
            assert y == (None if by_update[x] is None else pytest.approx(by_update[x], rel=1e-5))


@pytest.mark.parametrize("chart", DEVICES)
def test_curves_are_those_of_the_telemetry(page, run, chart):
    """All but the time that the restart took: of the five seconds between two samples one is left."""
    drawn = drawn_series(page, chart)
    cards = [f" GPU {card}" for card in range(CARDS)] if chart.startswith("card") else [""]
    assert list(drawn) == [f"rank {rank}{card}" for rank in range(RANKS) for card in cards]
    for name, points in drawn.items():
        numbers = [int(word) for word in name.split() if word.isdecimal()]
        samples = [sample for sample in run.telemetry if sample["rank"] == numbers[0]]
        seconds = [round(sample["time"] - STARTED) for sample in samples]
        by_second = {at if at < 3000 else at - 4: sample for at, sample in zip(seconds, samples, strict=True)}
        known = [(round(60 * x), y) for x, y in points if y is not None]
        assert len(points) - len(known) == 1
        assert len(known) == 2000
        assert (known[0][0], known[-1][0]) == (min(by_second), max(by_second))
        for at, y in known:
            assert y == pytest.approx(DEVICES[chart](by_second[at], numbers[-1]), rel=1e-5)


def test_other_figures(page, run):
    assert set(page.run("Object.keys(charts)")) == {*CHARTS, *DEVICES}
    tiles = page.run("document.querySelector('.tiles').innerText")
    assert f"{run.best_value:.2%}" in tiles
    assert "10000 / 10000" in tiles
    cells = page.run(
        "[...document.querySelectorAll('.confusion tbody tr')].map(r => [...r.cells].slice(1).map(c => c.textContent))"
    )
    drawn = {(a, b): int(n) for a, row in enumerate(cells) for b, n in enumerate(row) if n}
    assert drawn == {(a, b): n for a, b, n in read_json(run.folder / FILE)["confusion"]}


DRAWN = "Object.values(charts).map(chart => chart.svg.childElementCount > 0)"


def test_a_chart_is_drawn_when_one_comes_to_it(page):
    drawn = page.run(DRAWN)
    assert drawn[0]
    assert not drawn[-1]
    page.run("document.getElementById(Object.keys(charts).at(-1)).scrollIntoView()")
    page.run("new Promise(seen => requestAnimationFrame(() => setTimeout(seen, 100)))")
    assert page.run(DRAWN)[-1]


def test_all_charts_are_printed(page):
    page.call("Page.printToPDF")
    assert all(page.run(DRAWN))


def test_every_picture_is_drawn(page):
    widths = page.run("[...document.querySelectorAll('.sample img')].map(image => image.naturalWidth)")
    assert len(widths) == 2 * SHOWN
    assert min(widths) > 0


def box(page: Browser, chart: str) -> dict[str, float]:
    page.run(f"document.getElementById('{chart}').scrollIntoView()")
    return page.run(
        f"(r => ({{x: r.x, y: r.y, width: r.width, height: r.height}}))(charts['{chart}'].svg.getBoundingClientRect())"
    )


def test_hover_tells_the_values(page, run):
    area = box(page, "loss")
    page.mouse("mouseMoved", area["x"] + area["width"] / 2, area["y"] + 100)
    tip = page.run("document.querySelector('#loss .tip').innerText").splitlines()
    update = int(tip[0].removeprefix("update "))
    loss = next(entry["loss"] for entry in run.train if entry["update"] == update)
    assert float(tip[1].removeprefix("training ")) == pytest.approx(loss, rel=1e-4)
    # Validation is told once an epoch: its nearest value, and where.
    assert tip[2].startswith("validation 0.")
    nearest = round(update / UPDATES_PER_EPOCH) * UPDATES_PER_EPOCH
    assert tip[2].endswith(f" (at {nearest})") or update == nearest


def test_zoom_by_dragging_and_back(page):
    area = box(page, "accuracy")
    whole = page.run("charts.accuracy.view")
    page.drag(area["x"] + area["width"] * 0.5, area["x"] + area["width"] * 0.75, area["y"] + 100)
    low, high = page.run("charts.accuracy.view")
    assert whole[0] < low < high < whole[1]
    assert high - low == pytest.approx(
        0.25 * area["width"] / (area["width"] - 68) * (whole[1] - whole[0]), rel=0.02
    )
    page.run(
        "[...document.querySelectorAll('#accuracy header button')].find(b => b.textContent === 'whole').click()"
    )
    assert page.run("charts.accuracy.view") == whole
    # A click on the legend hides a curve.
    page.run("document.querySelector('#accuracy .legend button').click()")
    assert page.run("document.querySelectorAll('#accuracy path.curve').length") == 2
    assert page.messages == []


def test_logarithmic(page):
    """Offered where all values are positive, and not for percentages."""
    assert page.run("[...document.querySelectorAll('#accuracy header button')].map(b => b.textContent)") == [
        "whole"
    ]
    page.run("document.querySelector('#speed header button').click()")
    assert page.run("charts.speed.log && charts.speed.svg.querySelectorAll('text').length > 3")
    assert page.messages == []


def test_phone_and_dark_mode(page):
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    assert page.run("document.documentElement.scrollWidth") <= 360
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    assert max(int(part) for part in dark.removeprefix("rgb(").rstrip(")").split(",")) < 60
    page.call("Emulation.setEmulatedMedia", features=[])
    page.call("Emulation.clearDeviceMetricsOverride")
    assert page.messages == []


def test_comparison(page, run, tmp_path):
    other = Run(make_run(tmp_path / "short"))
    path = write_comparison(str(tmp_path / "c.html"), [run, other], compare([run, other], tolerance=1e-3))
    page.open(path)
    names = page.run("charts.loss.spec.series.map(s => s.name)")
    assert names == [f"{one.folder} {kind}" for one in (run, other) for kind in ("training", "validation")]
    assert page.messages == []
