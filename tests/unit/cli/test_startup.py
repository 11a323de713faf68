"""What libraries say while TensorFlow starts: in the rank's log, whatever becomes of the start."""

import os
import signal
import subprocess
import sys

import pytest
import yaml

from distxcept.cli import startup

CONFIG = {"data": {"train": {"kind": "synthetic", "samples": 8, "classes": 2}}}

# The command itself, but for an engine that ends as MPI or oneDNN may end it.
CHILD = """
import os, sys
import distxcept.engines

def create_engine(*arguments, **options):
    os.write(2, b"words of a library\\n")
    {end}

distxcept.engines.create_engine = create_engine
from distxcept.cli.main import main
sys.exit(main(["train", "config.yaml", "run.dir=runs", "run.name=x"]))
"""


@pytest.mark.parametrize(
    ("end", "code"), [("os.abort()", -signal.SIGABRT), ("raise RuntimeError('no device')", 1)]
)
def test_a_start_that_fails_keeps_the_words(end, code, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (tmp_path / "runs" / "x" / "logs").mkdir(parents=True)
    log = tmp_path / "runs" / "x" / "logs" / "rank-0.log"
    log.write_text("of the attempt before\n")
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(end=end)],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "words of a library" not in done.stderr
    assert ("no device" in done.stderr) == (code == 1)
    first, *more = log.read_text().splitlines()
    assert first == "of the attempt before"
    assert more[-1] == "words of a library"


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(startup, "import_tensorflow", lambda: None)
    with startup.chatter_aside(False, tmp_path) as aside:  # a folder
        os.write(2, b"chatter\n")
        aside.tell("for the user")
    assert capfd.readouterr().err == "for the user\n"
