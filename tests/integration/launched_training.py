"""A real training under `distxcept launch`, watched from outside: processes, command lines, listening sockets."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml
from launchers import RANK_ENVIRON
from safetensors.numpy import load_file

CONFIG = {
    "run": {"updates": 30, "log_every": 1, "seed": 3, "evaluate_every": 1000},
    # Frozen, because a short backward pass is traced faster; test_equivalence.py trains everything.
    "model": {
        "image_size": 71,
        "width": 0.0625,
        "middle_blocks": 1,
        "batchnorm_momentum": 0.9,
        "freeze": "block13",
    },
    "data": {"train": {"kind": "synthetic", "samples": 48, "classes": 3}},
    "batch": {"global": 16, "virtual": 4},
    "optimizer": {"learning_rate": 0.01, "clip_norm": 1.0},
    "precision": "float64",
    "engine": {"threads": 1},
    "checkpoint": {"every_updates": 1, "every_minutes": None, "best_metric": None},
}
PATIENCE_SECONDS = 400.0


class LaunchedTraining:
    def __init__(
        self,
        folder: Path,
        name: str,
        *options: str,
        environ: dict[str, str] | None = None,
        config: Mapping[str, Any] = CONFIG,
        program: Sequence[str] = (sys.executable, "-m", "distxcept.cli.main"),
    ):
        self.run_folder, self.config = folder / name, config
        file = folder / "config.yaml"
        file.write_text(yaml.safe_dump(dict(config)))
        command = [*program, "launch", str(file), *options]
        self.process = subprocess.Popen(
            [*command, f"run.dir={folder}", f"run.name={name}"],
            env={**os.environ, **RANK_ENVIRON, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.seen: dict[int, psutil.Process] = {}
        self.command_lines: set[str] = set()

    def look(self) -> None:
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self.process.pid)
            for process in [own, *own.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    self.seen[process.pid] = process
                    self.command_lines.add(" ".join(process.cmdline()))

    def wait_until(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            self.look()
            assert self.process.poll() is None, f"it ended before {what}: {self.finish()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.05)

    def updates(self) -> list[int]:
        return [line["update"] for line in self.metrics()]

    def metrics(self) -> list[dict]:
        path = self.run_folder / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return found

    def ranks(self) -> list[psutil.Process]:
        """By rank."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "distxcept.cli.rank" in process.cmdline() and process.name().startswith("python"):
                    environ = process.environ()
                    found.append((int(environ.get("OMPI_COMM_WORLD_RANK", 0)), process))
        return [process for _, process in sorted(found, key=lambda pair: pair[0])]

    def kill(self, rank: int) -> None:
        self.ranks()[rank].send_signal(signal.SIGKILL)

    def listeners(self) -> list[tuple[str, str, int]]:
        """(program, address, port) of everything on which a process of the job listens."""
        self.look()
        found = set()
        for process in self.seen.values():
            with contextlib.suppress(psutil.Error):
                for connection in process.net_connections(kind="inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        found.add((process.name(), connection.laddr.ip, connection.laddr.port))
        return sorted(found)

    def finish(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output

    def watch(self, patience_seconds: float = PATIENCE_SECONDS) -> tuple[int, str]:
        """Its exit code and output; every process that it had on the way is known afterwards."""
        deadline = time.monotonic() + patience_seconds
        while time.monotonic() < deadline:
            self.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, _ = self.process.communicate(timeout=0.2)
                return self.process.returncode, output
        self.process.kill()  # its processes die with it
        raise AssertionError(
            f"it did not end in {patience_seconds:g} s: {self.process.communicate()[0][-4000:]}"
        )

    def left_over(self) -> list[int]:
        _, alive = psutil.wait_procs(list(self.seen.values()), timeout=10)
        return [process.pid for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    def tensors(self) -> dict[str, np.ndarray]:
        newest = sorted(self.run_folder.glob("checkpoints/update-*"))[-1]
        assert newest.name == f"update-{self.config['run']['updates']:08d}"
        return load_file(newest / "tensors.safetensors")


def difference(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    assert a.keys() == b.keys()
    return max(float(np.max(np.abs(a[k] - b[k])) / max(np.max(np.abs(a[k])), 1e-30)) for k in a)
