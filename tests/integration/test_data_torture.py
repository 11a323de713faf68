"""Thousands of mutated files through the decoder, in a process of their own: it must end well and stay small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("files", "seed"),
    [(1000, 1), pytest.param(20_000, 2, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_mutated_files_neither_crash_nor_hang_nor_fill_memory(files, seed):
    ended = subprocess.run(
        [sys.executable, HERE / "decoder_torture.py", str(files), str(seed)],
        capture_output=True,
        text=True,
        timeout=120 + files * 0.1,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    report = json.loads(ended.stdout.splitlines()[-1])
    print(report)
    assert report["files"] == files
    assert report["decoded"] + report["bad"] >= files - files // 20  # some are empty
    assert report["decoded"] > files * 0.1
    assert report["bad"] > files * 0.3
    assert report["other_errors"] == {}
    assert report["told_apart"] == 0, "alone and in a batch images must be the same"
    assert report["good_ones_harmed"] == 0
    # 4 million pixels are the most that may be decoded: 12 MB a copy.
    assert report["memory_growth_MiB"] < 150
    assert report["slowest_batch_seconds"] < 20
