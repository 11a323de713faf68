"""`--memory-phases`: the peaks are those of the work that each phase does, and nothing is changed by measuring."""

import json
import sys
from pathlib import Path

from launchers import MPIRUN, python, run, skip_without

ENVIRON = ["env", "MALLOC_MMAP_THRESHOLD_=65536", "TF_ENABLE_ONEDNN_OPTS=0"]


def test_phases() -> None:
    done = run([*ENVIRON, *python("phases.py")])
    assert done.returncode == 0, done.stderr[-4000:]
    small, large = json.loads(done.stdout)
    print(small, large)
    assert small["same"]
    assert large["same"]
    # Activations grow with the micro batch; what is done once an update does not.
    assert 3 < large["forward"] / small["forward"] < 5
    for phases in (small, large):
        assert phases["backward"] > phases["forward"]
        assert 0 < phases["apply"] < phases["forward"]
        assert phases["text"].startswith("peak memory by phase, each on its own: forward ")
    # Between forward and backward all is held, in a whole update less.
    assert 0.5 * large["backward"] < large["update"] < 1.3 * large["backward"]


def test_every_rank_tells_its_own(tmp_path: Path) -> None:
    skip_without("mpirun", "horovod")
    distxcept = str(Path(sys.executable).with_name("distxcept"))
    config = tmp_path / "phases.yaml"
    config.write_text(
        "model: {image_size: 71, width: 0.125}\n"
        "data: {train: {kind: synthetic, samples: 8, classes: 3}}\n"
        "batch: {global: 8, virtual: 4, micro: 4}\n"
        f"run: {{updates: 1, dir: {tmp_path}}}\n"
    )
    done = run([*MPIRUN, "-np", "2", distxcept, "train", str(config), "--memory-phases"])
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in (tmp_path / "phases" / "telemetry.jsonl").read_text().splitlines()]
    found = {line["rank"]: line["forward_bytes"] for line in lines if line["kind"] == "memory_phases"}
    events = [json.loads(line) for line in (tmp_path / "phases" / "events.jsonl").read_text().splitlines()]
    (told,) = (event for event in events if event["kind"] == "memory_phases")
    assert [found[rank] for rank in (0, 1)] == [phases["forward"] for phases in told["ranks"]]
