"""Where an update goes: what is read from a trace, and the arithmetic that it is compared with."""

import pytest

from benchmarks.profile_update import operation_seconds, training_flops
from distxcept.prove.race.setting import Setting


def test_operations_are_summed_by_kind_and_nothing_else_counts(tmp_path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    names = [
        "a/Conv2D:Conv2D",
        "b/Conv2D_1:_MklNativeConv2D",
        "x:Relu",
        "ExecutorState::Process",
        "Execute: f",
    ]
    for number, name in enumerate(names):
        plane.event_metadata[number].name = name
        plane.lines.add().events.add(metadata_id=number, duration_ps=(number + 1) * 10**12)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "host.xplane.pb").write_bytes(space.SerializeToString())
    assert operation_seconds(tmp_path) == {"Conv2D": 3.0, "Relu": 3.0}


def test_arithmetic_of_an_update():
    """Xception has 8.4 billion multiplications at 299 px (arXiv:1707.07012)."""
    one = training_flops(Setting(299, 1))
    assert one == pytest.approx(3 * 2 * 8.4e9, rel=0.01)
    assert training_flops(Setting(299, 8)) == 8 * one
