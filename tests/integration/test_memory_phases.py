"""`--memory-phases`: the peaks are those of the work that each phase does, and nothing is changed by measuring."""

import json

from launchers import python, run

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
