"""How the sections of `distxcept prove` come together: nothing that was found is lost."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from machines import GIB, card, cpus

from distxcept.cli import prove as command
from distxcept.cli.main import main
from distxcept.cli.proof_progress import found
from distxcept.memory.nvml import GpuProcess
from distxcept.prove import machine, page, proof
from distxcept.prove.children import TIME_IS_UP
from distxcept.prove.machine import Machine
from distxcept.prove.rows import Report, bounded, failed, measured, skipped

FINE = bounded("equality.again", "the same twice", 0.0, 0.0)
WRONG = bounded("equality.mirrored2", "2 <b> against 1", 3e-3, 1e-11, note="in conv1")


class Progress:
    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, section: str, steps: int) -> None:
        self.told.append(f"begin {section} {steps}")

    def tick(self, section: str) -> None:
        self.told.append(f"tick {section}")

    def end(self, section: str, rows: list) -> None:
        self.told.append(f"end {section} {len(rows)}")


def section(*rows, error: BaseException | None = None) -> SimpleNamespace:
    def run(context):
        for row in rows:
            yield row
            context.tick()
        if error is not None:
            raise error

    return SimpleNamespace(steps=lambda context: len(rows), run=run)


@pytest.fixture
def sections(monkeypatch):
    def use(**named) -> None:
        monkeypatch.setattr(proof, "SECTIONS", named)

    return use


def test_rows_come_in_the_order_of_the_sections(sections, tmp_path):
    sections(equality=section(FINE), links=section(skipped("links.x", "x", "one device")))
    progress = Progress()
    report = proof.Proof(cpus(), True, tmp_path, progress).run(["equality", "links"])
    assert [row.id for row in report.rows] == ["equality.again", "links.x"]
    assert report.exit_code == 0 and set(report.seconds) == {"equality", "links"}
    assert progress.told == [
        "begin equality 1", "tick equality", "end equality 1", "begin links 1", "tick links", "end links 1"
    ]  # fmt: skip


def test_a_section_that_fails_keeps_its_rows(sections, tmp_path):
    sections(equality=section(FINE, error=KeyError("weights")))
    report = proof.Proof(cpus(), True, tmp_path, Progress()).run(["equality"])
    assert [row.status for row in report.rows] == ["held", "failed"]
    assert "KeyError" in report.rows[1].note and report.exit_code == 1


def test_a_mistake_of_a_section_without_guarantees_fails_nothing(sections, tmp_path):
    sections(equality=section(FINE), speed=section(error=KeyError("speeds")))
    report = proof.Proof(cpus(), True, tmp_path, Progress()).run(["equality", "speed"])
    assert [row.status for row in report.rows] == ["held", "measured"]
    assert "KeyError" in report.rows[1].note and report.exit_code == 0


def test_links_come_before_speed_and_both_after_the_rest(sections, tmp_path):
    """In whatever order they are asked for: a race that takes all of the time leaves none for links."""
    sections(speed=section(), links=section(), memory=section())
    progress = Progress()
    proof.Proof(cpus(), True, tmp_path, progress).run(["speed", "links", "memory"])
    assert progress.told == [
        f"{word} {name} 0" for name in ("memory", "links", "speed") for word in ("begin", "end")
    ]


def test_the_deadline_ends_sections(sections, tmp_path):
    def slow(context):
        ended = context.children.run("x", ["sleep", "60"], seconds=60)
        yield (failed if ended.too_late else measured)("equality.x", "x", ended.why)

    def late(context):
        ended = context.children.run("y", ["sleep", "60"], seconds=60)
        yield skipped("speed.y", "y", ended.why)

    sections(
        equality=SimpleNamespace(steps=lambda context: 1, run=slow),
        speed=SimpleNamespace(steps=lambda context: 1, run=late),
    )
    began = time.monotonic()
    found = proof.Proof(cpus(), True, tmp_path, Progress(), deadline=began + 6)
    report = found.run(["equality", "speed"])
    assert 5 < time.monotonic() - began < 30
    assert [(row.status, row.note) for row in report.rows] == [
        ("failed", TIME_IS_UP),
        ("skipped", TIME_IS_UP),
    ]
    assert report.exit_code == 1


@pytest.mark.parametrize(("kind", "on_gpu"), [("cpu", False), ("gpu", True)])
def test_children_know_where_they_compute(sections, tmp_path, monkeypatch, kind, on_gpu):
    made = {}
    real = proof.Children

    def children(logs, **options):
        made.update(options)
        return real(logs, **options)

    monkeypatch.setattr(proof, "Children", children)
    sections(equality=section(FINE))
    proof.Proof(Machine(kind, 2), True, tmp_path, Progress(), deadline=123.0).run(["equality"])
    assert made == {"on_gpu": on_gpu, "deadline": 123.0}


def test_an_interruption_keeps_what_was_found(sections, tmp_path, monkeypatch):
    def slow(context):
        yield FINE
        context.children.run("x", ["sleep", "60"], seconds=60)

    sections(equality=SimpleNamespace(steps=lambda context: 1, run=slow))
    real, calls = proof.wait, []

    def interrupted(*arguments, **more):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **more)

    monkeypatch.setattr(proof, "wait", interrupted)
    began = time.monotonic()
    report = proof.Proof(cpus(), True, tmp_path, Progress()).run(["equality"])
    assert time.monotonic() - began < 30
    assert report.rows == [FINE] and report.verdict == "interrupted" and report.exit_code == 130


@pytest.fixture
def on_two_cpus(monkeypatch):
    monkeypatch.setattr(machine, "find_machine", lambda wanted, quick: cpus(wanted or 2))


def prove(tmp_path: Path, *options: str) -> int:
    return main(["prove", "--output", str(tmp_path / "out"), *options])


def test_the_command_with_everything_held(sections, on_two_cpus, tmp_path, capsys):
    sections(equality=section(FINE), speed=section(measured("speed.x", "x", 3.0, "images/s")))
    assert prove(tmp_path, "--only", "speed,equality") == 0
    said = capsys.readouterr()
    assert "every guarantee that was checked holds (1 held, 1 measured" in said.out
    assert "equality: 1 held" in said.err and "out/prove.html" in said.err.replace("\n", "")
    written = json.loads((tmp_path / "out" / "prove.json").read_text())
    assert written["verdict"] == "held" and written["devices"]["kind"] == "cpu"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["logs", "prove.html", "prove.json"]


def test_the_command_with_a_broken_guarantee(sections, on_two_cpus, tmp_path, capsys):
    sections(equality=section(FINE, WRONG))
    assert prove(tmp_path, "--only", "equality", "--json") == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["broken"] == ["equality.mirrored2"]
    assert "equality.mirrored2: 2 <b> against 1: 3.0e-03 (≤ 1.0e-11): in conv1" in said.err
    html = (tmp_path / "out" / "prove.html").read_text()
    assert "2 &lt;b&gt; against 1" in html and "<b> against" not in html
    assert "Content-Security-Policy" in html and "src=" not in html and len(html) < 100_000


@pytest.mark.parametrize(
    ("options", "minutes"),
    [([], 15), (["--quick"], 3), (["--minutes", "40"], 40), (["--quick", "--minutes", "1"], 1)],
)
def test_minutes(on_two_cpus, tmp_path, monkeypatch, options, minutes):
    told = {}

    def proved(machine, quick, output, names, progress, minutes, deadline):
        told.update(minutes=minutes, seconds=deadline - time.monotonic())
        return Report({}, [])

    monkeypatch.setattr(command, "prove", proved)
    assert prove(tmp_path, *options) == 0
    assert told["minutes"] == minutes
    assert 60 * minutes - 30 < told["seconds"] <= 60 * minutes, "the start of the command counts"


def test_minutes_are_told_and_in_the_report(sections, on_two_cpus, tmp_path, capsys):
    sections(equality=section(FINE))
    assert prove(tmp_path, "--only", "equality", "--minutes", "7") == 0
    assert json.loads((tmp_path / "out" / "prove.json").read_text())["minutes"] == 7
    assert "proving 2 logical CPUs on 2 cores, at most 7 minutes: equality" in capsys.readouterr().err


def test_others_on_the_cards_are_told_first(sections, tmp_path, monkeypatch, capsys):
    used = card(processes=(GpuProcess(8, 2 * GIB, "python"),))
    monkeypatch.setattr(machine, "find_machine", lambda wanted, quick: Machine("gpu", 1, (used,)))
    sections(equality=section(FINE))
    assert prove(tmp_path, "--only", "equality") == 0
    assert "warning: GPU 0 is shared with python (pid 8, 2.0 GiB)" in capsys.readouterr().err
    assert prove(tmp_path, "--only", "equality", "-q") == 0
    assert capsys.readouterr().err == ""


def test_quiet_prints_the_result_only(sections, on_two_cpus, tmp_path, capsys):
    sections(equality=section(FINE))
    assert prove(tmp_path, "--only", "equality", "-q") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "equalty"], "'equalty' is no section; there are environment, audit, equality"),
        (["--only", ""], "is no section"),
        (["--devices", "0"], "'0' is not 1 or more"),
        (["--devices", "two"], "'two' is no whole number"),
        (["--devices", "GPU:0"], "'GPU:0' is no whole number"),
        (["--minutes", "0"], "--minutes: '0' is not 1 or more"),
        (["--minutes", "-3"], "--minutes"),
        (["--minutes", "2.5"], "--minutes: '2.5' is no whole number"),
        (["--minutes", "ten"], "--minutes: 'ten' is no whole number"),
        (["--minutes", ""], "--minutes: '' is no whole number"),
        (["--minutes"], "--minutes: expected one argument"),
        (["--quik"], "did you mean --quick?"),
    ],
)
def test_wrong_options_are_one_line(options, words, capsys):
    assert main(["prove", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["prove", "--output", str(file / "deeper")]) == 2
    assert main(["prove", "--output", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("--output" in line for line in lines)


def test_every_section_of_the_help_exists(capsys):
    from distxcept.cli.prove import EXAMPLES, SECTIONS

    assert tuple(proof.SECTIONS) == SECTIONS
    assert all(f"\n  {name} " in EXAMPLES for name in SECTIONS)


def test_the_summary_counts():
    report = Report({"total_seconds": 12.0}, [FINE, WRONG], {"equality": 5.0})
    assert page.summary(report) == "not every guarantee holds (1 held, 1 broken; 12 s)"
    late = failed("equality.again", "the same twice", TIME_IS_UP)
    unknown = Report({"total_seconds": 12.0}, [FINE, late], {"equality": 5.0})
    assert page.summary(unknown) == "not every guarantee could be checked (1 held, 1 failed; 12 s)"
    only_measured = Report({"total_seconds": 1.0}, [measured("speed.x", "x", 1.0)], {"speed": 1.0})
    assert page.summary(only_measured) == "no guarantee was checked (1 measured; 1 s)"
    assert found([FINE, WRONG, FINE]) == "2 held, 1 broken"
