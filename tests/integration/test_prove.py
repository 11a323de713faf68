"""`distxcept prove` on two logical CPUs: what holds is said to hold, and what does not is found."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from launchers import PROGRAMS, run

from distxcept.prove import cases, equality, speed
from distxcept.prove.children import TIME_IS_UP, Children
from distxcept.prove.context import Context
from distxcept.prove.machine import Machine
from distxcept.prove.proof import Proof
from distxcept.prove.race.setting import Setting
from distxcept.prove.rows import Report, Row

PROVE = [sys.executable, "-m", "distxcept.cli.main", "prove", "--quick", "--devices", "2"]


def prove(folder: Path, *options: str, seconds: float = 400) -> dict[str, Any]:
    minutes = ["--minutes", str(int(seconds) // 60)]  # other tests run beside it
    done = run([*PROVE, "--output", str(folder), "--json", *minutes, *options], seconds)
    found = json.loads(done.stdout)
    assert done.returncode == 0, (found["broken"], done.stderr[-4000:])
    assert found == json.loads((folder / "prove.json").read_text())
    return {row["id"]: row for row in found["rows"]}


@pytest.mark.timeout(600)
def test_equality_and_links(tmp_path: Path) -> None:
    rows = prove(tmp_path, "--only", "environment,equality,links")
    for name in ("micro_steps", "again", "mirrored2", "float32_mirrored", "ordered_mirrored"):
        row = rows[f"equality.{name}"]
        assert row["status"] == "held" and 0 <= row["value"] <= row["bound"]
    assert rows["equality.micro_steps"]["value"] > 0, "in other micro steps sums are rounded otherwise"
    assert rows["links.mirrored"]["value"] > 0.05
    assert rows["environment.devices"]["value"] == 2
    assert "held" in (tmp_path / "prove.html").read_text()


@pytest.mark.timeout(400)
def test_phases_of_an_update(tmp_path: Path) -> None:
    machine = Machine("cpu", 2, cores=2, no_ranks="not tried")
    context = Context(machine, True, tmp_path, Children(tmp_path))
    rows = {row.id: row for row in speed.phases(context, tmp_path, Setting(71, 4, width=0.125, classes=10))}
    assert set(rows) == {
        f"speed.{name}" for name in ("update", "forward_backward", "reduce", "apply", "idle")
    }
    assert all(row.value is not None for row in rows.values()), rows
    assert all(rows[f"speed.{name}"].value > 0 for name in ("update", "reduce", "apply"))
    assert 0 <= rows["speed.idle"].value < 100


class NoProgress:
    def begin(self, section: str, steps: int) -> None: ...

    def tick(self, section: str) -> None: ...

    def end(self, section: str, rows: Sequence[Row]) -> None: ...


@pytest.mark.timeout(200)
def test_the_end_of_the_time_ends_all_programs(tmp_path: Path) -> None:
    """A guarantee is never skipped, a figure is."""
    machine = Machine("cpu", 2, cores=2, no_ranks="not tried")
    began = time.monotonic()
    made = Proof(machine, True, tmp_path, NoProgress(), deadline=began + 8)
    report = made.run(["recovery", "links", "speed"])
    assert time.monotonic() - began < 60
    found = {row.id: row for row in report.rows}
    assert found["recovery.mirrored"].status == "failed"
    left = [row for row in report.rows if row.section in ("links", "speed")]
    assert len(left) == 6 and {row.status for row in left} == {"skipped"}
    assert all(TIME_IS_UP in row.note for row in report.rows if row.id != "links.horovod")
    assert report.exit_code == 1
    commands = (" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))
    assert not [command for command in commands if str(tmp_path) in command]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_quick(tmp_path: Path) -> None:
    began = time.monotonic()
    rows = prove(tmp_path, seconds=800)
    print(f"{time.monotonic() - began:.0f} s")
    assert rows["recovery.mirrored"]["status"] == "held"
    assert rows["memory.largest"]["status"] == "held"
    for who in ("distxcept", "fit", "loop"):
        assert rows[f"speed.{who}_float32"]["value"] > 0
    assert rows["speed.update"]["value"] >= rows["speed.apply"]["value"] > 0


@pytest.mark.timeout(400)
def test_a_child_with_other_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One millionth more learning rate in one of two trainings."""
    machine = Machine("cpu", 2, cores=2, no_ranks="not tried")
    (job,) = (one for one in cases.jobs(machine, quick=True) if one.name == "float64")
    two = replace(job, cases=tuple(one for one in job.cases if one.name in ("reference", "micro_steps")))
    (pair,) = (one for one in cases.pairs(machine, quick=True) if one.id == "micro_steps")
    monkeypatch.setattr(cases, "jobs", lambda machine, quick: [two])
    monkeypatch.setattr(cases, "pairs", lambda machine, quick: [pair])
    program = [sys.executable, str(PROGRAMS / "changed_learning_rate.py")]
    monkeypatch.setattr(equality, "python", lambda module, *arguments: [*program, *map(str, arguments)])
    (row,) = equality.run(Context(machine, True, tmp_path, Children(tmp_path)))
    assert row.status == "broken", row
    assert row.value is not None and 1e-11 < row.value < 1e-3
    assert Report({}, [row]).exit_code == 1


@pytest.mark.timeout(300)
def test_ctrl_c_ends_the_children_and_keeps_what_was_found(tmp_path: Path) -> None:
    command = [*PROVE, "--output", str(tmp_path), "--only", "environment,equality"]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        children = wait_for_trainings(process)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    found = json.loads((tmp_path / "prove.json").read_text())
    assert found["verdict"] == "interrupted"
    assert any(row["section"] == "environment" for row in found["rows"])
    assert "interrupted: the rest was not checked" in stdout
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def wait_for_trainings(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Until programs of the equality section run."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        children = psutil.Process(process.pid).children(recursive=True)
        if any("distxcept.prove.runs" in " ".join(one.cmdline()) for one in children):
            return children
        time.sleep(0.1)
    raise AssertionError("no training was started")
