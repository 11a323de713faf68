"""The terminal as a person, a log file and a script see it."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import STARTED, make_run, started

from distxcept.report.console import Terminal
from distxcept.report.panels import end_lines, start_lines
from distxcept.training.events import TrainRecord, ValidationRecord

ENDED = {
    "update": 20, "total_updates": 20, "samples": 640, "best": 0.5, "best_metric": "validation_accuracy",
    "skipped_updates": 0, "run_folder": "runs/x",
}  # fmt: skip


def record(update: int) -> TrainRecord:
    return TrainRecord(
        epoch=(update - 1) // 10, update=update, samples=32 * update, loss=1 / update, accuracy=0.5, learning_rate=0.1,
        gradient_norm=1.0, images_per_second=320.0, data_wait=0.02, peak_memory=2**30, skipped_updates=0,
    )  # fmt: skip


def validation(update: int) -> ValidationRecord:
    return ValidationRecord(
        epoch=(update - 1) // 10, update=update, samples=50, loss=0.4391, accuracy=0.84, top5_accuracy=1.0, best=update == 10
    )  # fmt: skip


def play(terminal: Terminal, run_folder: Path, first: int = 1) -> None:
    with terminal:
        terminal.started(started(first - 1, run_folder=str(run_folder)))
        for update in range(first, 21):
            terminal.updated(update, 1 / update, 0.5)
            if update % 5 == 0:
                terminal.trained(record(update))
            if update % 10 == 0:
                terminal.validated(validation(update))
        terminal.happened("saved", "snapshot update-00000020", update=20)
        terminal.happened("slow_input", "the [data] waits")
        terminal.bad_image(3, "a\x1b[2Jb.jpg", "cut off")
        terminal.ended({**ENDED, "run_folder": str(run_folder)})


def plain(**options) -> tuple[Terminal, io.StringIO]:
    file = io.StringIO()
    quiet = options.pop("quiet", False)
    return Terminal(
        "distxcept · x", console=Console(file=file, quiet=quiet, highlight=False, width=80), **options
    ), file


def test_plain_lines_without_a_terminal(tmp_path):
    # The first process ran for a minute, the second for five seconds.
    saved, ended = ({"kind": kind, "time": STARTED + at} for kind, at in (("saved", 60), ("ended", 505)))
    run = make_run(tmp_path / "run", events=[started(), saved, started(5, at=STARTED + 500), ended])
    (run / "bad_images.jsonl").write_text('{"index": 1}\n')
    terminal, file = plain(next_commands=lambda: ["distxcept report x"])
    play(terminal, run)
    text = file.getvalue()
    assert "\x1b" not in text
    lines = text.splitlines()
    # Epoch ends only: nothing is said in between unless ten seconds pass; long lines stay whole.
    assert [line for line in lines if line.startswith("epoch")] == [
        "epoch 1/2 · update 10/20 · loss 0.1000 · top-1 50.0% · lr 0.1 · 320.0 images/s · wait 2% · 1.00 GiB",
        "epoch 1/2 · validation loss 0.4391 · top-1 84.0% · top-5 100.0% · best so far",
        "epoch 2/2 · update 20/20 · loss 0.0500 · top-1 50.0% · lr 0.1 · 320.0 images/s · wait 2% · 1.00 GiB",
        "epoch 2/2 · validation loss 0.4391 · top-1 84.0% · top-5 100.0%",
    ]
    assert "the [data] waits" in lines
    assert "bad image a\\x1b[2Jb.jpg: cut off" in lines
    assert "snapshot" not in text
    panel = text.rpartition("╭")[2]
    for words in (
        "validation accuracy 50.00%",
        "20 updates in 1 min 5 s, 320.0 images/s",
        "1 restart, 1 bad image",
        "distxcept report x",
    ):
        assert words in panel


def test_every_few_seconds(tmp_path, monkeypatch):
    moments = iter(range(0, 10_000, 3))
    monkeypatch.setattr("distxcept.report.console.time.monotonic", lambda: next(moments))
    terminal, file = plain()
    play(terminal, make_run(tmp_path / "run"))
    assert "update 5/20" in file.getvalue()
    assert re.search(r"update 15/20 .* · 0:\d\d left\n", file.getvalue())


def test_short_lines_where_records_are_rare(tmp_path, monkeypatch):
    moments = iter(range(0, 10_000, 12))
    monkeypatch.setattr("distxcept.report.console.time.monotonic", lambda: next(moments))
    terminal, file = plain()
    with terminal:
        terminal.started(started(run_folder=str(tmp_path)))
        for update in range(1, 5):
            terminal.updated(update, 1 / update, 0.5)
    assert [line for line in file.getvalue().splitlines() if line.startswith("epoch")] == [
        "epoch 1/2 · update 2/20 · loss 0.5000 · top-1 50.0% · 3:36 left",
        "epoch 1/2 · update 4/20 · loss 0.2500 · top-1 50.0% · 3:12 left",
    ]


def test_verbose_says_more_and_quiet_nothing(tmp_path):
    run = make_run(tmp_path / "run")
    verbose, file = plain(verbose=True)
    play(verbose, run)
    assert "snapshot update-00000020" in file.getvalue()
    assert "update 15/20" in file.getvalue()
    quiet, file = plain(quiet=True)
    play(quiet, run)
    assert file.getvalue() == ""


def test_many_bad_images_are_left_to_the_file():
    terminal, file = plain()
    verbose, everything = plain(verbose=True)
    for one in (terminal, verbose):
        one.started(started(run_folder="runs/x"))
        for number in range(20):
            one.bad_image(number, f"{number}.jpg", "cut off")
    lines = [line for line in file.getvalue().splitlines() if line.startswith(("bad", "more"))]
    told = [f"bad image {number}.jpg: cut off" for number in range(5)]
    assert lines == [*told, "more are listed in runs/x/bad_images.jsonl"]
    assert "bad image 19.jpg" in everything.getvalue()


PROGRAM = """
import sys; sys.path.insert(0, {tests!r})
from pathlib import Path
from test_console import play
from distxcept.report.console import Terminal
terminal = Terminal("distxcept · x")
if {fails}:
    with terminal:
        from run_folders import started
        terminal.started(started()); terminal.updated(3, 0.5, 0.25)
        raise SystemExit(7)
play(terminal, Path({run!r}))
"""


def in_a_terminal(run: Path, *, fails: bool = False, **environ: str) -> str:
    main_end, other_end = pty.openpty()
    program = PROGRAM.format(tests=str(Path(__file__).parent), run=str(run), fails=fails)
    # Read while it writes: a pseudo-terminal holds only a little.
    parts: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(main_end, 4096):
                parts.append(part)
        except OSError:  # the other end is closed
            return

    environ = {"TERM": "xterm", "COLUMNS": "120", "LANG": "C.UTF-8", "PYTHONUTF8": "1", **environ}
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")}
    process = subprocess.Popen([sys.executable, "-c", program], stderr=other_end, env={**kept, **environ})
    os.close(other_end)
    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(timeout=120) == (7 if fails else 0), b"".join(parts)
    reader.join(timeout=60)
    os.close(main_end)
    return b"".join(parts).decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1"}], ids=["colour", "NO_COLOR"])
def test_live_line_in_a_terminal(tmp_path, environ):
    shown = in_a_terminal(make_run(tmp_path / "run"), **environ)
    assert re.search(r"epoch 1/2  [━─]+  \d+/10  loss \d\.\d{4}  top-1 50\.0%", shown)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0  # the cursor is back
    coloured = {code for code in COLOUR.findall(shown) if re.search(r"[\[;](3|9)\d", code)}
    assert bool(coloured) == (not environ)


def test_the_terminal_is_left_as_it_was_after_a_failure(tmp_path):
    shown = in_a_terminal(make_run(tmp_path / "run"), fails=True)
    assert "3/10" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0


def test_start_lines():
    facts = started(
        12,
        devices=[f"GPU:{k}" for k in range(8)],
        model="Xception",
        memory="micro batch 8",
        run_folder="runs/x",
    )
    lines = dict(start_lines(facts))
    assert lines["start"] == "going on after update 12"
    assert lines["devices"] == "engine single on GPU:0 … GPU:7 (8)"
    assert lines["length"] == "20 updates, 10 an epoch: 2 epochs"
    assert (lines["memory"], lines["folder"]) == ("micro batch 8", "runs/x")
    for looked_for, why in ((True, "no GPU found"), (False, "CPU asked for")):
        shown = dict(start_lines(started(gpu_looked_for=looked_for)))["devices"]
        assert shown == f"engine single on CPU:0 ({why})"
    assert dict(start_lines(started(validation_samples=0)))["data"].endswith("no validation")


def test_end_lines_after_an_early_end():
    summary = {**ENDED, "update": 12, "skipped_updates": 2, "best": None}
    lines = end_lines(summary, seconds=75, images_per_second=None, restarts=0, bad_images=0, report=None)
    assert lines == [
        ("done", "12 of 20 updates in 1 min 15 s"),
        ("notice", "2 skipped updates"),
        ("folder", "runs/x"),
    ]
