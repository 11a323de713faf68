"""`distxcept bench` with its real contestants, as small as they can be; what is concluded is tested with stubs."""

import json
import sys

import pytest
from launchers import run

TINY = ["--image-size", "71", "--width", "0.125", "--batch", "4", "--rounds", "1", "--seconds", "0.2"]


@pytest.mark.soak  # a minute: five programs start TensorFlow and trace
def test_the_real_contestants():
    command = [sys.executable, "-m", "distxcept.cli.main", "bench", *TINY, "--side-by-side", "2", "--json"]
    done = run(command)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert len(found["contestants"]) == 5
    for one in found["contestants"]:
        assert one["images_per_second"]["median"] > 0, one
        assert one["peak_bytes"] > 2**27, one
